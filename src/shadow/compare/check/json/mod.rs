//! JSON against JSON: structure, numbers within the tolerance, texts by the rule of the route.
//!
//! Members are paired by key, elements by index, or in any order where the route says so. Recursion is as deep as the documents, whose
//! depth the parser limits.

mod unordered;

use super::super::comparison::{DifferenceDetail, DifferenceKind, FieldComparison};
use super::super::decode::document::{Value, sorted_members};
use super::super::decode::{Document, Node};
use super::super::paths::{PathPart, PathState, path_text};
use super::super::rules::Rules;
use super::fields::{FieldId, FieldTree, ROOT};
use super::text::{EditBudget, compare_texts, detail, is_agreed};

/// Compares two documents.
pub(in super::super) fn compare_documents(
    primary: &Document,
    candidate: &Document,
    rules: &Rules,
    budget: &mut EditBudget,
) -> Vec<FieldComparison> {
    let mut walk = Walk { rules, budget, tree: FieldTree::new(), path: Vec::new() };
    let place = Place { field: ROOT, ignore: rules.ignore.start(), unordered: rules.unordered.start() };
    walk.compare(&place, primary.root(), candidate.root());
    walk.tree.into_fields()
}

/// A walk through two documents at once.
struct Walk<'a, 'r> {
    rules: &'r Rules,
    budget: &'r mut EditBudget,
    tree: FieldTree<'a>,
    path: Vec<PathPart<'a>>,
}

/// Where the walk is: the field, and how far the patterns of paths have matched.
struct Place {
    field: FieldId,
    ignore: PathState,
    unordered: PathState,
}

impl<'a> Walk<'a, '_> {
    fn compare(&mut self, place: &Place, p: Value<'a>, c: Value<'a>) {
        if self.rules.ignore.matches(&place.ignore) {
            return;
        }
        if let (Some(p), Some(c)) = (p.number(), c.number()) {
            let (path, tolerance) = (&self.path, &self.rules.tolerance);
            let row = row_of(path);
            if self.tree.numbers(place.field).add(p, c, tolerance, |_| (row, path_text(path))) {
                self.tree.row_outside(place.field, row);
            }
            return;
        }
        match (p.node(), c.node()) {
            (Node::Array { .. }, Node::Array { .. }) => self.arrays(place, p, c),
            (Node::Object { .. }, Node::Object { .. }) => self.objects(place, p, c),
            (Node::Text { .. }, Node::Text { .. }) => self.texts(place, p, c),
            (Node::Null, Node::Null) => {}
            (Node::Bool(a), Node::Bool(b)) if a == b => {}
            (Node::Bool(_), Node::Bool(_)) => self.differs(place.field, DifferenceKind::Value, p, c),
            _ => self.differs(place.field, DifferenceKind::Structure, p, c),
        }
    }

    fn arrays(&mut self, place: &Place, p: Value<'a>, c: Value<'a>) {
        if self.rules.unordered.matches(&place.unordered) {
            return self.arrays_in_any_order(place, p, c);
        }
        let (Some(mut p_elements), Some(mut c_elements)) = (p.elements(), c.elements()) else { return };
        for index in 0.. {
            match (p_elements.next(), c_elements.next()) {
                (Some(p), Some(c)) => self.step(place, PathPart::Element(index), |walk, place| walk.compare(place, p, c)),
                (None, None) => return,
                _ => return self.differs(place.field, DifferenceKind::Structure, p, c),
            }
        }
    }

    fn objects(&mut self, place: &Place, p: Value<'a>, c: Value<'a>) {
        let (Some(p_members), Some(c_members)) = (p.members(), c.members()) else { return };
        let (p_members, c_members) = (sorted_members(p_members), sorted_members(c_members));
        let (mut p_members, mut c_members) = (p_members.into_iter().peekable(), c_members.into_iter().peekable());
        loop {
            let (p_key, c_key) = (p_members.peek().map(|(key, _)| *key), c_members.peek().map(|(key, _)| *key));
            let key = match (p_key, c_key) {
                (Some(p), Some(c)) => p.min(c),
                (Some(key), None) | (None, Some(key)) => key,
                (None, None) => return,
            };
            let p = p_members.next_if(|(own, _)| *own == key);
            let c = c_members.next_if(|(own, _)| *own == key);
            self.step(place, PathPart::Key(key), |walk, place| match (p, c) {
                (Some((_, p)), Some((_, c))) => walk.compare(place, p, c),
                (p, c) => walk.one_sided(place, p.map(|(_, p)| p), c.map(|(_, c)| c)),
            });
        }
    }

    fn texts(&mut self, place: &Place, p: Value<'a>, c: Value<'a>) {
        let (p, c) = (p.text().unwrap_or_default(), c.text().unwrap_or_default());
        if p == c {
            return;
        }
        let found = compare_texts(p.as_bytes(), c.as_bytes(), self.budget);
        let (agrees, path) = (is_agreed(&found, self.rules), &self.path);
        let field = self.tree.found(place.field);
        if !agrees {
            field.differs(DifferenceKind::Text, || detail(path_text(path), &found));
        }
        if field.text.is_none_or(|other| found.similarity < other.similarity) {
            field.text = Some(found);
        }
    }

    /// A value that only one side has.
    fn one_sided(&mut self, place: &Place, p: Option<Value<'a>>, c: Option<Value<'a>>) {
        if !self.rules.ignore.matches(&place.ignore) {
            self.differs(place.field, DifferenceKind::Structure, p, c);
        }
    }

    fn differs(
        &mut self,
        field: FieldId,
        kind: DifferenceKind,
        p: impl Into<Option<Value<'a>>>,
        c: impl Into<Option<Value<'a>>>,
    ) {
        let path = &self.path;
        self.tree.found(field).differs(kind, || {
            let [primary, candidate] = [p.into(), c.into()].map(|value| value.map_or("nothing".to_owned(), shown));
            DifferenceDetail { at: path_text(path), primary, candidate }
        });
    }

    /// Goes one step into the documents, and back.
    fn step(&mut self, place: &Place, part: PathPart<'a>, inside: impl FnOnce(&mut Self, &Place)) {
        let key = if let PathPart::Key(key) = part { Some(key) } else { None };
        let place = Place {
            field: self.tree.child(place.field, key),
            ignore: self.rules.ignore.step(&place.ignore, &part),
            unordered: self.rules.unordered.step(&place.unordered, &part),
        };
        self.path.push(part);
        inside(self, &place);
        self.path.pop();
    }
}

/// The index of the outermost array.
fn row_of(path: &[PathPart<'_>]) -> u64 {
    let first = path.iter().find_map(|part| if let PathPart::Element(index) = part { Some(*index) } else { None });
    first.unwrap_or(0) as u64
}

/// A value as it is shown: its type and size, never the text itself.
fn shown(value: Value<'_>) -> String {
    match value.node() {
        Node::Null => "null".to_owned(),
        Node::Bool(is_true) => is_true.to_string(),
        Node::Unsigned(n) => n.to_string(),
        Node::Signed(n) => n.to_string(),
        Node::Float(n) => n.to_string(),
        Node::Text { len, .. } => format!("text of {len} bytes"),
        Node::Array { .. } => format!("array of {}", value.elements().map_or(0, Iterator::count)),
        Node::Object { .. } => format!("object of {}", value.members().map_or(0, Iterator::count)),
    }
}
