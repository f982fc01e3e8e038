//! What the counters of the table were, every two seconds for the longest window: a window's own counts are differences.

use std::collections::VecDeque;

use super::table::TRACKED;
use crate::MAX_WINDOW_NS;
use lapwing_ledger::Stamp;
use lapwing_metrics::{Counter, Counters};

/// Between two readings, in nanoseconds.
const EVERY_NS: u64 = 2_000_000_000;
/// How many readings are kept.
const LOOKS: usize = (MAX_WINDOW_NS / EVERY_NS) as usize + 1;

/// The values of all tracked counters, in the order of [`TRACKED`].
type Values = [u64; TRACKED.len()];

/// The counters' past. It takes at most 40 KiB.
#[derive(Debug, Default)]
pub(crate) struct CounterHistory {
    looks: VecDeque<(Stamp, Values)>,
}

/// How much each tracked counter grew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterGrowth(Values);

fn read(counters: &Counters) -> Values {
    TRACKED.map(|counter| counters.get(counter))
}

impl CounterHistory {
    /// Reads the counters, if it is time.
    pub(crate) fn record(&mut self, counters: &Counters, now: Stamp) {
        if self.looks.back().is_some_and(|(at, _)| now.since(*at) < EVERY_NS) {
            return;
        }
        if self.looks.len() == LOOKS {
            self.looks.pop_front();
        }
        self.looks.push_back((now, read(counters)));
    }

    /// How much they have grown since `from`: by the latest reading before it, else since the start.
    pub(crate) fn growth(&self, counters: &Counters, from: Stamp) -> CounterGrowth {
        let later = self.looks.partition_point(|(at, _)| *at <= from);
        let zero = [0; TRACKED.len()];
        let before = later.checked_sub(1).and_then(|at| self.looks.get(at)).map_or(&zero, |(_, values)| values);
        let mut growth = read(counters);
        growth.iter_mut().zip(before).for_each(|(now, before)| *now = now.saturating_sub(*before));
        CounterGrowth(growth)
    }
}

impl CounterGrowth {
    /// The sum over these counters; one that is not tracked counts nothing.
    pub(crate) fn sum(&self, counters: &[Counter]) -> u64 {
        let of = |counter: &Counter| TRACKED.iter().position(|tracked| tracked == counter).map_or(0, |at| self.0[at]);
        counters.iter().map(of).fold(0, u64::saturating_add)
    }
}
