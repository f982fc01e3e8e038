//! A JSON document as its text: where values stand in it, and what may be put beside them. Nothing is written anew.
//!
//! Objects and lists are scanned without a tree: a value that is looked for is a piece of the text.

use std::fmt;

use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Deserializer;
use serde_json::value::RawValue;

use crate::passed::HydratePassed;
use crate::place::{JsonPlace, JsonStep};

/// The most elements of a list that is read element by element.
pub(crate) const MAX_ELEMENTS: usize = 1_024;
/// How deep lists of lists may be, of the elements of a tensor.
const MAX_RANK: usize = 8;

/// A whole JSON document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Document<'a> {
    text: &'a str,
    root: &'a RawValue,
}

/// Where something may be put into a document, and whether something stands before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) at: usize,
    pub(crate) is_first: bool,
}

impl<'a> Document<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, HydratePassed> {
        let text = std::str::from_utf8(body).map_err(|_| HydratePassed::Format)?;
        let root = serde_json::from_str(text).map_err(|_| HydratePassed::Format)?;
        Ok(Self { text, root })
    }

    pub(crate) const fn root(&self) -> &'a RawValue {
        self.root
    }

    /// After which byte of the text `value`, a piece of it, ends.
    fn end(&self, value: &RawValue) -> usize {
        (value.get().as_ptr().addr() + value.get().len()).saturating_sub(self.text.as_ptr().addr())
    }

    /// The gap behind `last`, the last value in `container`, or where there is none, at its beginning.
    fn gap(&self, container: &RawValue, last: Option<&RawValue>) -> Gap {
        match last {
            Some(last) => Gap { at: self.end(last), is_first: false },
            None => Gap { at: self.end(container) - container.get().len() + 1, is_first: true },
        }
    }

    /// Where a member `name` may be put into `object`.
    ///
    /// # Errors
    ///
    /// If it has one, or is no object.
    pub(crate) fn gap_for_member(&self, object: &RawValue, name: &str) -> Result<Gap, HydratePassed> {
        let ([found], last) = members(object, [name])?;
        if found.is_some() {
            return Err(HydratePassed::Present);
        }
        Ok(self.gap(object, last))
    }

    /// Where an element may be put at the end of `list`, which has these elements.
    pub(crate) fn gap_for_element(&self, list: &RawValue, elements: &[&RawValue]) -> Gap {
        self.gap(list, elements.last().copied())
    }

    /// The values at `place`, one for each element if it has a `*`; otherwise one.
    ///
    /// # Errors
    ///
    /// If one of them is not there.
    pub(crate) fn at(&self, place: &JsonPlace) -> Result<Vec<&'a RawValue>, HydratePassed> {
        let found = walk(self.root, &place.to)?;
        match &place.in_each {
            None => Ok(vec![found]),
            Some(on) => elements(found)?.into_iter().map(|element| walk(element, on)).collect(),
        }
    }
}

/// Follows `steps` from `value` on.
fn walk<'a>(mut value: &'a RawValue, steps: &[JsonStep]) -> Result<&'a RawValue, HydratePassed> {
    for step in steps {
        let next = if value.get().starts_with('[') {
            step.parse().ok().and_then(|index: usize| elements(value).ok()?.get(index).copied())
        } else {
            let ([found], _) = members(value, [step])?;
            found
        };
        value = next.ok_or(HydratePassed::Entity)?;
    }
    Ok(value)
}

/// The members of `object` with these names, and the value of its last member.
///
/// # Errors
///
/// If it is no object, or has one of them twice: readers disagree on what that means.
pub(crate) fn members<'a, const N: usize>(
    object: &'a RawValue,
    names: [&str; N],
) -> Result<([Option<&'a RawValue>; N], Option<&'a RawValue>), HydratePassed> {
    struct Scan<'n, const N: usize>([&'n str; N]);

    impl<'de, const N: usize> Visitor<'de> for Scan<'_, N> {
        type Value = ([Option<&'de RawValue>; N], Option<&'de RawValue>);

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            let (mut found, mut last) = ([None; N], None);
            while let Some(name) = entries.next_key::<std::borrow::Cow<'_, str>>()? {
                let value: &RawValue = entries.next_value()?;
                last = Some(value);
                if let Some(at) = self.0.iter().position(|wanted| *wanted == name)
                    && found[at].replace(value).is_some()
                {
                    return Err(A::Error::custom("a member that is there twice"));
                }
            }
            Ok((found, last))
        }
    }

    Deserializer::from_str(object.get()).deserialize_map(Scan(names)).map_err(|_| HydratePassed::Format)
}

