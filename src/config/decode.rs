//! Reads a tree of values into typed settings. A value that cannot be read is recorded as a fault and removed, so that one pass
//! finds every fault.

use figment::error::Kind;
use figment::value::{Dict, Value};
use figment::{Figment, error::Error};

use super::path::{Path, Step};
use super::schema::Schema;
use lapwing_settings::{Fault, Secret, Section};

/// The faults found so far, and the sources from which the origins of their values are derived.
pub(crate) struct Faults<'s> {
    schema: &'s Schema,
    figment: Figment,
    /// Starts with the tree as it was given, before any value is removed.
    given: Value,
    pub(crate) found: Vec<Fault>,
}

impl<'s> Faults<'s> {
    pub(crate) fn new(schema: &'s Schema, figment: Figment, given: Value, found: Vec<Fault>) -> Self {
        Self { schema, figment, given, found }
    }

    /// The origin of the value at `path`, or of the section around it; empty if no source gave it.
    pub(crate) fn origin(&self, path: &Path) -> String {
        // the root has values of many origins
        let value = path.nearest(&self.given);
        let metadata = if std::ptr::eq(value, &raw const self.given) { None } else { self.figment.get_metadata(value.tag()) };
        metadata.map_or_else(String::new, |metadata| metadata.name.to_string())
    }

    /// Whether a source gave a value at `path`.
    pub(crate) fn is_given(&self, path: &Path) -> bool {
        path.get(&self.given).is_some()
    }

    /// Records a fault at `path`. It shows the value, unless the value is secret.
    pub(crate) fn note(&mut self, path: &Path, reason: impl Into<String>) {
        let text = match path.get(&self.given) {
            Some(value) if self.schema.is_secret(path) && !matches!(value, Value::Empty(..)) => Secret::new("").to_string(),
            Some(value) => shown(value),
            None => String::new(),
        };
        self.push(Fault::new(path.to_string(), text, reason), path);
    }

    /// Records a fault, and adds the origin of `path` to it.
    pub(crate) fn push(&mut self, fault: Fault, path: &Path) {
        self.found.push(Fault { origin: self.origin(path), ..fault });
    }

    /// Records a fault at `path`, and removes the value from `tree`.
    pub(crate) fn refuse(&mut self, tree: &mut Value, path: &Path, reason: impl Into<String>) {
        self.note(path, reason);
        take_out(tree, path, self.schema);
    }
}

/// Removes the value at `path`; `false` if that changes nothing. Lists keep their length, so that paths into them stay valid: the
/// list's stand-in replaces a whole element. The values of stand-ins, also of named records, replace those of required keys.
fn take_out(tree: &mut Value, path: &Path, schema: &Schema) -> bool {
    let stand_in = |list: &[Step]| match schema.at(list) {
        Some(Schema::List { stand_in, .. } | Schema::Named { stand_in, .. }) => *stand_in,
        _ => &[],
    };
    match path.0.as_slice() {
        [list @ .., Step::Index(_)] => path.get_mut(tree).is_some_and(|element| {
            let text = |(key, text): &(&str, &str)| ((*key).to_owned(), Value::from(*text));
            *element = match schema.at(&path.0) {
                Some(Schema::Text) => Value::from(""),
                _ => Value::from(stand_in(list).iter().map(text).collect::<Dict>()),
            };
            true
        }),
        [record @ .., Step::Key(key)] => {
            let around = record.split_last().map_or(&[][..], |(_, around)| around);
            let required = stand_in(around).iter().find(|(name, _)| name == key);
            let Some((_, text)) = required else { return path.remove(tree) };
            match Path(record.to_vec()).get_mut(tree) {
                Some(Value::Dict(_, element)) => {
                    let before = element.insert(key.clone(), Value::from(*text));
                    before.is_none_or(|before| before.as_str() != Some(text))
                }
                _ => false,
            }
        }
        _ => path.remove(tree),
    }
}

/// Reads `tree` as a `T`, and returns the paths of unknown keys beside it.
pub(crate) fn decode<T: Section>(tree: &mut Value, faults: &mut Faults<'_>) -> (T, Vec<Path>) {
    loop {
        let mut unknown = Vec::new();
        let mut track = serde_path_to_error::Track::new();
        let mut note = |path: serde_ignored::Path<'_>| unknown.push(Path::from(&path));
        let reader = serde_path_to_error::Deserializer::new(&*tree, &mut track);
        let error = match T::deserialize(serde_ignored::Deserializer::new(reader, &mut note)) {
            Ok(config) => return (config, unknown),
            Err(error) => error,
        };
        let (path, reason) = fault_of(Path::from(&track.path()), error);
        faults.note(&path, reason);
        if !take_out(tree, &path, faults.schema) {
            // unreachable: serde reports faults at values that can be removed
            return (T::default(), Vec::new());
        }
    }
}

fn fault_of(path: Path, error: Error) -> (Path, String) {
    let reason = match error.kind {
        Kind::MissingField(name) => return (path.key(&name), "is required".to_owned()),
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) => format!("must be {}", english(&expected)),
        Kind::UnknownVariant(_, names) => format!("must be {}", one_of(names)),
        // nested deserializers report in serde's own words, with the expectation at the end
        Kind::Message(text) if text.starts_with("invalid ") => match text.rsplit_once(", expected ") {
            Some((_, expected)) => format!("must be {}", english(expected)),
            None => text,
        },
        other => other.to_string(),
    };
    (path, reason)
}

fn english(expected: &str) -> String {
    match expected {
        "a boolean" => "true or false".to_owned(),
        "a string" => "text".to_owned(),
        "usize" | "u64" => "a whole number, 0 or more".to_owned(),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "a map" => "a section of keys".to_owned(),
        "a sequence" => "a list".to_owned(),
        "path string" => "the path of a file".to_owned(),
        "variant identifier" => "one of the names that the setting knows".to_owned(),
        other => other.to_owned(),
    }
}

fn one_of(names: &[&str]) -> String {
    match names {
        [] => "nothing".to_owned(),
        [only] => (*only).to_owned(),
        [before @ .., last] => format!("{} or {last}", before.join(", ")),
    }
}

/// A value as text. Sections and lists show only their kind.
fn shown(value: &Value) -> String {
    match value {
        Value::String(_, text) => text.clone(),
        Value::Char(_, c) => c.to_string(),
        Value::Bool(_, is_true) => is_true.to_string(),
        Value::Num(..) => match (value.to_u128(), value.to_i128()) {
            (Some(n), _) => n.to_string(),
            (None, Some(n)) => n.to_string(),
            (None, None) => value.to_f64().map_or_else(String::new, |n| n.to_string()),
        },
        Value::Empty(..) => "nothing".to_owned(),
        Value::Dict(..) => "a section".to_owned(),
        Value::Array(..) => "a list".to_owned(),
    }
}
