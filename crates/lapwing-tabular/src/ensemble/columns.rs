//! The columns that trees compare, in a form with one comparison for all: a node goes right where its column is greater than its
//! threshold. A column that is tested otherwise is negated, or is the answer of a test, 1 or 0. A missing value (NaN) compares as not
//! greater, so it goes left, whatever the test was.

use rustc_hash::FxHashMap;

use super::source::{Number, Test};
use crate::attributes::Reason;

/// What a derived column holds.
#[derive(Clone, Debug)]
pub(crate) enum Column<T> {
    /// Always missing: the first one, which leaves compare, so that a walk stays where it is.
    Never,
    Plain(u32),
    Negated(u32),
    /// 1 if the test holds, else 0.
    Answer {
        column: u32,
        test: Test<T>,
        missing_holds: bool,
    },
}

/// A comparison, and where it leads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split<T> {
    /// The derived column.
    pub(crate) column: u32,
    pub(crate) threshold: T,
    /// Whether the test holds to the right; else it holds to the left.
    pub(crate) holds_right: bool,
}

/// The derived columns of a forest, each once.
#[derive(Debug)]
pub(crate) struct Columns<T> {
    pub(crate) derived: Vec<Column<T>>,
    /// The least number of columns that a row must have.
    pub(crate) width: usize,
    known: FxHashMap<(u8, u32, bool, Vec<u64>), u32>,
}

impl<T: Number> Columns<T> {
    pub(crate) fn new() -> Self {
        Self { derived: vec![Column::Never], width: 0, known: FxHashMap::default() }
    }

    /// Gives up what is needed to add columns only.
    pub(crate) fn shrink(&mut self) {
        self.known = FxHashMap::default();
        self.derived.shrink_to_fit();
    }

    fn add(&mut self, key: (u8, u32, bool, Vec<u64>), column: Column<T>) -> u32 {
        *self.known.entry(key).or_insert_with(|| {
            self.derived.push(column);
            (self.derived.len() - 1) as u32
        })
    }

    fn plain(&mut self, column: u32) -> u32 {
        self.add((0, column, false, Vec::new()), Column::Plain(column))
    }

    fn negated(&mut self, column: u32) -> u32 {
        self.add((1, column, false, Vec::new()), Column::Negated(column))
    }

    /// The comparison that stands for a test.
    pub(crate) fn split(&mut self, column: u32, test: &Test<T>, missing_holds: bool) -> Split<T> {
        self.width = self.width.max(column as usize + 1);
        // "at least t" is "greater than what is next below t", which minus infinity does not have
        let below = |threshold: T| Some(threshold.next_down()).filter(|below| *below < threshold);
        let comparison = match (test, missing_holds) {
            (Test::LessEqual(t), false) => below(t.negated()).map(|threshold| (true, threshold, true)),
            (Test::LessEqual(t), true) => Some((false, *t, false)),
            (Test::Less(t), false) => Some((true, t.negated(), true)),
            (Test::Less(t), true) => below(*t).map(|threshold| (false, threshold, false)),
            (Test::GreaterEqual(t), false) => below(*t).map(|threshold| (false, threshold, true)),
            (Test::GreaterEqual(t), true) => Some((true, t.negated(), false)),
            (Test::Greater(t), false) => Some((false, *t, true)),
            (Test::Greater(t), true) => below(t.negated()).map(|threshold| (true, threshold, false)),
            (Test::Equal(_) | Test::NotEqual(_) | Test::Member(..), _) => None,
        };
        match comparison.filter(|(_, threshold, _)| !threshold.is_missing()) {
            Some((is_negated, threshold, holds_right)) => {
                let column = if is_negated { self.negated(column) } else { self.plain(column) };
                Split { column, threshold, holds_right }
            }
            None => Split { column: self.answer(column, test, missing_holds), threshold: T::HALF, holds_right: true },
        }
    }

    fn answer(&mut self, column: u32, test: &Test<T>, missing_holds: bool) -> u32 {
        let (kind, values) = match test {
            Test::LessEqual(t) => (2, vec![t.key()]),
            Test::Less(t) => (3, vec![t.key()]),
            Test::GreaterEqual(t) => (4, vec![t.key()]),
            Test::Greater(t) => (5, vec![t.key()]),
            Test::Equal(t) => (6, vec![t.key()]),
            Test::NotEqual(t) => (7, vec![t.key()]),
            Test::Member(values, truncation) => (8 + *truncation as u8, values.iter().map(|value| value.key()).collect()),
        };
        self.add((kind, column, missing_holds, values), Column::Answer { column, test: test.clone(), missing_holds })
    }

    /// Derives all columns of a row; `set` takes the index and the value of each.
    #[inline(always)]
    pub(crate) fn derive(&self, row: &[T], mut set: impl FnMut(usize, T)) -> Result<(), Reason> {
        if row.len() < self.width {
            return Err(format!("the trees test column {}, a row has {} columns", self.width - 1, row.len()));
        }
        for (at, column) in self.derived.iter().enumerate() {
            set(
                at,
                match column {
                    Column::Never => T::NAN,
                    Column::Plain(column) => row[*column as usize],
                    Column::Negated(column) => row[*column as usize].negated(),
                    Column::Answer { column, test, missing_holds } => {
                        let value = row[*column as usize];
                        let holds = test.holds(value) || (*missing_holds && value.is_missing());
                        if holds { T::ONE } else { T::default() }
                    }
                },
            );
        }
        Ok(())
    }
}
