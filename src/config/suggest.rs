//! Suggestions: which known key an unknown key was probably meant to be.

use super::path::{Path, Step};
use super::schema::Schema;
use super::sources::variable;

/// Below this likeness a suggestion would only confuse.
const LIKE: f64 = 0.7;
/// The likeness of a key that exists under exactly this name in another section.
const MOVED: f64 = 0.95;

/// The reason why the key at `path` is refused. If a variable set it, the suggestion is a variable too.
pub(crate) fn unknown(path: &Path, origin: &str, schema: &Schema) -> String {
    let Some((Step::Key(key), parent)) = path.0.split_last() else { return "unknown key".to_owned() };
    let parent = Path(parent.to_vec());
    let beside = schema.at(&parent.0).into_iter().flat_map(Schema::keys).map(|(other, _)| {
        let likeness = strsim::normalized_damerau_levenshtein(&fold(key), &fold(other));
        (likeness, parent.key(other).to_string())
    });
    let mut candidates: Vec<(f64, String)> = beside.collect();
    // keys in a wrong section, in none, or with a misspelt section; never keys inside a list or below a user's name
    if parent.0.iter().all(|step| matches!(step, Step::Key(_))) && !is_chosen(&parent, schema) {
        elsewhere(schema, &Path::default(), &mut |other, name| {
            let whole = strsim::normalized_damerau_levenshtein(&fold(&path.to_string()), &fold(&other.to_string()));
            let likeness = if fold(name) == fold(key) { MOVED } else { whole };
            let is_beside = other.0.split_last().is_some_and(|(_, before)| before == parent.0);
            if !is_beside && !path.0.starts_with(&other.0) {
                candidates.push((likeness, other.to_string()));
            }
        });
    }
    let best = candidates.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    match best.filter(|(likeness, _)| *likeness >= LIKE) {
        Some((_, known)) if origin.starts_with("env ") => format!("unknown key; did you mean `{}`?", variable(&known)),
        Some((_, known)) => format!("unknown key; did you mean `{known}`?"),
        None => "unknown key".to_owned(),
    }
}

/// Whether a part of `path` is a name that the user chose.
fn is_chosen(path: &Path, schema: &Schema) -> bool {
    (0..path.0.len()).any(|end| matches!(schema.at(&path.0[..end]), Some(Schema::Named { .. })))
}

/// Calls `each` with every key of every section.
fn elsewhere(schema: &Schema, path: &Path, each: &mut impl FnMut(&Path, &str)) {
    for (key, inner) in schema.keys() {
        let path = path.key(key);
        elsewhere(inner, &path, each);
        each(&path, key);
    }
}

/// Without the differences of other spellings: `otlp-grpc` and `otlpGrpc` are `otlp_grpc`, and so is `proxy_workers`
/// `proxy.workers`.
fn fold(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '-' | '_' | '.')).flat_map(char::to_lowercase).collect()
}
