//! The paths watched in a JSON document, compiled once to a tree of keys and elements and shared by readers. A value has exactly
//! one node, even if several patterns with `*`, `[]`, a name or an index match it, so that a reader follows one node and never a
//! set.

use std::collections::BTreeMap;

/// The deepest nesting of containers; deeper ones are not read.
pub const DEPTH: usize = 64;

pub(crate) type Node = u32;
/// Nothing is watched here or below.
pub(crate) const NOWHERE: Node = Node::MAX;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    /// The value of this key of an object.
    Key(String),
    /// The value of any key.
    AnyKey,
    /// Any element of an array.
    Element,
    /// The element at this index, from 0.
    Index(u64),
}

impl PathStep {
    /// The steps of a pattern: keys joined by dots, `*` for any key, `[]` for any element, `[0]` for the first.
    ///
    /// Examples are `model`, `inputs[].shape[]`, `choices[0].delta.content`, `outputs.*`, `[].x`, and the empty pattern,
    /// which is the document itself. Keys that hold a dot or brackets can only be built as steps.
    #[must_use]
    pub fn parse(pattern: &str) -> Vec<Self> {
        let mut steps = Vec::new();
        for part in pattern.split('.').filter(|part| !part.is_empty()) {
            let (key, mut rest) = part.split_at(part.find('[').unwrap_or(part.len()));
            match key {
                "" => {}
                "*" => steps.push(Self::AnyKey),
                key => steps.push(Self::Key(key.to_owned())),
            }
            while let Some((index, after)) = rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
                debug_assert!(index.is_empty() || index.parse::<u64>().is_ok(), "{pattern}: {index} is no index");
                steps.push(index.parse().map_or(Self::Element, Self::Index));
                rest = after;
            }
            debug_assert!(rest.is_empty(), "{pattern}: {rest} is behind the brackets");
        }
        steps
    }
}

/// How a watched path that is any element of an array is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementMode {
    /// Each element is returned.
    Each,
    /// Numbers are not returned one by one but counted, as [`JsonValue::Numbers`](super::JsonValue::Numbers).
    Counted,
    /// Only the first so many are returned; the others count in the array's length only.
    First(u64),
}

/// The watched paths of a document, each with a tag that is returned with its values.
#[derive(Clone, Debug)]
pub struct JsonPaths<T> {
    nodes: Vec<Place<T>>,
    depth: usize,
}

#[derive(Clone, Debug)]
struct Place<T> {
    tag: Option<T>,
    keys: Vec<(Box<[u8]>, Node)>,
    /// The lengths of the keys, modulo 64, a bit each: most keys of a document are of no watched length.
    key_lengths: u64,
    any_key: Node,
    /// By index, ascending.
    indices: Vec<(u64, Node)>,
    element: Node,
    /// How many elements are read.
    limit: u64,
    /// Whether it is an element whose numbers are only counted.
    counts_numbers: bool,
}

impl<T: Copy> JsonPaths<T> {
    /// Compiles patterns (see [`PathStep::parse`]). A value has one tag. If several patterns match the same value, the one that
    /// names the last step wins, or else the step before, and so on; among equal patterns the last one wins.
    #[must_use]
    pub fn new<'p>(patterns: impl IntoIterator<Item = (&'p str, T)>) -> Self {
        Self::from_steps(patterns.into_iter().map(|(pattern, tag)| (PathStep::parse(pattern), tag)))
    }

    /// Compiles patterns given as steps. A pattern of more than [`DEPTH`] steps never matches and is left out.
    #[must_use]
    pub fn from_steps(patterns: impl IntoIterator<Item = (Vec<PathStep>, T)>) -> Self {
        let mut root = Tree::default();
        let mut depth = 0;
        for (steps, tag) in patterns {
            if steps.len() > DEPTH {
                continue;
            }
            depth = depth.max(steps.len());
            let place = steps.iter().fold(&mut root, Tree::child);
            debug_assert!(place.tag.is_none(), "a pattern is watched twice: {steps:?}");
            place.tag = Some(tag);
        }
        root.fall_through();
        let mut nodes = Vec::new();
        root.flatten(&mut nodes);
        Self { nodes, depth }
    }

    /// The same paths, with those that are any element of an array read as `how` returns. Numbers that are not watched are
    /// skipped like counted ones.
    #[must_use]
    pub fn with_elements(mut self, how: impl Fn(T) -> ElementMode) -> Self {
        for array in 0..self.nodes.len() {
            let Place { element, ref indices, .. } = self.nodes[array];
            // if single elements are watched, each must be distinguished from the others
            let is_single = !indices.is_empty();
            let Some(place) = self.nodes.get_mut(element as usize).filter(|_| !is_single) else { continue };
            match place.tag.map_or(ElementMode::Counted, &how) {
                ElementMode::Each => {}
                ElementMode::Counted => place.counts_numbers = true,
                ElementMode::First(limit) => self.nodes[array].limit = limit,
            }
        }
        self
    }

    /// The number of steps of the longest pattern, which is also the most open containers whose content is read.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    fn place(&self, node: Node) -> Option<&Place<T>> {
        self.nodes.get(node as usize)
    }

    /// The tag of the value of this key of the document itself.
    #[must_use]
    pub fn of_key(&self, key: &[u8]) -> Option<T> {
        self.tag(self.key(0, key))
    }

    /// The tag of a watched place.
    pub(crate) fn tag(&self, node: Node) -> Option<T> {
        self.place(node)?.tag
    }

    /// Whether keys of an object at this node lead anywhere.
    pub(crate) fn looks_into_object(&self, node: Node) -> bool {
        self.place(node).is_some_and(|p| p.any_key != NOWHERE || !p.keys.is_empty())
    }

    /// Whether elements of an array at this node lead anywhere, from this index on.
    pub(crate) fn looks_into_array(&self, node: Node, from: u64) -> bool {
        self.place(node)
            .is_some_and(|p| p.element != NOWHERE && from < p.limit || p.indices.last().is_some_and(|(last, _)| *last >= from))
    }

    /// Whether numbers at this node, an element of an array, are only counted.
    pub(crate) fn counts_numbers(&self, node: Node) -> bool {
        self.place(node).is_some_and(|p| p.counts_numbers)
    }

    pub(crate) fn key(&self, node: Node, key: &[u8]) -> Node {
        let Some(place) = self.place(node) else { return NOWHERE };
        if place.key_lengths & length_bit(key.len()) == 0 {
            return place.any_key;
        }
        place.keys.iter().find(|(k, _)| k.first() == key.first() && **k == *key).map_or(place.any_key, |(_, child)| *child)
    }

    pub(crate) fn element(&self, node: Node, index: u64) -> Node {
        let Some(place) = self.place(node) else { return NOWHERE };
        place.indices.iter().find(|(i, _)| *i == index).map_or(place.element, |(_, child)| *child)
    }
}

