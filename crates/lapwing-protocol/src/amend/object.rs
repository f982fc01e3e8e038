//! A JSON object with the positions of its members in its text. Positions are bytes from the start of that text.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The most members an object may have. No known request or response has more, and they would only take memory.
const MAX_MEMBERS: usize = 256;

/// An object's text and its members, in order.
#[derive(Debug)]
pub(crate) struct Object<'t> {
    text: &'t str,
    members: Vec<Member<'t>>,
}

/// A member: its name without escapes, and the text of its value.
#[derive(Debug)]
struct Member<'t> {
    name: Cow<'t, str>,
    value: &'t str,
}

/// The result of looking for a member by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberLookup {
    /// No such member.
    No,
    /// One: its index in the object.
    At(usize),
    /// Several: readers do not agree on which one counts.
    Often,
}

impl<'t> Object<'t> {
    /// Reads `text`; `None` if it is not an object or has too many members.
    pub(crate) fn read(text: &'t str) -> Option<Self> {
        let Members(members) = serde_json::from_str(text).ok()?;
        Some(Self { text, members })
    }

    /// Finds the member of that name.
    pub(crate) fn find(&self, name: &str) -> MemberLookup {
        let mut found = self.members.iter().enumerate().filter(|(_, member)| member.name == name);
        match (found.next(), found.next()) {
            (None, _) => MemberLookup::No,
            (Some((at, _)), None) => MemberLookup::At(at),
            (Some(_), Some(_)) => MemberLookup::Often,
        }
    }

    /// The text of the value of the member of that name, if there is exactly one.
    pub(crate) fn value(&self, name: &str) -> Option<&'t str> {
        match self.find(name) {
            MemberLookup::At(at) => Some(self.members.get(at)?.value),
            _ => None,
        }
    }

    /// Whether there are no members.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The position of the value of the member at `at`.
    pub(crate) fn span(&self, at: usize) -> Option<Range<usize>> {
        Some(within(self.text, self.members.get(at)?.value))
    }

    /// The position after the opening brace.
    pub(crate) fn inside(&self) -> usize {
        self.text.find('{').map_or(0, |at| at + 1)
    }

    /// The range to cut to remove the member at `at`, so that the rest reads as if it had never been there.
    pub(crate) fn cut(&self, at: usize) -> Option<Range<usize>> {
        let own = self.span(at)?;
        if let Some(before) = at.checked_sub(1) {
            return Some(self.span(before)?.end..own.end); // the comma is cut with the member after it
        }
        let start = self.skip_space(self.inside());
        if self.members.len() == 1 {
            return Some(start..own.end);
        }
        let comma = self.skip_space(own.end);
        Some(start..self.skip_space(comma + 1))
    }

    fn skip_space(&self, from: usize) -> usize {
        let rest = self.text.get(from..).unwrap_or_default();
        from + rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len()
    }
}

/// The position of `part` in `whole`, of which it is a slice.
pub(crate) fn within(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr().saturating_sub(whole.as_ptr().addr());
    start..start + part.len()
}

struct Members<'t>(Vec<Member<'t>>);

#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Name<'t>(#[serde(borrow)] Cow<'t, str>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(16);
        while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
            if members.len() == MAX_MEMBERS {
                return Err(A::Error::custom("too many members"));
            }
            members.push(Member { name, value: value.get() });
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(text: &str, name: &str) -> String {
        let object = Object::read(text).unwrap();
        let MemberLookup::At(at) = object.find(name) else { panic!("{text}") };
        let mut text = text.to_owned();
        text.replace_range(object.cut(at).unwrap(), "");
        text
    }

    #[test]
    fn what_is_cut_leaves_what_would_have_been_written_without_it() {
        assert_eq!(without(r#"{"a":1,"b":2,"c":3}"#, "a"), r#"{"b":2,"c":3}"#);
        assert_eq!(without(r#"{"a":1,"b":2,"c":3}"#, "b"), r#"{"a":1,"c":3}"#);
        assert_eq!(without(r#"{"a":1,"b":2,"c":3}"#, "c"), r#"{"a":1,"b":2}"#);
        assert_eq!(without(r#"{"a": 1, "b": {"a": [1, 2]}}"#, "a"), r#"{"b": {"a": [1, 2]}}"#);
        assert_eq!(without(r#"{"a": 1, "b": {"a": [1, 2]}}"#, "b"), r#"{"a": 1}"#);
        assert_eq!(without("{\n  \"a\": 1,\n  \"b\": 2\n}", "a"), "{\n  \"b\": 2\n}");
        assert_eq!(without("{\n  \"a\": 1,\n  \"b\": 2\n}", "b"), "{\n  \"a\": 1\n}");
        assert_eq!(without(r#" {"a" : "}," } "#, "a"), " { } ");
        assert_eq!(without(r#"{"\u0061":1,"b":2}"#, "a"), r#"{"b":2}"#);
    }

    #[test]
    fn what_is_no_object_or_too_large_a_one_is_none() {
        for text in ["", "[]", "{", "{}x", "null", "{\"a\":1,}", "{\"a\" 1}", "{\"a\":\u{1}}"] {
            assert!(Object::read(text).is_none(), "{text}");
        }
        let many = |n: usize| format!("{{{}}}", vec!["\"a\":1"; n].join(","));
        assert!(Object::read(&many(MAX_MEMBERS)).is_some_and(|object| object.find("a") == MemberLookup::Often));
        assert!(Object::read(&many(MAX_MEMBERS + 1)).is_none());
        assert!(Object::read("{}").is_some_and(|object| object.is_empty() && object.find("a") == MemberLookup::No));
    }
}
