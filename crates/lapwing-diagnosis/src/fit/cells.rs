//! Cells of cost class and number in flight, of a bounded number.

use super::moments::{Moments, PackedMoments};

/// The most cells that are kept of one block of time; a sample of a further one goes to the nearest.
pub(crate) const MAX_CELLS: usize = 36;
/// The most cells of several blocks together, while they are fitted.
const MAX_WIDE_CELLS: usize = 96;

/// Which cell a sample belongs to: its level of concurrency and its cost class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CellKey {
    level: u8,
    class: u8,
}

impl CellKey {
    /// The cell of a request that found `in_flight` requests, itself included, and asks for `work` units.
    pub(crate) fn of(in_flight: u32, work: u64) -> Self {
        Self { level: level(in_flight), class: (u64::BITS - work.leading_zeros()) as u8 }
    }

    fn distance(self, other: Self) -> u32 {
        // classes join first: work is linear within a cell, and waiting is not
        128 * u32::from(self.level.abs_diff(other.level)) + u32::from(self.class.abs_diff(other.class))
    }

    /// The cost class: the work's power of two.
    pub(crate) fn class(self) -> u8 {
        self.class
    }
}

/// Exact up to eight in flight, then four levels for each doubling.
fn level(in_flight: u32) -> u8 {
    if in_flight <= 8 {
        return in_flight as u8;
    }
    let octave = u32::BITS - 1 - in_flight.leading_zeros();
    let quarter = (in_flight >> (octave - 2)) & 3;
    (octave * 4 + quarter - 3) as u8
}

/// Cells in the order of their keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells(Vec<(CellKey, PackedMoments)>);

impl Cells {
    /// Packs cells; where there are too many, the lightest ones join their neighbours first.
    pub(crate) fn pack(cells: &WideCells) -> Self {
        let mut cells = cells.clone();
        while cells.keys.len() > MAX_CELLS {
            cells.join_lightest();
        }
        Self(cells.keys.iter().zip(&cells.moments).map(|(key, moments)| (*key, PackedMoments::pack(moments))).collect())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(CellKey, PackedMoments)>()
    }
}

/// Cells in full precision, while they are worked with.
#[derive(Clone, Debug, Default)]
pub(crate) struct WideCells {
    keys: Vec<CellKey>,
    moments: Vec<Moments>,
}

impl WideCells {
    /// Adds moments to the cell of `key`, or to the nearest one where there is no room for it.
    pub(crate) fn add(&mut self, key: CellKey, moments: &Moments) {
        match self.keys.binary_search(&key) {
            Ok(at) => self.moments[at].merge(moments),
            Err(at) if self.keys.len() < MAX_WIDE_CELLS => {
                self.keys.insert(at, key);
                self.moments.insert(at, *moments);
            }
            Err(_) => {
                if let Some(nearest) = self.nearest(key) {
                    self.moments[nearest].merge(moments);
                }
            }
        }
    }

    fn join_lightest(&mut self) {
        let lightest = (0..self.keys.len()).min_by(|a, b| self.moments[*a].weight.total_cmp(&self.moments[*b].weight));
        if let Some(lightest) = lightest {
            let (key, moments) = (self.keys.remove(lightest), self.moments.remove(lightest));
            if let Some(nearest) = self.nearest(key) {
                self.moments[nearest].merge(&moments);
            }
        }
    }

    fn nearest(&self, key: CellKey) -> Option<usize> {
        (0..self.keys.len()).min_by_key(|at| self.keys[*at].distance(key))
    }

    pub(crate) fn add_all(&mut self, cells: &Cells) {
        for (key, moments) in &cells.0 {
            self.add(*key, &moments.unpack());
        }
    }

    /// The cells without their keys.
    pub(crate) fn moments(&self) -> &[Moments] {
        &self.moments
    }

    /// The cells with their cost classes.
    pub(crate) fn by_class(&self) -> impl Iterator<Item = (u8, &Moments)> {
        self.keys.iter().map(|key| key.class).zip(&self.moments)
    }
}

/// All samples in one.
pub(crate) fn total(cells: &[Moments]) -> Moments {
    let mut total = Moments::default();
    cells.iter().for_each(|moments| total.merge(moments));
    total
}
