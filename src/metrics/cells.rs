//! Counts in the cells of a histogram layout, kept in pages, so that only cells that were hit cost memory.
//!
//! A dense `hdrhistogram` with these bounds is 192 KiB, all of it written when it is created. A latency that spreads over a
//! factor of two touches sixteen pages here, 12 KiB. Two counts are kept side by side, since the last rotation and before it, so
//! a rotation costs only the pages that were hit and not the whole range.

use super::layout::CELLS;

const PAGE: usize = 64;
const PAGES: usize = CELLS / PAGE;
/// The mark in the directory for a page that was never hit.
const NONE: u16 = u16::MAX;
/// How many pages are added at a time, so that doubling the vector does not waste half of it.
const GROWTH: usize = 4;

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
    directory: [u16; PAGES],
    hit: [u64; PAGES / 64],
    pages: Vec<Page>,
}

#[derive(Debug)]
struct Page {
    now: [u32; PAGE],
    before: [u64; PAGE],
}

impl Cells {
    /// An empty histogram: about 800 bytes until something is recorded.
    pub(crate) const fn new() -> Self {
        Self { directory: [NONE; PAGES], hit: [0; PAGES / 64], pages: Vec::new() }
    }

    /// Adds one to a cell.
    pub(crate) fn record(&mut self, cell: u16) {
        let at = usize::from(cell);
        let (number, column) = (at / PAGE, at % PAGE);
        if self.directory[number] == NONE {
            self.grow(number);
        }
        let page = &mut self.pages[usize::from(self.directory[number])];
        page.now[column] = page.now[column].saturating_add(1);
        self.hit[number / 64] |= 1 << (number % 64);
    }

    #[cold]
    fn grow(&mut self, number: usize) {
        if self.pages.len() == self.pages.capacity() {
            self.pages.reserve_exact(GROWTH);
        }
        self.directory[number] = u16::try_from(self.pages.len()).unwrap_or(0); // at most `PAGES`
        self.pages.push(Page { now: [0; PAGE], before: [0; PAGE] });
    }

    /// Moves the counts since the last rotation to those before it, and appends them to `out` in the order of keys.
    pub(crate) fn rotate(&mut self, measure: u32, out: &mut Vec<Count<u32>>) {
        for (word, hit) in self.hit.iter_mut().enumerate() {
            while *hit != 0 {
                let number = word * 64 + hit.trailing_zeros() as usize;
                *hit &= *hit - 1;
                let page = &mut self.pages[usize::from(self.directory[number])];
                for (column, now) in page.now.iter_mut().enumerate().filter(|(_, now)| **now > 0) {
                    page.before[column] += u64::from(*now);
                    out.push(Count { key: key(measure, number * PAGE + column), count: *now });
                    *now = 0;
                }
            }
        }
    }

    /// Appends the counts since the last rotation to `out`, and with `all` those before it too, in the order of keys.
    pub(crate) fn read(&self, measure: u32, all: bool, out: &mut Vec<Count<u64>>) {
        for (number, place) in self.directory.iter().enumerate().filter(|(_, place)| **place != NONE) {
            let page = &self.pages[usize::from(*place)];
            for column in 0..PAGE {
                let count = u64::from(page.now[column]) + if all { page.before[column] } else { 0 };
                if count > 0 {
                    out.push(Count { key: key(measure, number * PAGE + column), count });
                }
            }
        }
    }
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
    fn equal_keys_are_added_up() {
        let mut counts = vec![Count { key: 2, count: 1 }, Count { key: 1, count: 5 }, Count { key: 2, count: 7 }];
        coalesce(&mut counts);
        assert_eq!(counts, [Count { key: 1, count: 5 }, Count { key: 2, count: 8 }]);
    }
}
