//! Predicts the next call from the gaps between the latest calls, and decides whether waiting for it pays.
//!
//! It keeps the gaps themselves, not their mean: calls that arrive in bursts have many short gaps and a few long ones, and a wait
//! just longer than the short ones pays where a wait for the mean gap would not. Times are nanoseconds. It holds no call.

use lapwing_engine::clock::Stamp;

/// How many gaps are kept.
const KEPT: usize = 64;
/// The wait for another gap like one seen, as a multiple of that gap.
const SLACK: f64 = 1.25;

/// The latest gaps between arrivals.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    seen: u64,
    last: Option<Stamp>,
    gaps: [u64; KEPT],
}

impl Default for Arrivals {
    fn default() -> Self {
        Self { seen: 0, last: None, gaps: [0; KEPT] }
    }
}

impl Arrivals {
    /// Records one call.
    pub(crate) fn note(&mut self, at: Stamp) {
        if let Some(last) = self.last {
            self.gaps[(self.seen - 1) as usize % KEPT] = at.since(last);
        }
        self.seen += 1;
        self.last = Some(self.last.map_or(at, |last| last.max(at)));
    }

    /// Until when to wait for the next call; `None` where it does not pay.
    ///
    /// One more call saves `saved_ns` less the time of the wait; each of the `waiting` calls loses that time. The result is the
    /// wait that would have saved the most over the gaps seen lately that are longer than the time since the last call; `None` if
    /// none would have saved any.
    pub(crate) fn pays_until(&self, now: Stamp, saved_ns: f64, waiting: usize) -> Option<Stamp> {
        let last = self.last?;
        let passed = now.since(last);
        let mut gaps = self.gaps;
        let seen = &mut gaps[..((self.seen - 1) as usize).min(KEPT)];
        seen.sort_unstable();
        let ahead = &seen[seen.partition_point(|&gap| gap <= passed)..];
        let waiting = waiting as f64;
        let (mut met, mut best) = (0.0, (0.0, None));
        for (i, &gap) in ahead.iter().enumerate() {
            let wait = (gap - passed) as f64;
            if wait >= saved_ns {
                break;
            }
            met += (saved_ns - wait) - waiting * wait;
            let until = last.plus((gap as f64 * SLACK) as u64);
            let missed = (ahead.len() - i - 1) as f64 * waiting * until.since(now) as f64;
            if met - missed > best.0 {
                best = (met - missed, Some(until));
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Stamp {
        Stamp::default().plus(us * 1000 + 1)
    }

    fn seen(gaps_us: impl IntoIterator<Item = u64>) -> (Arrivals, u64) {
        let (mut arrivals, mut now) = (Arrivals::default(), 0);
        arrivals.note(at(now));
        for gap in gaps_us {
            now += gap;
            arrivals.note(at(now));
        }
        (arrivals, now)
    }

    #[test]
    fn waits_for_a_call_that_comes_soon_and_not_for_one_that_comes_late() {
        let (often, now) = seen([100; 80]);
        let until = often.pays_until(at(now), 1e6, 1).unwrap();
        assert_eq!(until, at(now).plus(125_000), "the gap and a quarter");
        assert_eq!(often.pays_until(at(now), 1e6, 9), None, "ten calls lose a tenth of a millisecond each");
        assert_eq!(often.pays_until(at(now), 0.0, 1), None, "nothing to save");
        assert_eq!(often.pays_until(at(now + 101), 1e6, 1), None, "it should have come by now");
        let (rare, now) = seen([2000; 80]);
        assert_eq!(rare.pays_until(at(now), 1e6, 1), None);
        assert_eq!(Arrivals::default().pays_until(at(1), 1e6, 1), None);
    }

    #[test]
    fn volleys_are_waited_for_though_the_mean_gap_is_long() {
        let volleys = (0..80).map(|i| if i % 8 == 7 { 50_000 } else { 50 });
        let (arrivals, now) = seen(volleys.chain([50]));
        assert_eq!(arrivals.pays_until(at(now), 1e6, 2), Some(at(now).plus(62_500)));
        assert_eq!(arrivals.pays_until(at(now + 63), 1e6, 2), None, "the volley is over");
    }

    #[test]
    fn a_stamp_from_another_thread_may_be_a_little_older() {
        let (mut arrivals, now) = seen([100; 3]);
        arrivals.note(at(now - 1));
        assert_eq!(arrivals.last, Some(at(now)));
    }
}
