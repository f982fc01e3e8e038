//! JSON against JSON: structure, numbers within the tolerance, texts by the rule of the route.
//!
//! Members are paired by key, elements by index, or in any order where the route says so. Recursion is as deep as the documents, whose
//! depth the parser limits.

mod unordered;

use super::super::comparison::{DifferenceDetail, DifferenceKind, FieldComparison, FieldHint};
use super::super::decode::document::{DocumentValue, sorted_members};
use super::super::decode::{Document, Node, Number, not_finite};
use super::super::paths::{PathPart, PathState, path_text};
use super::super::rules::Rules;
use super::Judging;
use super::fields::{FieldId, FieldTree, ROOT};
use super::hints::{are_ids, are_times, are_times_of_day};
use super::numbers::Allowed;
use super::text::{EditBudget, compare_texts, detail, is_agreed};

/// Compares two documents.
pub(crate) fn compare_documents(
    primary: &Document,
    candidate: &Document,
    judging: &Judging<'_>,
    budget: &mut EditBudget,
) -> Vec<FieldComparison> {
    let rules = judging.rules;
    let mut walk =
        Walk { judging, rules, budget, tree: FieldTree::new(), path: Vec::new(), primary: primary.root(), is_measured: false };
    let place = Place { field: ROOT, ignore: rules.ignore.start(), unordered: rules.unordered.start() };
    walk.compare(&place, primary.root(), candidate.root());
    walk.tree.into_fields()
}

/// A walk through two documents at once.
struct Walk<'a, 'r> {
    judging: &'r Judging<'r>,
    rules: &'r Rules,
    budget: &'r mut EditBudget,
    tree: FieldTree<'a>,
    path: Vec<PathPart<'a>>,
    /// The whole document of the primary.
    primary: DocumentValue<'a>,
    /// Whether the magnitudes of all its fields are known; nothing needs them until two numbers differ.
    is_measured: bool,
}

/// Where the walk is: the field, and how far the patterns of paths have matched.
struct Place {
    field: FieldId,
    ignore: PathState,
    unordered: PathState,
}

impl<'a> Walk<'a, '_> {
    fn compare(&mut self, place: &Place, p: DocumentValue<'a>, c: DocumentValue<'a>) {
        if self.rules.ignore.matches(&place.ignore) {
            return;
        }
        if let (Some(p), Some(c)) = numbers(p, c) {
            return self.numbers(place.field, p, c);
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

    fn numbers(&mut self, field: FieldId, p: Number, c: Number) {
        self.tree.measure(field, p.as_f64(), false);
        if self.tree.numbers(field).add_same(p, c) {
            return;
        }
        if are_times(p.as_f64(), c.as_f64(), self.judging.now_s) {
            self.tree.found(field).is_stamped = true;
            return;
        }
        let allowed = self.allowed(field);
        let path = &self.path;
        let row = row_of(path);
        if self.tree.numbers(field).add(p, c, &allowed, |_| (row, path_text(path))) {
            self.tree.row_outside(field, row);
        }
    }

    /// How far the numbers of a field may be apart.
    fn allowed(&mut self, field: FieldId) -> Allowed {
        if !self.is_measured {
            self.is_measured = true;
            self.measure(ROOT, self.primary);
        }
        self.tree.allowed(field, &self.rules.tolerance, self.judging.scales)
    }

    /// Adds up how large the primary's numbers are, by field.
    fn measure(&mut self, field: FieldId, p: DocumentValue<'a>) {
        if let Some(number) = p.number() {
            self.tree.measure(field, number.as_f64(), true);
        } else if let Some(elements) = p.elements() {
            let inside = self.tree.child(field, None);
            elements.for_each(|element| self.measure(inside, element));
        } else if let Some(members) = p.members() {
            for (key, member) in members {
                let inside = self.tree.child(field, Some(key));
                self.measure(inside, member);
            }
        }
    }

    fn arrays(&mut self, place: &Place, p: DocumentValue<'a>, c: DocumentValue<'a>) {
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

    fn objects(&mut self, place: &Place, p: DocumentValue<'a>, c: DocumentValue<'a>) {
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

    fn texts(&mut self, place: &Place, p: DocumentValue<'a>, c: DocumentValue<'a>) {
        let (p, c) = (p.text().unwrap_or_default(), c.text().unwrap_or_default());
        if p == c {
            return;
        }
        let now_s = self.judging.now_s;
        if are_times_of_day(p, c, now_s) {
            self.tree.found(place.field).is_stamped = true;
            return;
        }
        let found = compare_texts(p.as_bytes(), c.as_bytes(), self.budget);
        let (agrees, path) = (is_agreed(&found, self.rules), &self.path);
        let field = self.tree.found(place.field);
        if field.hint == FieldHint::Id && !are_ids(p, c) {
            field.hint = FieldHint::Nothing;
        }
        if !agrees {
            field.differs(DifferenceKind::Text, || detail(path_text(path), &found));
        }
        if field.text.is_none_or(|other| found.similarity < other.similarity) {
            field.text = Some(found);
        }
    }

    /// A value that only one side has.
    fn one_sided(&mut self, place: &Place, p: Option<DocumentValue<'a>>, c: Option<DocumentValue<'a>>) {
        if !self.rules.ignore.matches(&place.ignore) {
            self.differs(place.field, DifferenceKind::Structure, p, c);
        }
    }

    fn differs(
        &mut self,
        field: FieldId,
        kind: DifferenceKind,
        p: impl Into<Option<DocumentValue<'a>>>,
        c: impl Into<Option<DocumentValue<'a>>>,
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

/// Both values as numbers; texts such as `"NaN"`, which protobuf's JSON has, where the other side is a number.
fn numbers(p: DocumentValue<'_>, c: DocumentValue<'_>) -> (Option<Number>, Option<Number>) {
    let worded = |value: DocumentValue<'_>| value.text().and_then(|text| not_finite(text.as_bytes())).map(Number::Float);
    match (p.number(), c.number()) {
        (Some(p), None) => (Some(p), worded(c)),
        (None, Some(c)) => (worded(p), Some(c)),
        both => both,
    }
}

/// The index of the outermost array.
fn row_of(path: &[PathPart<'_>]) -> u64 {
    let first = path.iter().find_map(|part| if let PathPart::Element(index) = part { Some(*index) } else { None });
    first.unwrap_or(0) as u64
}

/// A value as it is shown: its type and size, never the text itself.
fn shown(value: DocumentValue<'_>) -> String {
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
