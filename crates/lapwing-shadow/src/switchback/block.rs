//! What the requests of a block of time show: how many there were, how many failed, what work they were and how long they took.
//!
//! A request counts to the block in which it began, if it ended there too: one that spans a change met both sides.

use lapwing_ledger::{ExchangeKind, Ledger, Outcome, Stamp};

/// Bins of each octave of nanoseconds: 0.8 % wide at most, within which ranks are spread evenly.
const PER_OCTAVE: u64 = 128;
/// Times from 2.4 hours share the last bin.
const BINS: usize = 4_736;

/// Times in nanoseconds, in bins of equal width in logarithms.
#[derive(Clone, Debug)]
pub(crate) struct LogHistogram {
    counts: Box<[u32]>,
    total: u64,
}

impl Default for LogHistogram {
    fn default() -> Self {
        Self { counts: vec![0; BINS].into(), total: 0 }
    }
}

impl LogHistogram {
    #[allow(clippy::cast_possible_truncation, reason = "less than the number of bins")]
    pub(crate) fn record(&mut self, ns: u64) {
        let bin = match ns.checked_ilog2() {
            Some(octave) if octave >= 7 => u64::from(octave - 6) * PER_OCTAVE + (ns >> (octave - 7)) - PER_OCTAVE,
            _ => ns,
        };
        let bin = (bin as usize).min(BINS - 1);
        if let Some(count) = self.counts.get_mut(bin) {
            *count = count.saturating_add(1);
            self.total += 1;
        }
    }

    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum = sum.saturating_add(*count);
        }
        self.total += other.total;
    }

    /// The quantile `q` in nanoseconds; `None` if there is nothing.
    #[allow(clippy::cast_precision_loss, reason = "ranks and nanoseconds within 0.1 %")]
    pub(crate) fn quantile(&self, q: f64) -> Option<f64> {
        let rank = q * self.total as f64;
        let mut below = 0.0;
        for (bin, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = f64::from(*count);
            if below + count >= rank {
                let [low, high] = [bin, bin + 1].map(edge_ns);
                return Some(low + (high - low) * (rank - below) / count);
            }
            below += count;
        }
        None
    }
}

/// The lower edge of a bin.
#[allow(clippy::cast_precision_loss, reason = "less than 2⁵³")]
fn edge_ns(bin: usize) -> f64 {
    let bin = bin as u64;
    if bin < PER_OCTAVE { bin as f64 } else { ((PER_OCTAVE + bin % PER_OCTAVE) << (bin / PER_OCTAVE - 1)) as f64 }
}

/// Requests of a block, or of all blocks of a side.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockFigures {
    /// How long they lasted together, without what is dropped.
    pub(crate) ns: u64,
    /// Requests that began and ended in it.
    pub(crate) requests: u64,
    /// Those of them that failed.
    pub(crate) failed: u64,
    /// The work of those that did not, in the units of each.
    pub(crate) units: u64,
    /// How long those took.
    pub(crate) totals: LogHistogram,
    /// Requests that were not counted because they outlasted it.
    pub(crate) outlasting: u64,
    /// Requests that were not counted because the client left.
    pub(crate) left: u64,
}

impl BlockFigures {
    pub(crate) fn add(&mut self, other: &Self) {
        self.ns += other.ns;
        self.requests += other.requests;
        self.failed += other.failed;
        self.units += other.units;
        self.totals.add(&other.totals);
        self.outlasting += other.outlasting;
        self.left += other.left;
    }

    /// So much of something in a second.
    #[allow(clippy::cast_precision_loss, reason = "rates")]
    pub(crate) fn per_second(&self, amount: u64) -> f64 {
        amount as f64 * 1e9 / self.ns.max(1) as f64
    }
}

/// A block of time.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) is_on: bool,
    pub(crate) is_coin: bool,
    pub(crate) start: Stamp,
    pub(crate) end: Option<Stamp>,
    counted_from: Stamp,
    pub(crate) figures: BlockFigures,
    /// Requests that began in its beginning, which is not counted.
    pub(crate) dropped: u64,
    /// All that ended so far, and those of them that failed, its beginning included.
    ended: u64,
    failed: u64,
    /// Whether at some time at least half of them had failed, of 20 or more. Such a block is not compared, on whichever side: one of the lever's is cut short.
    pub(crate) has_failed: bool,
}

impl Block {
    pub(crate) fn new(is_on: bool, is_coin: bool, start: Stamp, drop_ns: u64) -> Self {
        let figures = BlockFigures::default();
        Self {
            is_on,
            is_coin,
            start,
            end: None,
            counted_from: start.plus(drop_ns),
            figures,
            dropped: 0,
            ended: 0,
            failed: 0,
            has_failed: false,
        }
    }

    /// Takes a request that began in it.
    pub(crate) fn take(&mut self, ledger: &Ledger) {
        let has_failed = match ledger.outcome {
            // refused before anything was tried, for the client's fault
            Outcome::Rejected => return,
            Outcome::Cancelled => {
                self.figures.left += 1;
                return;
            }
            outcome => outcome != Outcome::Ok,
        };
        self.ended += 1;
        self.failed += u64::from(has_failed);
        self.has_failed |= self.ended >= 20 && 2 * self.failed >= self.ended;
        if ledger.started < self.counted_from {
            self.dropped += 1;
        } else if self.end.is_some_and(|end| ledger.started.plus(ledger.total_ns) > end) {
            self.figures.outlasting += 1;
        } else {
            self.figures.requests += 1;
            if has_failed {
                self.figures.failed += 1;
            } else {
                self.figures.units += ledger.work.primary_amount().unwrap_or(0);
                self.figures.totals.record(ledger.total_ns);
            }
        }
    }

    pub(crate) fn close(&mut self, end: Stamp) {
        self.end = Some(end);
        self.figures.ns = end.since(self.counted_from);
    }
}

/// Whether a trial looks at this request at all.
pub(crate) fn is_judged(ledger: &Ledger) -> bool {
    ledger.kind == ExchangeKind::Request && !ledger.is_copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_to_a_bin() {
        let mut histogram = LogHistogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=10_000_u64).for_each(|n| histogram.record(n * 10_000));
        for (q, truth) in [(0.01, 1e6), (0.5, 5e7), (0.99, 9.9e7), (1.0, 1e8)] {
            let found = histogram.quantile(q).unwrap();
            assert!((found / truth - 1.0).abs() < 0.004, "{q}: {found}");
        }
        let mut sum = histogram.clone();
        sum.add(&histogram);
        assert_eq!((sum.total(), sum.quantile(0.5)), (20_000, histogram.quantile(0.5)));
    }

    #[test]
    #[allow(clippy::cast_precision_loss, reason = "a bin is wider")]
    fn bins_have_no_gaps_and_no_value_is_beyond_them() {
        let mut histogram = LogHistogram::default();
        for ns in [0, 1, 127, 128, 129, 255, 256, 1_000_003, 1 << 42, u64::MAX] {
            histogram.record(ns);
            let at = histogram.counts.iter().position(|count| *count > 0).unwrap();
            histogram.counts[at] = 0;
            let is_inside = edge_ns(at) <= ns as f64 && (ns as f64) < edge_ns(at + 1);
            assert!(is_inside || (at == BINS - 1 && ns > 1 << 42), "{ns} in {at}");
        }
    }
}
