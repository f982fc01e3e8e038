//! The fields of a JSON document: paths without indices, so that all elements of an array share one.

use rustc_hash::FxHashMap;

use super::super::comparison::{DifferenceKind, FieldComparison, NumberComparison};
use super::super::paths::append_key;

/// The most fields that are told apart in one comparison; further ones are one field.
const MAX_TREE: usize = 4096;
/// The name of that one.
const OTHER_FIELDS: &str = "(other fields)";

/// A field of a tree.
pub(super) type FieldId = usize;
/// The document itself.
pub(super) const ROOT: FieldId = 0;
const OTHER: FieldId = 1;

#[derive(Debug, Default)]
struct TreeNode<'a> {
    parent: FieldId,
    /// `None` for elements of an array.
    key: Option<&'a str>,
    found: Option<FieldComparison>,
    last_row_outside: Option<u64>,
}

/// The fields that a comparison has met, and what it found there.
#[derive(Debug)]
pub(super) struct FieldTree<'a> {
    nodes: Vec<TreeNode<'a>>,
    children: FxHashMap<(FieldId, Option<&'a str>), FieldId>,
}

impl<'a> FieldTree<'a> {
    pub(super) fn new() -> Self {
        Self { nodes: vec![TreeNode::default(), TreeNode::default()], children: FxHashMap::default() }
    }

    /// The field of a member, or with `None` that of all elements.
    pub(super) fn child(&mut self, parent: FieldId, key: Option<&'a str>) -> FieldId {
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
    pub(super) fn found(&mut self, field: FieldId) -> &mut FieldComparison {
        if self.nodes[field].found.is_none() {
            let name = self.name(field);
            self.nodes[field].found = Some(FieldComparison::new(name));
        }
        self.nodes[field].found.get_or_insert_default()
    }

    /// The numbers of a field.
    pub(super) fn numbers(&mut self, field: FieldId) -> &mut NumberComparison {
        self.found(field).numbers.get_or_insert_default()
    }

    /// Counts a row with a number beyond the tolerance, once.
    pub(super) fn row_outside(&mut self, field: FieldId, row: u64) {
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
    pub(super) fn into_fields(self) -> Vec<FieldComparison> {
        let mut fields: Vec<FieldComparison> = self.nodes.into_iter().filter_map(|node| node.found).collect();
        for field in &mut fields {
            if field.numbers.as_ref().is_some_and(|numbers| numbers.outside > 0) {
                field.kinds.insert(DifferenceKind::Value);
            }
        }
        fields
    }
}
