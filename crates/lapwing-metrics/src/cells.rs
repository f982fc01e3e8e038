//! Counts in the cells of a histogram layout, kept in pages, so that only cells that were hit cost memory.
//!
//! A dense `hdrhistogram` with these bounds is 192 KiB, all of it written when it is created. Here counts since the last rotation
//! and before it are kept apart: the former in pages that live until the rotation, so that memory follows the traffic of one slot,
//! the latter as a short list, or in the narrowest integer that holds a page's counts. As a histogram meets more traffic it meets ever
//! rarer values (each doubling brings about as many new cells as the one before), and their pages cost 16 bytes instead of 768.

use super::layout::CELLS;

const PAGE: usize = 64;
const PAGES: usize = CELLS / PAGE;
const WORDS: usize = PAGES / 64;

/// One count of a sparse histogram. `key` sorts by measure and then by cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count<N> {
    /// `measure << 16 | cell`.
    pub(crate) key: u32,
    /// How many values.
    pub(crate) count: N,
}

/// A histogram of any layout: counts since the last rotation and before it.
#[derive(Debug)]
pub(crate) struct Cells {
    /// Which pages were hit since the last rotation; only their places are valid.
    hit: [u64; WORDS],
    places: [u16; PAGES],
    now: Vec<[u32; PAGE]>,
    /// Which pages were hit before the last rotation.
    kept: [u64; WORDS],
    /// Their counts, in the order of pages.
    before: Vec<Page>,
}

/// How many cells of a page are listed, as many as fit next to a pointer.
const LISTED_CELLS: usize = 7;

/// The counts of a page, as wide as the largest needs.
#[derive(Debug)]
enum Page {
    /// The cells that were hit, and how often; no count is zero before the first that is.
    Few([u8; LISTED_CELLS], [u8; LISTED_CELLS]),
    U8(Box<[u8; PAGE]>),
    U16(Box<[u16; PAGE]>),
    U32(Box<[u32; PAGE]>),
    U64(Box<[u64; PAGE]>),
}

impl Cells {
    /// An empty histogram: about 900 bytes until something is recorded.
    pub(crate) const fn new() -> Self {
        Self { hit: [0; WORDS], places: [0; PAGES], now: Vec::new(), kept: [0; WORDS], before: Vec::new() }
    }

    /// Adds one to a cell.
    pub(crate) fn record(&mut self, cell: u16) {
        let at = usize::from(cell);
        let (number, column) = (at / PAGE, at % PAGE);
        if self.hit[number / 64] & 1 << (number % 64) == 0 {
            self.grow(number);
        }
        let count = &mut self.now[usize::from(self.places[number])][column];
        *count = count.saturating_add(1);
    }

    #[cold]
    fn grow(&mut self, number: usize) {
        if self.now.len() == self.now.capacity() {
            self.now.reserve_exact(1 + self.now.len() / 4); // doubling would waste half of it
        }
        self.hit[number / 64] |= 1 << (number % 64);
        self.places[number] = self.now.len() as u16; // at most `PAGES`
        self.now.push([0; PAGE]);
    }

    /// Moves the counts since the last rotation to those before it, and appends them to `out` in the order of keys.
    pub(crate) fn rotate(&mut self, measure: u32, out: &mut Vec<Count<u32>>) {
        for number in pages(&self.hit) {
            let place = rank(&self.kept, number);
            if self.kept[number / 64] & 1 << (number % 64) == 0 {
                self.kept[number / 64] |= 1 << (number % 64);
                if self.before.len() == self.before.capacity() {
                    self.before.reserve_exact(4 + self.before.len() / 8);
                }
                self.before.insert(place, Page::Few([0; LISTED_CELLS], [0; LISTED_CELLS]));
            }
            let now = &self.now[usize::from(self.places[number])];
            for (column, now) in now.iter().enumerate().filter(|(_, now)| **now > 0) {
                self.before[place].add(column, *now);
                out.push(Count { key: key(measure, number * PAGE + column), count: *now });
            }
        }
        self.hit = [0; WORDS];
        // a slot with much traffic does not leave its room to the quiet ones after it
        let used = self.now.len();
        self.now.clear();
        if self.now.capacity() > 2 * used + 2 {
            self.now.shrink_to(used);
        }
    }

