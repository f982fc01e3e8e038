//! The fields watched in a protobuf message, compiled once to a tree of field numbers and shared by readers.

/// The deepest nesting of messages; deeper ones are not watched.
pub const DEPTH: usize = 64;

/// A message with watched fields: its index in the tree.
pub(crate) type Node = u32;
pub(crate) const ROOT: Node = 0;

/// How a watched field is read. A field with another wire type is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtoShape {
    /// An integer, boolean or enum, once or repeated, packed or not; each value is returned by itself.
    Varint,
    /// The same; documents that the schema packs it.
    PackedVarints,
    /// Four bytes (`fixed32`, `sfixed32`, `float`), once or repeated, packed or not.
    Fixed32,
    /// Eight bytes (`fixed64`, `sfixed64`), once or repeated, packed or not.
    Fixed64,
    /// A `double`, once or repeated, packed or not.
    Double,
    /// A string or bytes, or a message of which only the length is wanted and no field is watched.
    Text,
    /// A message, returned at its end. Its fields may be watched as well.
    Message,
}

/// Watched fields of a message, each with a tag that is returned with its values.
#[derive(Clone, Debug)]
pub struct ProtoFields<T> {
    nodes: Vec<Vec<Field<T>>>,
    depth: usize,
}

/// One field of one message of the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<T> {
    number: u32,
    pub(crate) watched: Option<(T, ProtoShape)>,
    /// The message's own fields, if any of them is watched.
    pub(crate) inside: Option<Node>,
}

impl<T: Copy> ProtoFields<T> {
    /// Compiles patterns, each a path of field numbers: `[5, 3]` is field 3 of the message in field 5. The entries of a map are
    /// messages with the fields 1 (key) and 2 (value). Among equal patterns the last one wins. An empty pattern, and one of more
    /// than [`DEPTH`] numbers, never matches and is left out.
    #[must_use]
    pub fn new<'p>(patterns: impl IntoIterator<Item = (&'p [u32], T, ProtoShape)>) -> Self {
        let mut fields = Self { nodes: vec![Vec::new()], depth: 0 };
        for (numbers, tag, shape) in patterns {
            let Some((last, way)) = numbers.split_last().filter(|_| numbers.len() <= DEPTH) else { continue };
            fields.depth = fields.depth.max(numbers.len());
            let node = way.iter().fold(ROOT as usize, |node, number| fields.inside(node, *number));
            let field = fields.field(node, *last);
            debug_assert!(field.watched.is_none(), "a field is watched twice: {numbers:?}");
            field.watched = Some((tag, shape));
        }
        fields
    }

    fn field(&mut self, node: usize, number: u32) -> &mut Field<T> {
        let fields = &mut self.nodes[node];
        let at = fields.iter().position(|f| f.number == number).unwrap_or_else(|| {
            fields.push(Field { number, watched: None, inside: None });
            fields.len() - 1
        });
        &mut fields[at]
    }

    fn inside(&mut self, node: usize, number: u32) -> usize {
        let next = self.nodes.len();
        let inside = *self.field(node, number).inside.get_or_insert(next as Node);
        if inside as usize == next {
            self.nodes.push(Vec::new());
        }
        inside as usize
    }

    /// The number of field numbers in the longest pattern, which is also the most open messages whose fields are read.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn get(&self, node: Node, number: u32) -> Option<Field<T>> {
        self.nodes.get(node as usize)?.iter().find(|f| f.number == number).copied()
    }
}
