//! How late spans come: a small histogram whose counts decay. Spans that come in one batch count once, by the latest of them, because
//! they share their exporter's delay: a thousand spans of one batch say no more about the next batch than one does.

use lapwing_ledger::Stamp;

/// Upper bounds in milliseconds; the last place counts everything above.
const BOUNDS_MS: [u64; 15] =
    [1, 250, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 8_000, 12_000, 20_000, 40_000, 80_000, 300_000];
const MS: u64 = 1_000_000;
/// Fewer batches than this say nothing about the longest delay.
const MIN_BATCHES: u8 = 16;
/// When so many batches were counted, the counts are halved.
const MAX_BATCHES: u8 = 64;

/// Delays of batches, counted by size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delays {
    counts: [u8; BOUNDS_MS.len() + 1],
    batches: u8,
    /// When the latest batch came, and the place of its longest delay.
    latest: (Stamp, usize),
}

impl Delays {
    /// Counts the delay of a span that came at `came`.
    pub(crate) fn add(&mut self, came: Stamp, delay_ns: u64) {
        let at = BOUNDS_MS.partition_point(|bound| bound * MS < delay_ns);
        let (latest, longest) = self.latest;
        if self.batches > 0 && latest == came {
            if at > longest {
                self.counts[longest] = self.counts[longest].saturating_sub(1);
                self.counts[at] += 1;
                self.latest.1 = at;
            }
            return;
        }
        if self.batches >= MAX_BATCHES {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.batches = self.counts.iter().sum();
        }
        self.counts[at] += 1;
        self.batches += 1;
        self.latest = (came, at);
    }

    /// Whether every span that is remembered came along with its parent.
    pub(crate) fn is_none(&self) -> bool {
        self.counts[1..].iter().all(|count| *count == 0)
    }

    /// Four times the longest delay of the last 32 to 64 batches, rounded up: of some fifty later delays one is longer than the
    /// longest of these, but almost none is longer than this. Without bound while there are too few batches.
    pub(crate) fn longest_ns(&self) -> u64 {
        let longest = self.counts.iter().rposition(|count| *count > 0).filter(|_| self.batches >= MIN_BATCHES);
        longest.and_then(|at| BOUNDS_MS.get(at)).map_or(u64::MAX, |bound| bound * MS * 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Stamp {
        Stamp::default().plus(ms * MS)
    }

    #[test]
    fn batches_count_once_and_few_of_them_tell_nothing() {
        let mut delays = Delays::default();
        assert!(delays.is_none());
        for delay_ms in [0, 40, 4_100, 900] {
            (0..99).for_each(|_| delays.add(at(5_000), delay_ms * MS));
        }
        assert!(!delays.is_none());
        (2..MIN_BATCHES.into()).for_each(|n| delays.add(at(n * 5_000), 200 * MS));
        assert_eq!(delays.longest_ns(), u64::MAX);
        delays.add(at(100_000), 200 * MS);
        assert_eq!(delays.longest_ns(), 20_000 * MS, "of the first batch");
        (100..200).for_each(|n| delays.add(at(n * 5_000), 200 * MS));
        assert_eq!(delays.longest_ns(), 1_000 * MS, "it was long ago");
        delays.add(at(9_000_000), u64::MAX);
        assert_eq!(delays.longest_ns(), u64::MAX);
    }
}
