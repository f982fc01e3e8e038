//! Bounded interning of label values: a ledger holds numbers instead of text, and no label can create an unbounded number of
//! series. A label has at most [`LABEL_BYTES`] bytes.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHasher};

use super::clock::Stamp;

/// How many bytes a label has at most.
pub const LABEL_BYTES: usize = 128;
/// The bytes of `~` and of the hash after the beginning of a longer text.
const MARK_BYTES: usize = 9;

/// The label of `text`: the text itself up to [`LABEL_BYTES`], else its beginning, `~` and eight hexadecimal digits of a hash of the
/// whole. The hash distinguishes long texts; it is no protection against a search for collisions.
#[must_use]
#[inline]
pub fn label_text(text: &str) -> Cow<'_, str> {
    if text.len() <= LABEL_BYTES {
        return Cow::Borrowed(text);
    }
    let mut hasher = FxHasher::default();
    hasher.write(text.as_bytes());
    let end = (0..=LABEL_BYTES - MARK_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let mut label = String::with_capacity(LABEL_BYTES);
    label.push_str(&text[..end]);
    let _ = write!(label, "~{:08x}", hasher.finish() >> 32);
    Cow::Owned(label)
}

/// An interned label value. Zero is `other`, which replaces every value beyond the bound. No id is given twice, so the id of a
/// value that gave way is never taken for its successor's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelId(u32);

impl LabelId {
    /// The id of every value beyond the bound.
    pub const OTHER: Self = Self(0);
}

/// A bounded table of label values. When it is full, the value that has been idle for longest gives way, if it was idle for long
/// enough; else every new value becomes [`LabelId::OTHER`].
#[derive(Debug)]
pub struct LabelTable {
    table: RwLock<Table>,
    capacity: usize,
    idle_ns: u64,
    evicted: AtomicU64,
}

#[derive(Debug)]
struct Table {
    by_text: FxHashMap<Arc<str>, LabelId>,
    entries: FxHashMap<LabelId, Entry>,
    other: Arc<str>,
    next: u32,
    overflowed: u64,
    /// Before this no value can have been idle for long enough, so no search is needed.
    crowded_until: Stamp,
}

#[derive(Debug)]
struct Entry {
    text: Arc<str>,
    /// `None` for a value that never gives way.
    used: Option<Stamp>,
}

impl LabelTable {
    /// An empty table that holds at most `capacity` values besides `other`, none of which gives way.
    #[must_use]
    #[inline]
    pub fn new(capacity: usize) -> Self {
        Self::with_idle(capacity, u64::MAX)
    }

    /// An empty table that holds at most `capacity` values besides `other`. In a full one, a learnt value that was idle for
    /// `idle_ns` nanoseconds may give way.
    #[must_use]
    #[inline]
    pub fn with_idle(capacity: usize, idle_ns: u64) -> Self {
        let other: Arc<str> = Arc::from("other");
        let table = Table {
            by_text: FxHashMap::from_iter([(other.clone(), LabelId::OTHER)]),
            entries: FxHashMap::default(),
            other,
            next: 1,
            overflowed: 0,
            crowded_until: Stamp::default(),
        };
        Self { table: RwLock::new(table), capacity, idle_ns, evicted: AtomicU64::new(0) }
    }

    /// The id of `text`, interned for good if there is room.
    #[inline]
    pub fn intern(&self, text: &str) -> LabelId {
        self.add(text, None).unwrap_or_default()
    }

    /// The id of `text`, interned now if there is room or if another value gives way; `None` if not, which is counted.
    #[inline]
    pub fn learn(&self, text: &str, now: Stamp) -> Option<LabelId> {
        self.add(text, Some(now))
    }

    fn add(&self, text: &str, now: Option<Stamp>) -> Option<LabelId> {
        let text = label_text(text);
        if let Some(id) = self.table.read().by_text.get(&*text) {
            return Some(*id);
        }
        let mut table = self.table.write();
        if let Some(id) = table.by_text.get(&*text) {
            return Some(*id);
        }
        let has_room = table.entries.len() < self.capacity || now.is_some_and(|now| self.evict(&mut table, now));
        let Some(next) = table.next.checked_add(1).filter(|_| has_room) else {
            table.overflowed += 1;
            return None;
        };
        let id = LabelId(std::mem::replace(&mut table.next, next));
        let text: Arc<str> = Arc::from(text);
        table.entries.insert(id, Entry { text: text.clone(), used: now });
        table.by_text.insert(text, id);
        Some(id)
    }

