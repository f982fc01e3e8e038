//! A JSON document as one flat list of nodes: 16 bytes a node, at most one node for each two bytes of text.
//!
//! A tree of maps would take up to a hundred times the text. Nesting is limited to 128 by the parser. Numbers are exact: integers up
//! to 64 bits as they are, others as the nearest double. A repeated key keeps all its values; the last one counts, as in most parsers.

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;
use std::fmt;

use super::element::Number;
use super::{DecodeError, events::MAX_DEPTH_REASON};

/// A node; containers are followed by what they contain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::shadow) enum Node {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    /// Bytes of the document's texts.
    Text {
        start: u32,
        len: u32,
    },
    /// `end` is the index of the first node behind it.
    Array {
        end: u32,
    },
    /// Its members are pairs: the key, which is a `Text`, and the value.
    Object {
        end: u32,
    },
}

/// A parsed document.
#[derive(Clone, Debug, Default)]
pub(in crate::shadow) struct Document {
    nodes: Vec<Node>,
    texts: String,
}

impl Document {
    /// Parses one document.
    ///
    /// # Errors
    ///
    /// The text is not JSON, or it is nested deeper than 128 values.
    pub(in crate::shadow) fn parse(text: &[u8]) -> Result<Self, DecodeError> {
        let mut document = Self::default();
        document.append(text)?;
        Ok(document)
    }

    /// Parses a document and appends its nodes. What was appended before a fault stays.
    pub(super) fn append(&mut self, text: &[u8]) -> Result<(), DecodeError> {
        if u32::try_from(self.nodes.len() + self.texts.len() + text.len()).is_err() {
            return Err(DecodeError::malformed("more than 4 GiB of JSON"));
        }
        let mut parser = serde_json::Deserializer::from_slice(text);
        let parsed = NodeSeed(self).deserialize(&mut parser).and_then(|()| parser.end());
        parsed.map_err(|error| match error.to_string() {
            reason if reason.starts_with("recursion limit") => DecodeError::malformed(MAX_DEPTH_REASON),
            reason => DecodeError::malformed(format!("not JSON: {reason}")),
        })
    }

    /// Removes all nodes, and keeps their memory.
    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.texts.clear();
    }

    /// Opens an array that ends where [`Self::close_array`] is called.
    pub(super) fn open_array(&mut self) -> usize {
        self.nodes.push(Node::Array { end: 0 });
        self.nodes.len() - 1
    }

    pub(super) fn close_array(&mut self, at: usize) {
        let end = self.end();
        self.nodes[at] = Node::Array { end };
    }

    /// The value of the whole document.
    pub(in crate::shadow) fn root(&self) -> Value<'_> {
        Value { document: self, at: 0 }
    }

    fn end(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    fn push_text(&mut self, text: &str) {
        let start = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push_str(text);
        self.nodes.push(Node::Text { start, len: u32::try_from(text.len()).unwrap_or(0) });
    }
}

/// A value of a document.
#[derive(Clone, Copy, Debug)]
pub(in crate::shadow) struct Value<'a> {
    document: &'a Document,
    at: usize,
}

impl<'a> Value<'a> {
    /// Its node; `null` for an empty document.
    pub(in super::super) fn node(self) -> Node {
        self.document.nodes.get(self.at).copied().unwrap_or(Node::Null)
    }

    /// The index of the first node behind it.
    fn end(self) -> usize {
        match self.node() {
            Node::Array { end } | Node::Object { end } => end as usize,
            _ => self.at + 1,
        }
    }

    /// The text, if it is one.
    pub(in super::super) fn text(self) -> Option<&'a str> {
        let Node::Text { start, len } = self.node() else { return None };
        self.document.texts.get(start as usize..start as usize + len as usize)
    }

    /// The number, if it is one.
    pub(in super::super) fn number(self) -> Option<Number> {
        match self.node() {
            Node::Unsigned(n) => Some(Number::Integer(n.into())),
            Node::Signed(n) => Some(Number::Integer(n.into())),
            Node::Float(n) => Some(Number::Float(n)),
            _ => None,
        }
    }

    /// The number as a count; `None` for another value.
    pub(in super::super) fn count(self) -> Option<u64> {
        if let Node::Unsigned(n) = self.node() { Some(n) } else { None }
    }

    /// The elements, if it is an array.
    pub(in super::super) fn elements(self) -> Option<impl Iterator<Item = Value<'a>> + Clone> {
        matches!(self.node(), Node::Array { .. }).then(|| self.inside())
    }

    /// The members, if it is an object.
    pub(in super::super) fn members(self) -> Option<impl Iterator<Item = (&'a str, Value<'a>)> + Clone> {
        let pairs = Pairs(self.inside());
        matches!(self.node(), Node::Object { .. }).then_some(pairs)
    }

    /// The member of this name; the last one, if there are several.
    pub(in super::super) fn get(self, key: &str) -> Option<Self> {
        self.members()?.filter(|(own, _)| *own == key).last().map(|(_, value)| value)
    }

    /// The text of the member of this name.
    pub(in super::super) fn get_text(self, key: &str) -> Option<&'a str> {
        self.get(key)?.text()
    }

    fn inside(self) -> Inside<'a> {
        Inside { document: self.document, at: self.at + 1, end: self.end() }
    }
}

/// The values in a container, one after another.
#[derive(Clone, Debug)]
struct Inside<'a> {
    document: &'a Document,
    at: usize,
    end: usize,
}

impl<'a> Iterator for Inside<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        let value = Value { document: self.document, at: self.at };
        (self.at < self.end).then(|| {
            self.at = value.end();
            value
        })
    }
}

/// The members of an object.
#[derive(Clone, Debug)]
struct Pairs<'a>(Inside<'a>);

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a str, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?.text().unwrap_or_default(), self.0.next()?))
    }
}

/// The members of an object by key, of equal keys the last one.
pub(in super::super) fn sorted_members<'a>(
    members: impl Iterator<Item = (&'a str, Value<'a>)>,
) -> SmallVec<[(&'a str, Value<'a>); 16]> {
    let mut sorted: SmallVec<[_; 16]> = members.collect();
    sorted.sort_by_key(|(key, _)| *key);
    sorted.reverse();
    sorted.dedup_by_key(|(key, _)| *key);
    sorted.reverse();
    sorted
}

/// Appends a value to a document.
struct NodeSeed<'d>(&'d mut Document);

impl<'de> DeserializeSeed<'de> for NodeSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NodeSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.nodes.push(Node::Null);
        Ok(())
    }

    fn visit_bool<E>(self, is_true: bool) -> Result<(), E> {
        self.0.nodes.push(Node::Bool(is_true));
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.0.nodes.push(Node::Unsigned(number));
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.0.nodes.push(Node::Signed(number));
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.0.nodes.push(Node::Float(number));
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.push_text(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let at = self.0.open_array();
        while elements.next_element_seed(NodeSeed(self.0))?.is_some() {}
        self.0.close_array(at);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let at = self.0.nodes.len();
        self.0.nodes.push(Node::Object { end: 0 });
        while members.next_key_seed(NodeSeed(self.0))?.is_some() {
            if !matches!(self.0.nodes.last(), Some(Node::Text { .. })) {
                return Err(A::Error::custom("a key is not a text"));
            }
            members.next_value_seed(NodeSeed(self.0))?;
        }
        let end = self.0.end();
        self.0.nodes[at] = Node::Object { end };
        Ok(())
    }
}