    /// Appends the counts since the last rotation to `out`, and with `all` those before it too, in the order of keys.
    pub(crate) fn read(&self, measure: u32, all: bool, out: &mut Vec<Count<u64>>) {
        let mut before = self.before.iter();
        let either: [u64; WORDS] = std::array::from_fn(|word| self.hit[word] | if all { self.kept[word] } else { 0 });
        for number in pages(&either) {
            let has = |set: &[u64; WORDS]| set[number / 64] & 1 << (number % 64) != 0;
            let now = has(&self.hit).then(|| &self.now[usize::from(self.places[number])]);
            let before = if all && has(&self.kept) { before.next() } else { None };
            for column in 0..PAGE {
                let count = now.map_or(0, |now| u64::from(now[column])) + before.map_or(0, |page| page.count(column));
                if count > 0 {
                    out.push(Count { key: key(measure, number * PAGE + column), count });
                }
            }
        }
    }
}

const _: () = assert!(size_of::<Page>() == 16, "a list takes no more room than a pointer");

impl Page {
    fn count(&self, column: usize) -> u64 {
        match self {
            Self::Few(columns, counts) => Self::listed(columns, counts, column).map_or(0, |at| counts[at].into()),
            Self::U8(counts) => counts[column].into(),
            Self::U16(counts) => counts[column].into(),
            Self::U32(counts) => counts[column].into(),
            Self::U64(counts) => counts[column],
        }
    }

    /// The place of a cell in a list, or the first free one; `None` if there is neither.
    fn listed(columns: &[u8; LISTED_CELLS], counts: &[u8; LISTED_CELLS], column: usize) -> Option<usize> {
        (0..LISTED_CELLS).find(|at| counts[*at] == 0 || usize::from(columns[*at]) == column)
    }

    /// Adds to a count, and widens the page where it no longer fits.
    fn add(&mut self, column: usize, more: u32) {
        let sum = self.count(column).saturating_add(more.into());
        let fits = match self {
            Self::Few(columns, counts) => match (Self::listed(columns, counts, column), u8::try_from(sum)) {
                (Some(at), Ok(sum)) => {
                    (columns[at], counts[at]) = (column as u8, sum); // below `PAGE`
                    true
                }
                _ => false,
            },
            Self::U8(counts) => u8::try_from(sum).map(|sum| counts[column] = sum).is_ok(),
            Self::U16(counts) => u16::try_from(sum).map(|sum| counts[column] = sum).is_ok(),
            Self::U32(counts) => u32::try_from(sum).map(|sum| counts[column] = sum).is_ok(),
            Self::U64(counts) => {
                counts[column] = sum;
                true
            }
        };
        if !fits {
            *self = match self {
                Self::Few(columns, counts) => {
                    let mut page = Box::new([0; PAGE]);
                    columns
                        .iter()
                        .zip(counts)
                        .filter(|(_, count)| **count > 0)
                        .for_each(|(at, count)| page[usize::from(*at)] = *count);
                    Self::U8(page)
                }
                Self::U8(counts) => Self::U16(Box::new(counts.map(u16::from))),
                Self::U16(counts) => Self::U32(Box::new(counts.map(u32::from))),
                Self::U32(counts) => Self::U64(Box::new(counts.map(u64::from))),
                Self::U64(_) => return,
            };
            self.add(column, more);
        }
    }
}

/// The numbers in a set of pages, ascending.
fn pages(set: &[u64; WORDS]) -> impl Iterator<Item = usize> + use<> {
    let set = *set;
    set.into_iter().enumerate().flat_map(|(word, mut bits)| {
        std::iter::from_fn(move || {
            let number = (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize);
            bits &= bits.wrapping_sub(1);
            number
        })
    })
}

/// How many pages of a set are below `number`.
fn rank(set: &[u64; WORDS], number: usize) -> usize {
    let below = |word: &u64| word.count_ones() as usize;
    let partial = set[number / 64] & ((1 << (number % 64)) - 1);
    set[..number / 64].iter().map(below).sum::<usize>() + below(&partial)
}

