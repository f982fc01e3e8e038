//! Exemplars: a few requests of a series whose trace a bucket may name. Bounded: at most 16 for each series, about 5 KB.
//!
//! Each power of two of the total keeps one, answered requests and others apart: the first since the last rotation replaces the one
//! before. So recording costs the reading of one word, and every two seconds a copy of one request's values for each power of two.

use std::sync::Arc;

use super::measure::Measure;
use lapwing_ledger::{Exchange, Stamp, TraceId};

/// How many exemplars a series keeps.
const KEPT: usize = 16;
/// Older ones are not shown: `/exchanges` does not keep the request for longer.
const SHOWN_NS: u64 = 600_000_000_000;

/// The example request of the buckets that its values are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exemplar {
    /// Its trace.
    pub trace: TraceId,
    /// When it ended, in nanoseconds since the Unix epoch.
    pub ended_unix_ns: u64,
    ended: Stamp,
    /// The values that it added to histograms, by measure.
    values: Box<[(u8, u64)]>,
}

impl Exemplar {
    /// What it added to the histogram of `measure`.
    #[must_use]
    pub fn value(&self, measure: Measure) -> Option<u64> {
        let index = measure.index();
        self.values.iter().find(|(own, _)| usize::from(*own) == index).map(|(_, value)| *value)
    }
}

/// The exemplars of a series.
#[derive(Debug, Default)]
pub(crate) struct Exemplars {
    /// The powers of two that have one since the last rotation, a bit each.
    fresh: u64,
    /// The latest last.
    kept: Vec<(u8, Arc<Exemplar>)>,
}

impl Exemplars {
    /// The slot of a request that is wanted as an exemplar.
    pub(crate) fn wants(&self, exchange: &Exchange) -> Option<u8> {
        const { assert!(Measure::COUNT <= 256, "a measure is one byte") };
        let octave = (u64::BITS - (exchange.ledger.total_ns >> 10).leading_zeros()).min(31) as u8;
        let slot = octave + if Measure::of(exchange) == Measure::Total { 0 } else { 32 };
        let is_wanted = self.fresh & (1 << slot) == 0 && exchange.ledger.trace != TraceId::default();
        is_wanted.then_some(slot)
    }

    /// Keeps a request with the values that it added to histograms, in place of the one before in its slot, or else of the oldest.
    #[cold]
    pub(crate) fn replace(&mut self, slot: u8, exchange: &Exchange, values: &[(Measure, u64)]) {
        let ledger = &exchange.ledger;
        self.fresh |= 1 << slot;
        match self.kept.iter().position(|(own, _)| *own == slot) {
            Some(at) => drop(self.kept.remove(at)),
            None if self.kept.len() >= KEPT => drop(self.kept.remove(0)),
            None => {}
        }
        let exemplar = Exemplar {
            trace: ledger.trace,
            ended_unix_ns: ledger.anchor_unix_ns.saturating_add(ledger.total_ns),
            ended: ledger.started.plus(ledger.total_ns),
            values: values.iter().map(|(measure, value)| (measure.index() as u8, *value)).collect(),
        };
        self.kept.push((slot, Arc::new(exemplar)));
    }

    /// To be called when a slot of time is closed.
    pub(crate) const fn rotate(&mut self) {
        self.fresh = 0;
    }

    /// The exemplars that are not too old at `now`, in the order in which they ended.
    pub(crate) fn list(&self, now: Stamp) -> Vec<Arc<Exemplar>> {
        let young = self.kept.iter().filter(|(_, one)| now.since(one.ended) < SHOWN_NS);
        let mut list: Vec<_> = young.map(|(_, one)| one.clone()).collect();
        list.sort_by_key(|one| one.ended_unix_ns);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::{Ledger, Outcome};

    fn exchange(total_ns: u64, trace: u8, at: Stamp) -> Exchange {
        let mut ledger = Ledger::open(at, at.as_ns());
        (ledger.total_ns, ledger.trace, ledger.outcome) = (total_ns, TraceId([trace; 16]), Outcome::Ok);
        Exchange::of(ledger)
    }

    fn offer(exemplars: &mut Exemplars, exchange: &Exchange) -> bool {
        let slot = exemplars.wants(exchange);
        slot.into_iter().for_each(|slot| exemplars.replace(slot, exchange, &[(Measure::Total, exchange.ledger.total_ns)]));
        slot.is_some()
    }

    #[test]
    fn each_power_of_two_keeps_one_for_each_rotation() {
        let (mut exemplars, start) = (Exemplars::default(), Stamp::from_ns(1).unwrap());
        assert!(offer(&mut exemplars, &exchange(1_000_000, 1, start)));
        assert!(!offer(&mut exemplars, &exchange(1_000_001, 2, start)), "its power of two has one");
        assert!(offer(&mut exemplars, &exchange(3_000_000, 3, start)));
        assert!(!offer(&mut exemplars, &exchange(9_000_000, 0, start)), "it has no trace");
        exemplars.rotate();
        assert!(offer(&mut exemplars, &exchange(1_000_002, 4, start.plus(9_000_000))));
        let list = exemplars.list(start);
        assert_eq!(list.iter().map(|one| one.trace.0[0]).collect::<Vec<_>>(), [3, 4]);
        assert_eq!((list[1].value(Measure::Total), list[1].value(Measure::FirstByte)), (Some(1_000_002), None));
        assert!(exemplars.list(start.plus(SHOWN_NS + 20_000_000)).is_empty());
    }

    #[test]
    fn a_series_keeps_a_bounded_number() {
        let (mut exemplars, start) = (Exemplars::default(), Stamp::from_ns(1).unwrap());
        for power in 0..50 {
            offer(&mut exemplars, &exchange(1 << power, power + 1, start));
        }
        assert_eq!(exemplars.kept.len(), KEPT);
        assert!(exemplars.kept.iter().any(|(slot, _)| *slot == 31), "the last octave has all that is longer");
    }
}
