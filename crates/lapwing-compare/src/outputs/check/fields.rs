//! The fields of a JSON document: paths without indices, so that all elements of an array share one.

use rustc_hash::FxHashMap;

use super::super::comparison::{DifferenceKind, FieldComparison, NumberComparison};
use super::super::config::Tolerance;
use super::super::paths::append_key;
use super::super::rules::FieldScales;
use super::hints::hint_of;
use super::numbers::{Allowed, Magnitude};

/// The most fields that are distinguished in one comparison; further ones are one field.
const MAX_TREE: usize = 4096;
/// The name of that one.
const OTHER_FIELDS: &str = "(other fields)";

/// A field of a tree.
pub(crate) type FieldId = usize;
/// The document itself.
pub(crate) const ROOT: FieldId = 0;
const OTHER: FieldId = 1;

#[derive(Debug, Default)]
struct TreeNode<'a> {
    parent: FieldId,
    /// `None` for elements of an array.
    key: Option<&'a str>,
    found: Option<FieldComparison>,
    last_row_outside: Option<u64>,
    /// Of the primary's numbers that were compared.
    magnitude: Magnitude,
    /// Of all of the primary's numbers, once they were measured.
    measured: Magnitude,
    allowed: Option<Allowed>,
}

/// The fields that a comparison has met, and what it found there.
#[derive(Debug)]
pub(crate) struct FieldTree<'a> {
    nodes: Vec<TreeNode<'a>>,
    children: FxHashMap<(FieldId, Option<&'a str>), FieldId>,
}

impl<'a> FieldTree<'a> {
    pub(crate) fn new() -> Self {
        Self { nodes: vec![TreeNode::default(), TreeNode::default()], children: FxHashMap::default() }
    }

    /// The field of a member, or with `None` that of all elements.
    pub(crate) fn child(&mut self, parent: FieldId, key: Option<&'a str>) -> FieldId {
        if parent == OTHER {
            return OTHER;
        }
        if let Some(known) = self.children.get(&(parent, key)) {
            return *known;
        }
        if self.nodes.len() == MAX_TREE {
            return OTHER;
        }
        let id = self.nodes.len();
        self.nodes.push(TreeNode { parent, key, ..TreeNode::default() });
        self.children.insert((parent, key), id);
        id
    }

    /// What was found of a field so far.
    pub(crate) fn found(&mut self, field: FieldId) -> &mut FieldComparison {
        if self.nodes[field].found.is_none() {
            let mut found = FieldComparison::new(self.name(field));
            found.hint = hint_of(self.keys(field));
            self.nodes[field].found = Some(found);
        }
        self.nodes[field].found.get_or_insert_default()
    }

    /// The numbers of a field.
    pub(crate) fn numbers(&mut self, field: FieldId) -> &mut NumberComparison {
        self.found(field).numbers.get_or_insert_default()
    }

    /// Adds a number of the primary to the magnitude of a field: that of all its numbers, or of those that were compared.
    pub(crate) fn measure(&mut self, field: FieldId, number: f64, is_of_all: bool) {
        let node = &mut self.nodes[field];
        if is_of_all { node.measured.add(number) } else { node.magnitude.add(number) }
    }

    /// How far numbers of a field may be apart, once all of the primary's were measured.
    pub(crate) fn allowed(&mut self, field: FieldId, tolerance: &Tolerance, scales: &FieldScales) -> Allowed {
        if let Some(allowed) = self.nodes[field].allowed {
            return allowed;
        }
        let scale = scales.of(&self.name(field), self.nodes[field].measured.mean());
        *self.nodes[field].allowed.insert(Allowed::new(tolerance, scale))
    }

    /// The keys on the way to a field, the last first; `None` means elements.
    fn keys(&self, field: FieldId) -> impl Iterator<Item = Option<&'a str>> {
        let mut at = field;
        std::iter::from_fn(move || {
            let node = &self.nodes[at];
            let is_inside = at != ROOT && at != OTHER;
            at = node.parent;
            is_inside.then_some(node.key)
        })
    }

    /// Counts a row with a number beyond the tolerance, once.
    pub(crate) fn row_outside(&mut self, field: FieldId, row: u64) {
        if self.nodes[field].last_row_outside != Some(row) {
            self.nodes[field].last_row_outside = Some(row);
            self.numbers(field).rows_outside += 1;
        }
    }

    fn name(&self, field: FieldId) -> String {
        if field == OTHER {
            return OTHER_FIELDS.to_owned();
        }
        let (mut way, mut at) = (Vec::new(), field);
        while at != ROOT {
            way.push(self.nodes[at].key);
            at = self.nodes[at].parent;
        }
        let step = |name: String, key: &Option<&str>| match key {
            Some(key) => append_key(&name, key),
            None if name.len() < super::super::paths::PATH_BYTES => name + "[]",
            None => name,
        };
        way.iter().rev().fold("$".to_owned(), step)
    }

    /// The fields with a finding.
    pub(crate) fn into_fields(self) -> Vec<FieldComparison> {
        let finished = |node: TreeNode<'a>| {
            let mut field = node.found?;
            if let Some(numbers) = &mut field.numbers {
                numbers.mean = node.magnitude.mean();
                if numbers.outside > 0 {
                    field.kinds.insert(DifferenceKind::Value);
                }
            }
            Some(field)
        };
        self.nodes.into_iter().filter_map(finished).collect()
    }
}