/// The key of a count, which sorts by measure and then by cell.
pub(crate) const fn key(measure: u32, cell: usize) -> u32 {
    measure << 16 | cell as u32
}

/// Sorts by key and adds up counts with the same key.
pub(crate) fn coalesce(counts: &mut Vec<Count<u64>>) {
    counts.sort_unstable_by_key(|c| c.key);
    counts.dedup_by(|later, kept| {
        let same = later.key == kept.key;
        if same {
            kept.count += later.count;
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::layout::Layout;
    use super::*;

    fn read(cells: &Cells, all: bool) -> Vec<u64> {
        let mut out = Vec::new();
        cells.read(0, all, &mut out);
        out.iter().map(|c| c.count).collect()
    }

    #[test]
    fn rotation_moves_counts_and_loses_none() {
        let mut cells = Cells::new();
        let mut slot = Vec::new();
        for value in [5_000, 5_000, 1_000_000, 9_000_000_000] {
            cells.record(Layout::Time.cell(value));
        }
        assert_eq!((read(&cells, false), read(&cells, true)), (vec![2, 1, 1], vec![2, 1, 1]));
        cells.rotate(3, &mut slot);
        assert_eq!(slot.iter().map(|c| (c.key >> 16, c.count)).collect::<Vec<_>>(), [(3, 2), (3, 1), (3, 1)]);
        assert!(slot.is_sorted_by_key(|c| c.key));
        cells.record(Layout::Time.cell(5_000));
        assert_eq!((read(&cells, false), read(&cells, true)), (vec![1], vec![3, 1, 1]));
        slot.clear();
        cells.rotate(0, &mut slot);
        assert_eq!(slot.len(), 1);
    }

    #[test]
    fn a_page_widens_and_loses_none() {
        let (mut cells, mut out) = (Cells::new(), Vec::new());
        let mut sum = 0;
        for step in [200_u32, 100, 70_000, u32::MAX, u32::MAX] {
            // another cell first, so that the page is not that of one count
            cells.record(64);
            cells.record(70);
            *cells.now.last_mut().unwrap().last_mut().unwrap() = step;
            cells.rotate(0, &mut out);
            sum += u64::from(step);
            assert_eq!(read(&cells, true).last(), Some(&sum));
        }
        assert_eq!(read(&cells, true), [5, 5, sum]);
    }

    /// Cells far apart, and cells of a few pages, which outgrow their lists.
    fn cells() -> impl Strategy<Value = Vec<u16>> {
        prop_oneof![prop::collection::vec(0..CELLS as u16, 0..40), prop::collection::vec(0..150_u16, 0..400)]
    }

    proptest! {
        #[test]
        fn it_is_a_map_of_counts(slots in prop::collection::vec(cells(), 0..6), last in cells()) {
            let (mut cells, mut all) = (Cells::new(), BTreeMap::new());
            let mut record = |cells: &mut Cells, slot: &[u16]| {
                let mut now = BTreeMap::new();
                for cell in slot {
                    cells.record(*cell);
                    *now.entry(u32::from(*cell)).or_insert(0_u64) += 1;
                    *all.entry(u32::from(*cell)).or_insert(0_u64) += 1;
                }
                (now, all.clone())
            };
            let pairs = |out: Vec<Count<u64>>| out.iter().map(|c| (c.key, c.count)).collect::<Vec<_>>();
            for slot in &slots {
                let (now, _) = record(&mut cells, slot);
                let mut out = Vec::new();
                cells.rotate(0, &mut out);
                prop_assert_eq!(out.iter().map(|c| (c.key, c.count.into())).collect::<Vec<_>>(), now.into_iter().collect::<Vec<_>>());
            }
            let (now, all) = record(&mut cells, &last);
            for (is_all, expected) in [(false, now), (true, all)] {
                let mut out = Vec::new();
                cells.read(0, is_all, &mut out);
                prop_assert_eq!(pairs(out), expected.into_iter().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn equal_keys_are_added_up() {
        let mut counts = vec![Count { key: 2, count: 1 }, Count { key: 1, count: 5 }, Count { key: 2, count: 7 }];
        coalesce(&mut counts);
        assert_eq!(counts, [Count { key: 1, count: 5 }, Count { key: 2, count: 8 }]);
    }
}
