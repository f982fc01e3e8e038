//! A JSON document as one flat list of nodes: 16 bytes a node, at most one node for each two bytes of text.
//!
//! A tree of maps would take up to a hundred times the text. Nesting is limited to 128 by the parser (`lenient`). Numbers are exact:
//! integers up to 64 bits as they are, others as the nearest double. A repeated key keeps all its values; the last one counts, as in
//! most parsers.

use smallvec::SmallVec;

use super::element::Number;

/// A node; containers are followed by what they contain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Node {
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
    /// `end` is the index of the first node after it.
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
pub struct Document {
    nodes: Vec<Node>,
    texts: String,
}

impl Document {
    /// Removes all nodes, and keeps their memory.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.texts.clear();
    }

    /// Opens an array that ends where [`Self::close_array`] is called.
    pub(crate) fn open_array(&mut self) -> usize {
        self.nodes.push(Node::Array { end: 0 });
        self.nodes.len() - 1
    }

    pub(crate) fn close_array(&mut self, at: usize) {
        let end = self.end();
        self.nodes[at] = Node::Array { end };
    }

    /// The value of the whole document.
    pub fn root(&self) -> DocumentValue<'_> {
        DocumentValue { document: self, at: 0 }
    }

    fn end(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn push(&mut self, node: Node) {
        self.nodes.push(node);
    }

    /// Whether `bytes` more of text could pass what indices of 32 bits reach.
    pub(crate) fn would_overflow(&self, bytes: usize) -> bool {
        u32::try_from(self.nodes.len() + self.texts.len() + bytes).is_err()
    }

    /// The number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Opens an object that ends where [`Self::close_object`] is called.
    pub(crate) fn open_object(&mut self) -> usize {
        self.nodes.push(Node::Object { end: 0 });
        self.nodes.len() - 1
    }

    pub(crate) fn close_object(&mut self, at: usize) {
        let end = self.end();
        self.nodes[at] = Node::Object { end };
    }

    /// Makes everything from the node at `at` on the elements of an array.
    pub(crate) fn wrap(&mut self, at: usize) {
        for node in &mut self.nodes[at..] {
            if let Node::Array { end } | Node::Object { end } = node {
                *end += 1;
            }
        }
        self.nodes.insert(at, Node::Array { end: 0 });
        self.close_array(at);
    }

    /// Appends a text that `write` adds piece by piece.
    pub(crate) fn push_text<E>(&mut self, write: impl FnOnce(&mut String) -> Result<(), E>) -> Result<(), E> {
        let start = self.texts.len();
        write(&mut self.texts)?;
        let len = u32::try_from(self.texts.len() - start).unwrap_or(0);
        self.nodes.push(Node::Text { start: u32::try_from(start).unwrap_or(u32::MAX), len });
        Ok(())
    }
}

/// A value of a document.
#[derive(Clone, Copy, Debug)]
pub struct DocumentValue<'a> {
    document: &'a Document,
    at: usize,
}

impl<'a> DocumentValue<'a> {
    /// Its node; `null` for an empty document.
    pub(crate) fn node(self) -> Node {
        self.document.nodes.get(self.at).copied().unwrap_or(Node::Null)
    }

    /// The index of the first node after it.
    fn end(self) -> usize {
        match self.node() {
            Node::Array { end } | Node::Object { end } => end as usize,
            _ => self.at + 1,
        }
    }

    /// The text, if it is one.
    pub(crate) fn text(self) -> Option<&'a str> {
        let Node::Text { start, len } = self.node() else { return None };
        self.document.texts.get(start as usize..start as usize + len as usize)
    }

    /// The number, if it is one.
    pub(crate) fn number(self) -> Option<Number> {
        match self.node() {
            Node::Unsigned(n) => Some(Number::Integer(n.into())),
            Node::Signed(n) => Some(Number::Integer(n.into())),
            Node::Float(n) => Some(Number::Float(n)),
            _ => None,
        }
    }

    /// The number as a count; `None` for another value.
    pub(crate) fn count(self) -> Option<u64> {
        if let Node::Unsigned(n) = self.node() { Some(n) } else { None }
    }

    /// The elements, if it is an array.
    pub(crate) fn elements(self) -> Option<impl Iterator<Item = DocumentValue<'a>> + Clone> {
        matches!(self.node(), Node::Array { .. }).then(|| self.inside())
    }

    /// The members, if it is an object.
    pub(crate) fn members(self) -> Option<impl Iterator<Item = (&'a str, DocumentValue<'a>)> + Clone> {
        let pairs = Pairs(self.inside());
        matches!(self.node(), Node::Object { .. }).then_some(pairs)
    }

    /// The member of this name; the last one, if there are several.
    pub(crate) fn get(self, key: &str) -> Option<Self> {
        self.members()?.filter(|(own, _)| *own == key).last().map(|(_, value)| value)
    }

    /// The text of the member of this name.
    pub(crate) fn get_text(self, key: &str) -> Option<&'a str> {
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
    type Item = DocumentValue<'a>;

    fn next(&mut self) -> Option<DocumentValue<'a>> {
        let value = DocumentValue { document: self.document, at: self.at };
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
    type Item = (&'a str, DocumentValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?.text().unwrap_or_default(), self.0.next()?))
    }
}

/// The members of an object by key, of equal keys the last one.
pub(crate) fn sorted_members<'a>(
    members: impl Iterator<Item = (&'a str, DocumentValue<'a>)>,
) -> SmallVec<[(&'a str, DocumentValue<'a>); 16]> {
    let mut sorted: SmallVec<[_; 16]> = members.collect();
    sorted.sort_by_key(|(key, _)| *key);
    sorted.reverse();
    sorted.dedup_by_key(|(key, _)| *key);
    sorted.reverse();
    sorted
}