    /// Removes the value that has been idle for longest, if it was idle for long enough.
    fn evict(&self, table: &mut Table, now: Stamp) -> bool {
        if now < table.crowded_until {
            return false;
        }
        let learnt = table.entries.iter().filter_map(|(id, entry)| Some((entry.used?, *id)));
        let Some((used, id)) = learnt.min() else { return false };
        table.crowded_until = used.plus(self.idle_ns);
        if now < table.crowded_until {
            return false;
        }
        if let Some(Entry { text, .. }) = table.entries.remove(&id) {
            table.by_text.remove(&text);
        }
        self.evicted.fetch_add(1, Relaxed);
        true
    }

    /// Records that these values are in use.
    #[inline]
    pub fn touch(&self, id: LabelId, now: Stamp) {
        if let Some(Entry { used: Some(used), .. }) = self.table.write().entries.get_mut(&id) {
            *used = now.max(*used);
        }
    }

    /// The id of `text`, if it was interned.
    #[must_use]
    #[inline]
    pub fn find(&self, text: &str) -> Option<LabelId> {
        self.table.read().by_text.get(&*label_text(text)).copied()
    }

    /// Whether the value has not given way.
    #[must_use]
    #[inline]
    pub fn holds(&self, id: LabelId) -> bool {
        id == LabelId::OTHER || self.table.read().entries.contains_key(&id)
    }

    /// The text of `id`; `other` for an id whose value gave way, and for one of another table.
    #[must_use]
    #[inline]
    pub fn text(&self, id: LabelId) -> Arc<str> {
        let table = self.table.read();
        table.entries.get(&id).map_or(&table.other, |entry| &entry.text).clone()
    }

    /// How many values gave way.
    #[must_use]
    #[inline]
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// The number of values held besides `other`, and the number of look-ups that became `other` because the table was full.
    #[must_use]
    #[inline]
    pub fn fill(&self) -> (usize, u64) {
        let table = self.table.read();
        (table.entries.len(), table.overflowed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ns: u64) -> Stamp {
        Stamp::default().plus(ns)
    }

    #[test]
    fn past_the_bound_everything_is_other() {
        let names = LabelTable::new(2);
        let (a, b, c) = (names.intern("a"), names.intern("b"), names.intern("c"));
        assert_ne!(a, b);
        assert_eq!(c, LabelId::OTHER);
        assert_eq!(names.intern("a"), a);
        assert_eq!([names.find("a"), names.find("c")], [Some(a), None]);
        assert_eq!(&*names.text(b), "b");
        assert_eq!(&*names.text(c), "other");
        assert_eq!(names.fill(), (2, 1));
    }

    #[test]
    fn the_value_idle_for_longest_gives_way_and_its_id_is_never_its_successors() {
        let names = LabelTable::with_idle(3, 100);
        let fixed = names.intern("fixed");
        let (a, b) = (names.learn("a", at(1)).unwrap(), names.learn("b", at(2)).unwrap());
        names.touch(a, at(50));
        assert_eq!(names.learn("c", at(101)), None, "b was idle for 99 ns");
        let c = names.learn("c", at(102)).unwrap();
        assert!(c != b && !names.holds(b) && names.holds(a) && names.holds(fixed));
        assert_eq!((&*names.text(b), &*names.text(c)), ("other", "c"));
        assert_eq!(names.learn("d", at(149)), None);
        assert!(names.learn("d", at(150)).is_some() && !names.holds(a));
        assert_eq!((names.fill(), names.evicted()), ((3, 2), 2));
        assert_eq!(names.learn("fixed", at(u64::MAX / 2)), Some(fixed));
    }

    #[test]
    fn names_without_end_take_the_room_of_a_few() {
        let names = LabelTable::with_idle(100, 1_000);
        for n in 0..50_000 {
            let id = names.learn(&format!("model-{n}"), at(n * 20)).unwrap();
            assert_eq!(&*names.text(id), format!("model-{n}"));
        }
        let table = names.table.read();
        assert!(table.by_text.capacity() <= 1_000 && table.entries.capacity() <= 1_000);
        assert_eq!((table.entries.len(), table.by_text.len()), (100, 101));
    }

    proptest! {
        #[test]
        fn labels_have_a_bounded_length(text in "\\PC{0,300}", tail in "[a-z]{1,9}") {
            let label = label_text(&text);
            prop_assert!(label.len() <= LABEL_BYTES);
            prop_assert_eq!(*label == *text, text.len() <= LABEL_BYTES);
            prop_assert_eq!(&*label_text(&label), &*label);
            let longer = format!("{text}{tail}");
            prop_assert!(label_text(&longer) != label);
        }
    }
}
