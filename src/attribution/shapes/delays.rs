//! How late spans come: a small histogram that forgets.

/// Upper bounds in milliseconds; the last place counts everything above.
const BOUNDS_MS: [u64; 15] =
    [1, 250, 500, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 8_000, 12_000, 20_000, 40_000, 80_000, 300_000];
const MS: u64 = 1_000_000;

/// Delays, counted by size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delays {
    counts: [u8; BOUNDS_MS.len() + 1],
}

impl Delays {
    /// Counts a delay.
    pub(super) fn add(&mut self, delay_ns: u64) {
        let at = BOUNDS_MS.partition_point(|bound| bound * MS < delay_ns);
        self.counts[at] = self.counts[at].saturating_add(1);
    }

    /// Forgets half of what was counted.
    pub(super) fn halve(&mut self) {
        self.counts.iter_mut().for_each(|count| *count /= 2);
    }

    /// Four times the longest delay that is remembered, rounded up. One of some fifty later delays is longer than the longest of
    /// the last fifty, but almost none is longer than this. Zero if all came along with their parents.
    pub(super) fn longest_ns(&self) -> u64 {
        match self.counts.iter().rposition(|count| *count > 0) {
            None | Some(0) => 0,
            Some(at) => BOUNDS_MS.get(at).map_or(u64::MAX, |bound| bound * MS * 4),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_times_the_longest_delay_is_remembered_for_a_while() {
        let mut delays = Delays::default();
        assert_eq!(delays.longest_ns(), 0);
        delays.add(0);
        delays.add(MS);
        assert_eq!(delays.longest_ns(), 0, "with its parent");
        (0..3).for_each(|_| delays.add(200 * MS));
        delays.add(4_100 * MS);
        assert_eq!(delays.longest_ns(), 20_000 * MS);
        delays.halve();
        assert_eq!(delays.longest_ns(), 1_000 * MS);
        delays.add(u64::MAX);
        assert_eq!(delays.longest_ns(), u64::MAX);
    }
}