/// The elements of `list`.
///
/// # Errors
///
/// If it is no list, or has more than [`MAX_ELEMENTS`].
pub(crate) fn elements(list: &RawValue) -> Result<Vec<&RawValue>, HydratePassed> {
    struct Scan;

    impl<'de> Visitor<'de> for Scan {
        type Value = Option<Vec<&'de RawValue>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(value) = values.next_element()? {
                if all.len() == MAX_ELEMENTS {
                    while values.next_element::<IgnoredAny>()?.is_some() {}
                    return Ok(None);
                }
                all.push(value);
            }
            Ok(Some(all))
        }
    }

    let all = Deserializer::from_str(list.get()).deserialize_seq(Scan).map_err(|_| HydratePassed::Format)?;
    all.ok_or(HydratePassed::TooMany)
}

/// The elements of a list of lists, in order, however deep; of what is no list, itself.
pub(crate) fn scalars(value: &RawValue) -> Result<Vec<&RawValue>, HydratePassed> {
    fn add<'a>(value: &'a RawValue, depth: usize, all: &mut Vec<&'a RawValue>) -> Result<(), HydratePassed> {
        if !value.get().starts_with('[') {
            all.push(value);
            return if all.len() > MAX_ELEMENTS { Err(HydratePassed::TooMany) } else { Ok(()) };
        }
        if depth == MAX_RANK {
            return Err(HydratePassed::Entity);
        }
        elements(value)?.into_iter().try_for_each(|element| add(element, depth + 1, all))
    }
    let mut all = Vec::new();
    add(value, 0, &mut all)?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(document: &Document<'a>, pointer: &str) -> Result<Vec<&'a str>, HydratePassed> {
        document.at(&JsonPlace::parse(pointer).unwrap()).map(|all| all.into_iter().map(RawValue::get).collect())
    }

    #[test]
    fn values_are_pieces_of_the_text() {
        let text = r#" {"a" : [ {"b": 1.0e5} , {"b":"x","c":[[1],[2,3]]} ], "d\u0065": {}, "e/f": null } "#;
        let document = Document::read(text.as_bytes()).unwrap();
        assert_eq!(found(&document, "/a/*/b"), Ok(vec!["1.0e5", "\"x\""]));
        assert_eq!(found(&document, "/a/1/c/1/0"), Ok(vec!["2"]));
        assert_eq!((found(&document, "/de"), found(&document, "/e~1f")), (Ok(vec!["{}"]), Ok(vec!["null"])));
        for missing in ["/x", "/a/2", "/a/*/c", "/a/x"] {
            assert_eq!(found(&document, missing), Err(HydratePassed::Entity), "{missing}");
        }
        let gap = |object: &str, name: &str| {
            let document = Document::read(object.as_bytes()).unwrap();
            document.gap_for_member(document.root(), name).map(|gap| (object[gap.at..].to_owned(), gap.is_first))
        };
        assert_eq!(gap(r#" {"a":1 } "#, "b"), Ok((" } ".to_owned(), false)));
        assert_eq!(gap(r#"{ }"#, "b"), Ok((" }".to_owned(), true)));
        assert_eq!(gap(r#"{"\u0062":1}"#, "b"), Err(HydratePassed::Present));
        assert_eq!(gap(r#"[1]"#, "b"), Err(HydratePassed::Format));
    }

    #[test]
    fn what_readers_disagree_on_is_not_read() {
        for text in [r#"{"a":1,"a":2}"#, r#"{"a":1"#, r#"{"a":1} x"#, "\u{feff}{}", r#"{"a":01}"#] {
            let read = Document::read(text.as_bytes()).and_then(|document| found(&document, "/a").map(|_| ()));
            assert_eq!(read, Err(HydratePassed::Format), "{text}");
        }
        let long = format!("[{}0]", "0,".repeat(MAX_ELEMENTS));
        let document = Document::read(long.as_bytes()).unwrap();
        assert_eq!(scalars(document.root()).unwrap_err(), HydratePassed::TooMany);
        let deep = format!("{}1{}", "[".repeat(9), "]".repeat(9));
        assert_eq!(scalars(Document::read(deep.as_bytes()).unwrap().root()).unwrap_err(), HydratePassed::Entity);
    }
}
