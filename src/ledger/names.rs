//! Bounded interning of label values: a ledger holds numbers instead of text, and no label can create an unbounded number of
//! series.

use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

/// An interned label value. Zero is `other`, which stands for every value beyond the bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelId(u32);

impl LabelId {
    /// The id of every value beyond the bound.
    pub const OTHER: Self = Self(0);

    /// The place in the table.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0
    }
}

/// A bounded table of label values. When it is full, every new value becomes [`LabelId::OTHER`].
#[derive(Debug)]
pub struct LabelTable {
    table: RwLock<Table>,
    capacity: usize,
}

#[derive(Debug, Default)]
struct Table {
    by_text: FxHashMap<Arc<str>, LabelId>,
    texts: Vec<Arc<str>>,
    overflowed: u64,
}

impl LabelTable {
    /// An empty table that holds at most `capacity` values besides `other`.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let other: Arc<str> = Arc::from("other");
        let table = Table { by_text: FxHashMap::from_iter([(other.clone(), LabelId::OTHER)]), texts: vec![other], overflowed: 0 };
        Self { table: RwLock::new(table), capacity }
    }

    /// The id of `text`, interned now if there is room.
    pub fn intern(&self, text: &str) -> LabelId {
        if let Some(name) = self.table.read().by_text.get(text) {
            return *name;
        }
        let mut table = self.table.write();
        if let Some(name) = table.by_text.get(text) {
            return *name;
        }
        if table.texts.len() > self.capacity {
            table.overflowed += 1;
            return LabelId::OTHER;
        }
        let text: Arc<str> = Arc::from(text);
        let name = LabelId(u32::try_from(table.texts.len()).unwrap_or(0));
        table.texts.push(text.clone());
        table.by_text.insert(text, name);
        name
    }

    /// The id of `text`, if it was interned.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<LabelId> {
        self.table.read().by_text.get(text).copied()
    }

    /// The text of `name`; `other` for an id of another table.
    #[must_use]
    pub fn text(&self, name: LabelId) -> Arc<str> {
        let table = self.table.read();
        table.texts.get(name.0 as usize).unwrap_or(&table.texts[0]).clone()
    }

    /// The number of values held besides `other`, and the number of look-ups that became `other` because the table was full.
    #[must_use]
    pub fn fill(&self) -> (usize, u64) {
        let table = self.table.read();
        (table.texts.len() - 1, table.overflowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
