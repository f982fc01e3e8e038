//! The changes of one object while they are collected, with what undoes them.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use crate::manifest::{Edit, ManifestError, pointer};
use crate::pod::Object;
use crate::record::{INJECTED, Record};

/// Changes of one object.
pub(crate) struct Changes<'a> {
    object: &'a Object<'a>,
    edits: Vec<Edit>,
    record: Record,
}

/// A mapping with its keys in their order.
struct Ordered<T>(Vec<(String, T)>);

impl<T: Serialize> Serialize for Ordered<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'a> Changes<'a> {
    pub(crate) fn of(object: &'a Object<'a>, way: &str) -> Self {
        let record = Record { version: env!("CARGO_PKG_VERSION").to_owned(), way: way.to_owned(), ..Record::default() };
        Self { object, edits: Vec::new(), record }
    }

    /// The sidecar sees the node's GPUs.
    pub(crate) fn note_gpu(&mut self) {
        self.record.gpu = true;
    }

    /// The value at a path of the object.
    fn at(&self, path: &[String]) -> Option<&'a Value> {
        path.iter().try_fold(self.object.value, |value, part| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            _ => value.get(part),
        })
    }

    fn below(&self, path: &[String]) -> Vec<String> {
        self.object.path.iter().chain(path).cloned().collect()
    }

    /// A path with its items by their names.
    fn named(&self, path: &[String]) -> String {
        let mut made = Vec::new();
        for (depth, part) in path.iter().enumerate() {
            let is_item = self.at(&path[..depth]).is_some_and(Value::is_array);
            let name = self.at(&path[..=depth]).and_then(|item| item.get("name")).and_then(Value::as_str).filter(|_| is_item);
            made.push(name.map_or_else(|| part.clone(), str::to_owned));
        }
        pointer(&made)
    }

    pub(crate) fn replace(&mut self, path: &[String], value: &impl Serialize) -> Result<(), ManifestError> {
        let was = self.at(path).cloned().unwrap_or_default();
        self.record.was.insert(self.named(path), was);
        self.edits.push(Edit::replace(&self.below(path), value)?);
        Ok(())
    }

    /// A key of a mapping, whether it is there or not.
    pub(crate) fn set(&mut self, mapping: &[String], key: &str, value: &impl Serialize) -> Result<(), ManifestError> {
        let path: Vec<String> = mapping.iter().cloned().chain([key.to_owned()]).collect();
        if self.at(&path).is_some() {
            return self.replace(&path, value);
        }
        self.record.added.push(format!("{}{}", self.named(mapping), pointer(&[key.to_owned()])));
        self.edits.push(Edit::add(&self.below(&path), value)?);
        Ok(())
    }

    /// Whether nothing is there, or a list or mapping without anything in it.
    fn is_without(&self, path: &[String]) -> bool {
        self.at(path).is_none_or(|value| match value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        })
    }

    /// That a list or mapping is made where none is, or an empty one.
    fn note_made(&mut self, path: &[String]) {
        let place = self.named(path);
        if let Some(was) = self.at(path) {
            self.record.was.insert(place.clone(), was.clone());
        }
        self.record.made.push(place);
    }

    /// A value where none is, or an empty one.
    fn put(&self, path: &[String], value: &impl Serialize) -> Result<Edit, ManifestError> {
        let place = self.below(path);
        if self.at(path).is_some() { Edit::replace(&place, value) } else { Edit::add(&place, value) }
    }

    /// Items behind the last of a list, each with its name; the list is made if it is not there.
    pub(crate) fn items<T: Serialize>(&mut self, list: &[String], items: Vec<(String, T)>) -> Result<(), ManifestError> {
        if items.is_empty() {
            return Ok(());
        }
        let place = self.named(list);
        self.record.added.extend(items.iter().map(|(name, _)| format!("{place}{}", pointer(std::slice::from_ref(name)))));
        let items: Vec<T> = items.into_iter().map(|(_, item)| item).collect();
        if self.is_without(list) {
            self.note_made(list);
            self.edits.push(self.put(list, &items)?);
            return Ok(());
        }
        for item in &items {
            let path: Vec<String> = self.below(list).into_iter().chain(["-".to_owned()]).collect();
            self.edits.push(Edit::add(&path, item)?);
        }
        Ok(())
    }

    /// The annotations of a pod or object, with the record as the last; what is not there before is made.
    pub(crate) fn annotated(mut self, metadata: &[String], annotations: Vec<(&str, String)>) -> Result<Vec<Edit>, ManifestError> {
        let path: Vec<String> = metadata.iter().cloned().chain(["annotations".to_owned()]).collect();
        let own = annotations.iter().map(|(key, _)| *key).chain([INJECTED]);
        let added: Vec<String> = own.map(|key| pointer(&[&path[..], &[key.to_owned()]].concat())).collect();
        self.record.added.extend(added);
        let is_new = self.is_without(&path);
        let has_metadata = !self.is_without(metadata);
        // the record says what is made for it too
        if is_new {
            self.note_made(&path);
        }
        if !has_metadata {
            self.note_made(metadata);
        }
        let record = serde_json::to_string(&self.record).map_err(|error| ManifestError::NotWritten(error.to_string()))?;
        let mut all: Vec<(String, String)> = annotations.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        all.push((INJECTED.to_owned(), record));
        if !has_metadata {
            self.edits.push(self.put(metadata, &Ordered(vec![("annotations".to_owned(), Ordered(all))]))?);
        } else if is_new {
            self.edits.push(self.put(&path, &Ordered(all))?);
        } else {
            for (key, value) in all {
                let path: Vec<String> = self.below(&path).into_iter().chain([key]).collect();
                self.edits.push(Edit::add(&path, &value)?);
            }
        }
        Ok(self.edits)
    }
}
