//! Counts in a fixed number of bins, with memory only for the stretches of bins that are in use. Counts only grow.

use std::mem::size_of;

/// Bins that are allocated together: an eighth of an octave of latencies.
const CHUNK: usize = 128;

/// Counts by bin. Recording is one addition each to a bin, to its chunk and to the total.
///
/// A chunk of 128 bins takes 1 KiB and is allocated with its first count; the totals of chunks make cumulative counts cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BinCounts {
    chunks: Vec<Option<Box<[u64; CHUNK]>>>,
    chunk_totals: Vec<u64>,
    total: u64,
}

impl BinCounts {
    /// Empty counts for `bins` bins.
    pub(crate) fn new(bins: usize) -> Self {
        let chunks = bins.div_ceil(CHUNK);
        Self { chunks: vec![None; chunks], chunk_totals: vec![0; chunks], total: 0 }
    }

    /// Counts one value in `bin`.
    pub(crate) fn record(&mut self, bin: usize) {
        self.add(bin, 1);
    }

    /// Adds `count` to `bin`. A bin that does not exist is ignored.
    pub(crate) fn add(&mut self, bin: usize, count: u64) {
        let (at, inside) = (bin / CHUNK, bin % CHUNK);
        let (Some(chunk), Some(total)) = (self.chunks.get_mut(at), self.chunk_totals.get_mut(at)) else { return };
        if count == 0 {
            return;
        }
        let cell = &mut chunk.get_or_insert_with(|| Box::new([0; CHUNK]))[inside];
        *cell = cell.saturating_add(count);
        *total = total.saturating_add(count);
        self.total = self.total.saturating_add(count);
    }

    /// Adds the counts of `other`, which has the same bins.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (bin, count) in other.non_empty() {
            self.add(bin, count);
        }
    }

    /// What was counted since `earlier`, or `None` if a bin has fewer counts now than then.
    pub(crate) fn since(&self, earlier: &Self) -> Option<Self> {
        let mut increase = Self::new(self.chunks.len() * CHUNK);
        for (at, totals) in self.chunk_totals.iter().zip(&earlier.chunk_totals).enumerate() {
            if *totals.0 < *totals.1 {
                return None;
            }
            for bin in (at * CHUNK..(at + 1) * CHUNK).filter(|_| *totals.0 > 0) {
                match self.at(bin).checked_sub(earlier.at(bin))? {
                    0 => {}
                    count => increase.add(bin, count),
                }
            }
        }
        Some(increase)
    }

    /// How many values were counted.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The count of `bin`.
    pub(crate) fn at(&self, bin: usize) -> u64 {
        let chunk = self.chunks.get(bin / CHUNK).and_then(Option::as_deref);
        chunk.map_or(0, |chunk| chunk[bin % CHUNK])
    }

    /// The count of all bins below `bin`. Costs a scan of the chunks' totals and of a part of one chunk.
    pub(crate) fn below(&self, bin: usize) -> u64 {
        let at = (bin / CHUNK).min(self.chunks.len());
        let whole: u64 = self.chunk_totals[..at].iter().sum();
        let part = self.chunks.get(at).and_then(Option::as_deref).map_or(0, |chunk| chunk[..bin % CHUNK].iter().sum());
        whole + part
    }

    /// The first non-empty bin whose cumulative count, itself included, is at least `rank`; `None` if `rank` exceeds the total or
    /// nothing was counted.
    pub(crate) fn find(&self, rank: f64) -> Option<usize> {
        let mut below = 0;
        for (at, total) in self.chunk_totals.iter().enumerate().filter(|(_, total)| **total > 0) {
            if ((below + total) as f64) < rank {
                below += total;
                continue;
            }
            let chunk = self.chunks[at].as_deref()?;
            for (inside, count) in chunk.iter().enumerate() {
                below += count;
                if *count > 0 && below as f64 >= rank {
                    return Some(at * CHUNK + inside);
                }
            }
        }
        None
    }

    /// The non-empty bins with their counts, in rising order.
    pub(crate) fn non_empty(&self) -> impl Iterator<Item = (usize, u64)> {
        let chunks = self.chunks.iter().enumerate().filter_map(|(at, chunk)| Some((at, chunk.as_deref()?)));
        let bins =
            chunks.flat_map(|(at, chunk)| chunk.iter().enumerate().map(move |(inside, count)| (at * CHUNK + inside, *count)));
        bins.filter(|(_, count)| *count > 0)
    }

    /// The memory that it takes, in bytes, without the struct itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        let pointers = self.chunks.len() * (size_of::<Option<Box<[u64; CHUNK]>>>() + size_of::<u64>());
        pointers + self.chunks.iter().flatten().count() * size_of::<[u64; CHUNK]>()
    }
}
