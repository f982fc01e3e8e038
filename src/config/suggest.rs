//! What an unknown key was probably meant to be.

use serde_json::Value as Json;

use super::sources::variable;

/// Below this likeness a suggestion would only confuse.
const LIKE: f64 = 0.7;
/// The parts of a rule, which no default shows.
const RULE: [&str; 4] = ["name", "attribute", "value", "stage"];

/// Why the key at `path` is refused; a variable's key is suggested as the variable.
pub(super) fn unknown(path: &str, origin: &str, defaults: &Json) -> String {
    let known = known(path, defaults);
    let folded = fold(path);
    let likeness = |known: &String| {
        let last = known.rsplit('.').next().unwrap_or(known);
        let other = fold(known);
        // in the wrong section, or in none
        let moved = if folded.rsplit('.').next() == Some(&*fold(last)) { 0.95 } else { 0.0 };
        strsim::normalized_damerau_levenshtein(&folded, &other).max(moved)
    };
    let best = known.iter().map(|known| (likeness(known), known)).max_by(|a, b| a.0.total_cmp(&b.0));
    match best.filter(|(likeness, _)| *likeness >= LIKE) {
        Some((_, known)) if origin.starts_with("env ") => format!("unknown key; did you mean `{}`?", variable(known)),
        Some((_, known)) => format!("unknown key; did you mean `{known}`?"),
        None => "unknown key".to_owned(),
    }
}

/// Every key that could stand there.
fn known(path: &str, defaults: &Json) -> Vec<String> {
    if let Some((rule, _)) = path.split_once(']') {
        return RULE.iter().map(|key| format!("{rule}].{key}")).collect();
    }
    let mut known = Vec::new();
    collect(defaults, "", &mut known);
    known
}

fn collect(at: &Json, path: &str, known: &mut Vec<String>) {
    let Json::Object(section) = at else { return };
    for (key, value) in section {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        collect(value, &path, known);
        known.push(path);
    }
}

/// Without the differences of other spellings: `otlp-grpc` and `otlpGrpc` are `otlp_grpc`.
fn fold(key: &str) -> String {
    key.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}