const fn length_bit(length: usize) -> u64 {
    1 << (length % 64)
}

/// The tree while patterns are being added.
#[derive(Clone, Debug)]
struct Tree<T> {
    tag: Option<T>,
    keys: BTreeMap<String, Tree<T>>,
    any_key: Option<Box<Tree<T>>>,
    indices: BTreeMap<u64, Tree<T>>,
    element: Option<Box<Tree<T>>>,
}

impl<T> Default for Tree<T> {
    fn default() -> Self {
        Self { tag: None, keys: BTreeMap::new(), any_key: None, indices: BTreeMap::new(), element: None }
    }
}

impl<T: Copy> Tree<T> {
    fn child(&mut self, step: &PathStep) -> &mut Self {
        match step {
            PathStep::Key(key) => self.keys.entry(key.clone()).or_default(),
            PathStep::AnyKey => self.any_key.get_or_insert_default(),
            PathStep::Element => self.element.get_or_insert_default(),
            PathStep::Index(index) => self.indices.entry(*index).or_default(),
        }
    }

    /// Patterns for any key also apply to a named key, unless a pattern for the named key overrides them; likewise for elements.
    fn fall_through(&mut self) {
        if let Some(any) = &self.any_key {
            self.keys.values_mut().for_each(|named| named.adopt(any));
        }
        if let Some(any) = &self.element {
            self.indices.values_mut().for_each(|named| named.adopt(any));
        }
        self.keys.values_mut().chain(self.indices.values_mut()).for_each(Self::fall_through);
        self.any_key.iter_mut().chain(&mut self.element).for_each(|any| any.fall_through());
    }

    fn adopt(&mut self, other: &Self) {
        self.tag = self.tag.or(other.tag);
        for (key, theirs) in &other.keys {
            self.keys.entry(key.clone()).or_default().adopt(theirs);
        }
        for (index, theirs) in &other.indices {
            self.indices.entry(*index).or_default().adopt(theirs);
        }
        if let Some(theirs) = &other.any_key {
            self.any_key.get_or_insert_default().adopt(theirs);
        }
        if let Some(theirs) = &other.element {
            self.element.get_or_insert_default().adopt(theirs);
        }
    }

    fn flatten(&self, nodes: &mut Vec<Place<T>>) -> Node {
        let own = nodes.len();
        let place = Place {
            tag: self.tag,
            keys: Vec::new(),
            key_lengths: self.keys.keys().fold(0, |all, key| all | length_bit(key.len())),
            any_key: NOWHERE,
            indices: Vec::new(),
            element: NOWHERE,
            limit: u64::MAX,
            counts_numbers: false,
        };
        nodes.push(place);
        let keys = self.keys.iter().map(|(k, child)| (k.as_bytes().into(), child.flatten(nodes))).collect();
        let indices = self.indices.iter().map(|(i, child)| (*i, child.flatten(nodes))).collect();
        let any_key = self.any_key.as_ref().map_or(NOWHERE, |any| any.flatten(nodes));
        let element = self.element.as_ref().map_or(NOWHERE, |any| any.flatten(nodes));
        let place = &mut nodes[own];
        (place.keys, place.any_key, place.indices, place.element) = (keys, any_key, indices, element);
        Node::try_from(own).unwrap_or(NOWHERE)
    }
}
