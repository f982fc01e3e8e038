//! Counts in a fixed number of bins, with memory only for the stretches of bins that are in use, and where the bins lie. Counts only
//! grow, and bins never change: pods of different versions add up.
//!
//! A latency has the bins of an HDR histogram of nanoseconds, exact below 2.048 µs and at most 0.1 % wide above. The ratio of a pair,
//! candidate to baseline, has bins symmetric about the tie, 0.1 % wide up to 12.8 %, then 32 per octave of the difference. Whole
//! multiples of 0.1 % are edges, so a margin of 2 % is decided exactly.

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

/// How many bins there are. Bins never change: pods of different versions add up.
pub(crate) const LATENCY_BINS: usize = 34_816;

/// The greatest latency that is distinguished: 2⁴³ − 1 ns, 2.4 hours.
pub(crate) const MAX_LATENCY_NS: u64 = (1 << 43) - 1;

/// The last bin holds every latency from 2.44 hours, and the side of a pair that failed or timed out.
pub(crate) const LATENCY_OVERFLOW: usize = LATENCY_BINS - 1;

/// Bins with a width of 1 ns.
const EXACT_LATENCY_BINS: u64 = 2_048;
/// Bins of each octave above.
const LATENCY_BINS_PER_OCTAVE: u64 = 1_024;

/// The bin of a latency.
pub(crate) fn latency_bin(ns: u64) -> usize {
    let ns = ns.min(MAX_LATENCY_NS);
    if ns < EXACT_LATENCY_BINS {
        return ns as usize;
    }
    let octave = ns.ilog2();
    (EXACT_LATENCY_BINS + u64::from(octave - 11) * LATENCY_BINS_PER_OCTAVE + (ns >> (octave - 10)) - LATENCY_BINS_PER_OCTAVE)
        as usize
}

/// The lower edge of a bin in nanoseconds, which is the upper edge of the bin before; infinite past the last bin.
pub(crate) fn latency_edge_ns(bin: usize) -> f64 {
    let at = bin as u64;
    if bin >= LATENCY_BINS {
        f64::INFINITY
    } else if at < EXACT_LATENCY_BINS {
        at as f64
    } else {
        ((LATENCY_BINS_PER_OCTAVE + (at - EXACT_LATENCY_BINS) % LATENCY_BINS_PER_OCTAVE)
            << ((at - EXACT_LATENCY_BINS) / LATENCY_BINS_PER_OCTAVE + 1)) as f64
    }
}

/// How many bins there are. Bins never change: pods of different versions add up.
pub(crate) const RATIO_BINS: usize = 2 * TIE + 1;

/// The bin of ties: the latencies differ by less than 0.1 %. Below it the candidate is faster. The first and the last bin hold
/// ratios beyond 1,050 and pairs of which one side failed.
pub(crate) const TIE: usize = 544;

/// Bins of a side with a width of 0.1 %.
const LINEAR_RATIO_BINS: u64 = 128;
/// Bins of each octave above.
const RATIO_BINS_PER_OCTAVE: u64 = 32;

/// The bin of a pair's ratio, from latencies in nanoseconds. A latency of 0 counts as 1 ns; one above 2⁴³ ns as 2⁴³ ns.
pub(crate) fn ratio_bin(baseline_ns: u64, candidate_ns: u64) -> usize {
    let (baseline_ns, candidate_ns) = (baseline_ns.min(MAX_LATENCY_NS), candidate_ns.min(MAX_LATENCY_NS));
    let (low, high) = (baseline_ns.min(candidate_ns), baseline_ns.max(candidate_ns));
    let permille = (high - low) * 1_000 / low.max(1);
    let from_tie = if permille < LINEAR_RATIO_BINS {
        permille
    } else {
        let octave = permille.ilog2();
        (LINEAR_RATIO_BINS + u64::from(octave - 7) * RATIO_BINS_PER_OCTAVE + (permille >> (octave - 5)) - RATIO_BINS_PER_OCTAVE)
            .min(TIE as u64)
    };
    if candidate_ns > baseline_ns { TIE + from_tie as usize } else { TIE - from_tie as usize }
}

/// By how many thousandths the slower side exceeds the faster one at the inner edge of the bin `from_tie` bins from the tie.
fn excess_permille(from_tie: usize) -> u64 {
    let at = from_tie as u64;
    if at < LINEAR_RATIO_BINS {
        at
    } else {
        (RATIO_BINS_PER_OCTAVE + (at - LINEAR_RATIO_BINS) % RATIO_BINS_PER_OCTAVE)
            << ((at - LINEAR_RATIO_BINS) / RATIO_BINS_PER_OCTAVE + 2)
    }
}

/// The ratio at the lower edge of a bin, which is the upper edge of the bin before: 0 for the first, infinite past the last.
pub(crate) fn ratio_edge(bin: usize) -> f64 {
    let ratio = |from_tie| 1.0 + excess_permille(from_tie) as f64 / 1_000.0;
    if bin == 0 {
        0.0
    } else if bin <= TIE {
        1.0 / ratio(TIE - bin + 1)
    } else if bin < RATIO_BINS {
        ratio(bin - TIE)
    } else {
        f64::INFINITY
    }
}
