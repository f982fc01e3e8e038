//! Changes of an object, applied to its value, to its text, and written as a JSON Patch (RFC 6902).

use serde::Serialize;
use serde_json::{Value, json};

use super::error::ManifestError;

/// A change at a path from the root of a document: keys of mappings, numbers of items.
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    pub(crate) path: Vec<String>,
    pub(crate) change: Change,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// A new key, or with the last part `-` an item behind the last. The collection is there, and may be null.
    Add(Fragment),
    Replace(Fragment),
    Remove,
}

/// How a level of JSON is indented.
pub(crate) const PRETTY: &str = "  ";

/// What is written: a value, in YAML and JSON with its keys in their order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fragment {
    /// As the only item of a block sequence, with its dash.
    pub(crate) item: String,
    /// As JSON on one line.
    pub(crate) json: String,
    /// As JSON on several lines, each level indented by [`PRETTY`].
    pub(crate) pretty: String,
    pub(crate) value: Value,
}

impl Fragment {
    /// # Errors
    ///
    /// If the value is none of YAML or JSON.
    pub(crate) fn of(value: &impl Serialize) -> Result<Self, ManifestError> {
        let fault = |error: String| ManifestError::NotWritten(error);
        let options = serde_saphyr::ser_options! { compact_list_indent: true, prefer_block_scalars: false };
        let mut item = String::new();
        serde_saphyr::to_fmt_writer_with_options(&mut item, &[value], options).map_err(|error| fault(error.to_string()))?;
        let json = serde_json::to_string(value).map_err(|error| fault(error.to_string()))?;
        let pretty = serde_json::to_string_pretty(value).map_err(|error| fault(error.to_string()))?;
        let value = serde_json::to_value(value).map_err(|error| fault(error.to_string()))?;
        Ok(Self { item: item.trim_end().to_owned(), json, pretty, value })
    }

    /// Whether it is a sequence or mapping with something in it.
    pub(crate) fn is_collection(&self) -> bool {
        self.value.as_object().is_some_and(|map| !map.is_empty()) || self.value.as_array().is_some_and(|items| !items.is_empty())
    }

    /// Its lines as the value of a key or the rest of an item: without the dash and the two columns that it stands in.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.item.lines().map(|line| line.get(2..).unwrap_or_default())
    }
}

impl Edit {
    pub(crate) fn add<P: AsRef<str>>(path: &[P], value: &impl Serialize) -> Result<Self, ManifestError> {
        Ok(Self { path: owned(path), change: Change::Add(Fragment::of(value)?) })
    }

    pub(crate) fn replace<P: AsRef<str>>(path: &[P], value: &impl Serialize) -> Result<Self, ManifestError> {
        Ok(Self { path: owned(path), change: Change::Replace(Fragment::of(value)?) })
    }

    pub(crate) fn remove<P: AsRef<str>>(path: &[P]) -> Self {
        Self { path: owned(path), change: Change::Remove }
    }

    /// Changes a value as it changes the text.
    ///
    /// # Errors
    ///
    /// If nothing is at its path.
    pub(crate) fn apply(&self, root: &mut Value) -> Result<(), ManifestError> {
        let nothing = || ManifestError::NoPath(self.pointer());
        let Some((last, parents)) = self.path.split_last() else { return Err(nothing()) };
        let mut at = root;
        for part in parents {
            at = match at {
                Value::Object(map) => map.get_mut(part),
                Value::Array(items) => part.parse::<usize>().ok().and_then(|at| items.get_mut(at)),
                _ => None,
            }
            .ok_or_else(nothing)?;
        }
        if at.is_null() {
            *at = if last == "-" { json!([]) } else { json!({}) };
        }
        let index = last.parse::<usize>().ok();
        match (&self.change, at) {
            (Change::Add(fragment), Value::Array(items)) if last == "-" => items.push(fragment.value.clone()),
            (Change::Add(fragment), Value::Object(map)) => drop(map.insert(last.clone(), fragment.value.clone())),
            (Change::Replace(fragment), Value::Object(map)) => {
                *map.get_mut(last).ok_or_else(nothing)? = fragment.value.clone();
            }
            (Change::Replace(fragment), Value::Array(items)) => {
                *index.and_then(|at| items.get_mut(at)).ok_or_else(nothing)? = fragment.value.clone();
            }
            (Change::Remove, Value::Object(map)) => drop(map.remove(last).ok_or_else(nothing)?),
            (Change::Remove, Value::Array(items)) => {
                let at = index.filter(|at| *at < items.len()).ok_or_else(nothing)?;
                items.remove(at);
            }
            _ => return Err(nothing()),
        }
        Ok(())
    }

    /// The path as a JSON Pointer (RFC 6901).
    pub(crate) fn pointer(&self) -> String {
        pointer(&self.path)
    }

    /// It as an operation of a JSON Patch (RFC 6902).
    #[must_use]
    pub fn operation(&self) -> Value {
        let path = self.pointer();
        match &self.change {
            Change::Add(fragment) => json!({"op": "add", "path": path, "value": fragment.value}),
            Change::Replace(fragment) => json!({"op": "replace", "path": path, "value": fragment.value}),
            Change::Remove => json!({"op": "remove", "path": path}),
        }
    }
}

/// A path as a JSON Pointer (RFC 6901).
pub(crate) fn pointer(path: &[String]) -> String {
    path.iter().map(|part| format!("/{}", part.replace('~', "~0").replace('/', "~1"))).collect()
}

fn owned<P: AsRef<str>>(path: &[P]) -> Vec<String> {
    path.iter().map(|part| part.as_ref().to_owned()).collect()
}
