//! What an injection did, kept in an annotation so that it can be undone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::manifest::{Edit, pointer};
use crate::pod::Object;

/// The annotation of what Lapwing has changed.
pub(crate) const INJECTED: &str = "lapwing.dev/injected";

/// What was done. Paths are JSON Pointers from the object's root, which name items of lists by their `name` where they have one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Record {
    pub(crate) version: String,
    /// `named`, `redirect` or `service`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) way: String,
    /// Whether it sees the node's GPUs: variables besides those that are wanted would pass for a user's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) gpu: bool,
    /// The values that were replaced.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) was: BTreeMap<String, Value>,
    /// What was added.
    pub(crate) added: Vec<String>,
    /// Lists and mappings that were not there before, or had nothing in them, as `was` says then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) made: Vec<String>,
}

fn parts(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).collect()
}

/// A path with items of lists by their names, as one with their numbers.
fn numbered(root: &Value, pointer: &str) -> Option<Vec<String>> {
    let mut at = root;
    let mut path = Vec::new();
    for part in parts(pointer) {
        let part = match at {
            Value::Array(items) => {
                let by_name = items.iter().position(|item| item.get("name").and_then(Value::as_str) == Some(part.as_str()));
                by_name.or_else(|| part.parse().ok()).filter(|at| *at < items.len())?.to_string()
            }
            _ => part,
        };
        at = match at {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
            Value::Object(map) => map.get(&part)?,
            _ => return None,
        };
        path.push(part);
    }
    Some(path)
}

impl Record {
    /// What annotations say was done.
    pub(crate) fn of(annotations: Option<&Value>) -> Option<Self> {
        let text = annotations?.get(INJECTED)?.as_str()?;
        Some(serde_json::from_str(text).unwrap_or_default())
    }

    /// The changes that undo it; what is no longer there needs none.
    pub(crate) fn undo(&self, object: &Object) -> Vec<Edit> {
        let root = object.value;
        let below = |path: &[String]| -> Vec<String> { object.path.iter().chain(path).cloned().collect() };
        let mut edits = Vec::new();
        for (place, value) in self.was.iter().filter(|(place, _)| !self.made.contains(place)) {
            if let Some(path) = numbered(root, place) {
                edits.extend(Edit::replace(&below(&path), value));
            }
        }
        let mut gone: Vec<Vec<String>> = self.added.iter().filter_map(|place| numbered(root, place)).collect();
        // of what was made, what has nothing else in it goes as a whole: the inner before the outer
        let of = |place: &'_ String| numbered(root, place).map(|path| (path, self.was.get(place)));
        let mut made: Vec<(Vec<String>, Option<&Value>)> = self.made.iter().filter_map(of).collect();
        made.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        for (path, was) in made {
            let inside = |gone: &&Vec<String>| gone.len() == path.len() + 1 && gone.starts_with(&path);
            let count = match root.pointer(&pointer(&path)) {
                Some(Value::Array(items)) => items.len(),
                Some(Value::Object(map)) => map.len(),
                _ => continue,
            };
            if gone.iter().filter(inside).count() == count {
                gone.retain(|gone| !gone.starts_with(&path));
                match was {
                    Some(was) => edits.extend(Edit::replace(&below(&path), was)),
                    None => gone.push(path),
                }
            }
        }
        // the last items first, so that the numbers of the others stay
        gone.sort_by_key(|path| {
            std::cmp::Reverse(path.iter().map(|part| part.parse::<usize>().unwrap_or_default()).collect::<Vec<_>>())
        });
        edits.extend(gone.iter().map(|path| Edit::remove(&below(path))));
        edits
    }
}
