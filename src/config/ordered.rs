//! Values in the order of the fields they came from, which `serde_json`'s own tree does not keep.

use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;

use super::path::Path;

/// A tree of values.
#[derive(Debug)]
pub(crate) enum Ordered {
    Section(Vec<(String, Ordered)>),
    List(Vec<Ordered>),
    Leaf(Json),
}

impl Ordered {
    /// The tree of `value`, by way of its JSON text.
    pub(crate) fn of(value: &impl Serialize) -> Self {
        let text = serde_json::to_string(value).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or(Self::Section(Vec::new()))
    }

    /// Calls `each` with every value that has no parts; an empty section or list is such a value.
    pub(crate) fn leaves(&self, path: &Path, each: &mut impl FnMut(&Path)) {
        match self {
            Self::Section(section) if !section.is_empty() => {
                section.iter().for_each(|(key, value)| value.leaves(&path.key(key), each));
            }
            Self::List(list) if !list.is_empty() => {
                list.iter().enumerate().for_each(|(index, value)| value.leaves(&path.index(index), each));
            }
            _ => each(path),
        }
    }
}

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Tree)
    }
}

struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = Ordered;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
        let mut section = Vec::new();
        while let Some(entry) = map.next_entry()? {
            section.push(entry);
        }
        Ok(Ordered::Section(section))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Ordered, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = seq.next_element()? {
            list.push(element);
        }
        Ok(Ordered::List(list))
    }

    fn visit_str<E>(self, text: &str) -> Result<Ordered, E> {
        Ok(Ordered::Leaf(text.into()))
    }

    fn visit_bool<E>(self, is_true: bool) -> Result<Ordered, E> {
        Ok(Ordered::Leaf(is_true.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Ordered, E> {
        Ok(Ordered::Leaf(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Ordered, E> {
        Ok(Ordered::Leaf(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Ordered, E> {
        Ok(Ordered::Leaf(number.into()))
    }

    fn visit_unit<E>(self) -> Result<Ordered, E> {
        Ok(Ordered::Leaf(Json::Null))
    }
}
