//! Arrays whose order does not matter. Equal elements are paired first, then those that are alike apart from their numbers, in the
//! order of their numbers.
//!
//! So `{"label": "cat", "score": 0.91}` is compared with `{"label": "cat", "score": 0.9101}`, wherever that is. It takes
//! n log n steps. What finds no partner is paired in order, so that the report names what differs.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::{DifferenceKind, DocumentValue, Node, PathPart, Place, Walk, sorted_members};
use crate::outputs::paths::PathState;

/// How many numbers of an element take part in the order.
const NUMBERS: usize = 2;

/// An element by what it is paired by.
#[derive(Clone, Copy)]
struct Keyed<'a> {
    hashes: Hashes,
    /// The first numbers in it.
    numbers: [f64; NUMBERS],
    index: usize,
    value: DocumentValue<'a>,
}

/// Hashes of a value without what is ignored.
#[derive(Clone, Copy, Default)]
struct Hashes {
    /// Of everything.
    whole: u64,
    /// Of everything but numbers.
    likeness: u64,
}

/// How far the patterns have matched.
#[derive(Clone, Copy)]
struct States<'s> {
    ignore: &'s PathState,
    unordered: &'s PathState,
}

/// Two lists of elements, the primary's and the candidate's.
type Sides<'a> = [Vec<Keyed<'a>>; 2];

impl<'a> Walk<'a, '_> {
    pub(crate) fn arrays_in_any_order(&mut self, place: &Place, p: DocumentValue<'a>, c: DocumentValue<'a>) {
        let sides = [self.keyed(place, p), self.keyed(place, c)];
        let sides = self.pair_by(place, sides, |keyed| keyed.hashes.whole);
        let mut left = self.pair_by(place, sides, |keyed| keyed.hashes.likeness);
        left.iter_mut().for_each(|side| side.sort_by_key(|keyed| keyed.index));
        let [p_left, c_left] = left;
        p_left.iter().zip(&c_left).for_each(|(p, c)| self.pair(place, p, c));
        if p_left.len() != c_left.len() {
            self.differs(place.field, DifferenceKind::Structure, p, c);
        }
    }

    /// Compares elements of equal keys, in the order of their numbers. Returns those without a partner.
    fn pair_by(&mut self, place: &Place, mut sides: Sides<'a>, key: impl Fn(&Keyed<'a>) -> u64) -> Sides<'a> {
        let by_numbers = |a: &Keyed<'_>, b: &Keyed<'_>| {
            let orders = a.numbers.iter().zip(&b.numbers).map(|(a, b)| a.total_cmp(b));
            orders.fold(Ordering::Equal, Ordering::then)
        };
        sides.iter_mut().for_each(|side| side.sort_by(|a, b| key(a).cmp(&key(b)).then(by_numbers(a, b))));
        let [mut p_rest, mut c_rest] = sides.map(|side| side.into_iter().peekable());
        let mut left = Sides::default();
        loop {
            let order = match (p_rest.peek(), c_rest.peek()) {
                (Some(p), Some(c)) => key(p).cmp(&key(c)),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return left,
            };
            match order {
                Ordering::Less => left[0].extend(p_rest.next()),
                Ordering::Greater => left[1].extend(c_rest.next()),
                Ordering::Equal => {
                    if let (Some(p), Some(c)) = (p_rest.next(), c_rest.next()) {
                        self.pair(place, &p, &c);
                    }
                }
            }
        }
    }

    fn pair(&mut self, place: &Place, p: &Keyed<'a>, c: &Keyed<'a>) {
        self.step(place, PathPart::Element(p.index), |walk, place| walk.compare(place, p.value, c.value));
    }

    fn keyed(&self, place: &Place, array: DocumentValue<'a>) -> Vec<Keyed<'a>> {
        let states = States { ignore: &place.ignore, unordered: &place.unordered };
        let elements = array.elements().into_iter().flatten().enumerate();
        elements
            .map(|(index, value)| {
                let (mut numbers, mut count) = ([0.0; NUMBERS], 0);
                let hashes = self.hashes_at(value, states, &PathPart::Element(index), &mut |number| {
                    if let Some(slot) = numbers.get_mut(count) {
                        (*slot, count) = (number, count + 1);
                    }
                });
                Keyed { hashes, numbers, index, value }
            })
            .collect()
    }

    /// The hashes of the value one step further.
    fn hashes_at(
        &self,
        value: DocumentValue<'a>,
        states: States<'_>,
        part: &PathPart<'_>,
        on_number: &mut dyn FnMut(f64),
    ) -> Hashes {
        let ignore = self.rules.ignore.step(states.ignore, part);
        let unordered = self.rules.unordered.step(states.unordered, part);
        self.hashes(value, States { ignore: &ignore, unordered: &unordered }, on_number)
    }

    /// The hashes of a value; its numbers are passed on in their order.
    fn hashes(&self, value: DocumentValue<'a>, states: States<'_>, on_number: &mut dyn FnMut(f64)) -> Hashes {
        if self.rules.ignore.matches(states.ignore) {
            return Hashes::default();
        }
        if let Some(number) = value.number() {
            // without the sign of zero
            let number = number.as_f64() + 0.0;
            on_number(number);
            return Hashes { whole: hash((3, number.to_bits())), likeness: hash(3) };
        }
        let (mut whole, mut likeness) = (FxHasher::default(), FxHasher::default());
        if let Some(members) = value.members() {
            4.hash(&mut whole);
            4.hash(&mut likeness);
            for (key, member) in sorted_members(members) {
                let hashes = self.hashes_at(member, states, &PathPart::Key(key), on_number);
                (key, hashes.whole).hash(&mut whole);
                (key, hashes.likeness).hash(&mut likeness);
            }
        } else if let Some(elements) = value.elements() {
            let is_unordered = self.rules.unordered.matches(states.unordered);
            let mut sums = Hashes { whole: 5, likeness: 5 };
            for (index, element) in elements.enumerate() {
                let hashes = self.hashes_at(element, states, &PathPart::Element(index), on_number);
                if is_unordered {
                    sums.whole = sums.whole.wrapping_add(hash(hashes.whole));
                    sums.likeness = sums.likeness.wrapping_add(hash(hashes.likeness));
                } else {
                    hashes.whole.hash(&mut whole);
                    hashes.likeness.hash(&mut likeness);
                }
            }
            sums.whole.hash(&mut whole);
            sums.likeness.hash(&mut likeness);
        } else {
            let scalar = match value.node() {
                Node::Bool(is_true) => hash((1, is_true)),
                _ => hash((2, value.text())),
            };
            return Hashes { whole: scalar, likeness: scalar };
        }
        Hashes { whole: whole.finish(), likeness: likeness.finish() }
    }
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}
