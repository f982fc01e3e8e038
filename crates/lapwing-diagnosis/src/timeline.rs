//! When requests of a series came and ended, counted exactly for a little more than the longest window: arrivals by tenths of a
//! second, and for each hundredth of a second whether any request ended in it.

use lapwing_ledger::Stamp;

/// The length of a bin of arrivals, in nanoseconds.
pub(crate) const ARRIVAL_BIN_NS: u64 = 100_000_000;
/// The length of a bin of ends, in nanoseconds.
pub(crate) const END_BIN_NS: u64 = 10_000_000;
/// How far it reaches back: 330 s, which is the longest window and the time that spans are waited for.
const ARRIVAL_BINS: u64 = 3_300;
const END_WORDS: u64 = 520;

/// Arrivals and ends of a series. It takes 10.8 KiB whatever comes.
#[derive(Debug)]
pub(crate) struct Timeline {
    arrivals: Box<[u16]>,
    ends: Box<[u64]>,
    /// The latest bin of arrivals that is valid, and the latest word of ends.
    latest: (u64, u64),
    /// The first and the last arrival ever.
    first: Stamp,
    last: Stamp,
}

impl Timeline {
    /// An empty one, whose first request came at `now`.
    pub(crate) fn new(now: Stamp) -> Self {
        Self {
            arrivals: vec![0; ARRIVAL_BINS as usize].into(),
            ends: vec![0; END_WORDS as usize].into(),
            latest: (now.as_ns() / ARRIVAL_BIN_NS, now.as_ns() / END_BIN_NS / 64),
            first: now,
            last: now,
        }
    }

    /// Counts a request. Arrivals and ends that are older than it reaches are left out.
    pub(crate) fn record(&mut self, arrived: Stamp, ended: Stamp) {
        (self.first, self.last) = (self.first.min(arrived), self.last.max(arrived));
        let bin = arrived.as_ns() / ARRIVAL_BIN_NS;
        advance(&mut self.arrivals, &mut self.latest.0, bin);
        if bin + ARRIVAL_BINS > self.latest.0 {
            let count = &mut self.arrivals[(bin % ARRIVAL_BINS) as usize];
            *count = count.saturating_add(1);
        }
        let bin = ended.as_ns() / END_BIN_NS;
        advance(&mut self.ends, &mut self.latest.1, bin / 64);
        if bin / 64 + END_WORDS > self.latest.1 {
            self.ends[(bin / 64 % END_WORDS) as usize] |= 1 << (bin % 64);
        }
    }

    /// The first arrival ever.
    pub(crate) const fn first(&self) -> Stamp {
        self.first
    }

    /// Arrivals per bin, from the later of `from` and the first arrival to the last one, and the stamp at which the first bin begins.
    pub(crate) fn arrivals(&self, from: Stamp) -> (Stamp, Vec<u16>) {
        let oldest = (self.latest.0 + 1).saturating_sub(ARRIVAL_BINS);
        let first = (from.max(self.first).as_ns() / ARRIVAL_BIN_NS).max(oldest);
        let last = (self.last.as_ns() / ARRIVAL_BIN_NS).min(self.latest.0);
        let counts = (first..=last).map(|bin| self.arrivals[(bin % ARRIVAL_BINS) as usize]).collect();
        (Stamp::default().plus(first * ARRIVAL_BIN_NS), counts)
    }

    /// The longest time between `from` and `to` in which no request of the series ended, in whole bins without the one in which
    /// `to` lies: its start and its length in nanoseconds.
    pub(crate) fn longest_silence(&self, from: Stamp, to: Stamp) -> (Stamp, u64) {
        let oldest = (self.latest.1 + 1).saturating_sub(END_WORDS) * 64;
        let (first, last) = ((from.as_ns() / END_BIN_NS + 1).max(oldest), to.as_ns() / END_BIN_NS);
        let (mut best, mut run_from) = ((first, 0), first);
        let mut bin = first;
        while bin < last {
            let word = if bin / 64 > self.latest.1 { 0 } else { self.ends[(bin / 64 % END_WORDS) as usize] } >> (bin % 64);
            let free = u64::from(word.trailing_zeros()).min(64 - bin % 64).min(last - bin);
            bin += free;
            if bin - run_from > best.1 {
                best = (run_from, bin - run_from);
            }
            if bin < last && bin % 64 != 0 || free == 0 {
                // this bin has an end in it
                bin += 1;
                run_from = bin;
            }
        }
        (Stamp::default().plus(best.0 * END_BIN_NS), best.1 * END_BIN_NS)
    }
}

/// Makes `to` the latest place of a ring, and empties those between.
fn advance<T: Copy + Default>(ring: &mut [T], latest: &mut u64, to: u64) {
    let length = ring.len() as u64;
    if to <= *latest {
        return;
    }
    for place in (*latest + 1).max((to + 1).saturating_sub(length))..=to {
        ring[(place % length) as usize] = T::default();
    }
    *latest = to;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Stamp {
        Stamp::default().plus(ms * 1_000_000)
    }

    #[test]
    fn the_longest_silence_is_between_the_ends_beside_it() {
        let mut timeline = Timeline::new(at_ms(1_000));
        for ended in [1_205, 1_305, 2_005, 2_105] {
            timeline.record(at_ms(1_100), at_ms(ended));
        }
        assert_eq!(timeline.longest_silence(at_ms(1_100), at_ms(2_105)), (at_ms(1_310), 690_000_000));
        assert_eq!(timeline.longest_silence(at_ms(1_400), at_ms(1_900)), (at_ms(1_410), 490_000_000));
        assert_eq!(timeline.longest_silence(at_ms(1_900), at_ms(1_900)).1, 0);
        assert_eq!(timeline.longest_silence(at_ms(1_900), at_ms(1_000)).1, 0);
    }

    #[test]
    fn what_is_too_old_is_left_out_and_time_may_jump() {
        let mut timeline = Timeline::new(at_ms(1_000));
        timeline.record(at_ms(1_000), at_ms(1_001));
        timeline.record(at_ms(700_000), at_ms(700_100));
        timeline.record(at_ms(1_100), at_ms(1_200));
        let (start, counts) = timeline.arrivals(at_ms(0));
        assert_eq!((start, counts.len(), counts.iter().map(|n| u64::from(*n)).sum::<u64>()), (at_ms(370_100), 3_300, 1));
        timeline.record(Stamp::default().plus(u64::MAX), Stamp::default().plus(u64::MAX));
        assert_eq!(timeline.arrivals(at_ms(0)).1.len(), 3_300);
        assert!(timeline.longest_silence(at_ms(0), at_ms(10)).1 < 20_000_000);
    }

    #[test]
    fn silence_agrees_with_a_search_bin_by_bin() {
        let mut random = crate::random::SeededRandom::new(7);
        for _ in 0..200 {
            let mut timeline = Timeline::new(at_ms(5_000));
            let ends: Vec<u64> = (0..random.below(30)).map(|_| 500 + random.below(400)).collect();
            for end in &ends {
                timeline.record(at_ms(5_000), at_ms(end * 10));
            }
            let (from, to) = (500 + random.below(200), 700 + random.below(200));
            let (mut longest, mut run) = (0, 0);
            for bin in from + 1..to {
                run = if ends.contains(&bin) { 0 } else { run + 1 };
                longest = longest.max(run);
            }
            assert_eq!(
                timeline.longest_silence(at_ms(from * 10), at_ms(to * 10)).1,
                longest * 10_000_000,
                "{from}..{to}: {ends:?}"
            );
        }
    }
}
