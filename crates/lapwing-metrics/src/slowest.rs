//! The slowest requests of the last ten minutes. The slowest of each minute are kept apart, so that a request is not lost because
//! a slower one displaced it and has expired since.

use std::collections::VecDeque;
use std::sync::Arc;

use lapwing_ledger::{Exchange, Stamp};

const MINUTE_NS: u64 = 60_000_000_000;
const MINUTES: u64 = 10;

/// At most `limit` requests for each of the last ten minutes (eleven while one is incomplete).
#[derive(Debug)]
pub(crate) struct Slowest {
    limit: usize,
    minutes: VecDeque<Minute>,
}

#[derive(Debug)]
struct Minute {
    start: Stamp,
    kept: Vec<Arc<Exchange>>,
    /// The duration that a request must exceed to be kept once the minute is full.
    floor_ns: u64,
}

impl Slowest {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { limit, minutes: VecDeque::new() }
    }

    /// Whether a request of this duration is among the slowest of its minute.
    pub(crate) fn wants(&self, total_ns: u64, now: Stamp) -> bool {
        let minute = self.minutes.back().filter(|minute| now.since(minute.start) < MINUTE_NS);
        self.limit > 0 && minute.is_none_or(|minute| minute.kept.len() < self.limit || total_ns > minute.floor_ns)
    }

    /// Keeps the request if it is among the slowest of its minute.
    pub(crate) fn offer(&mut self, exchange: &Arc<Exchange>, now: Stamp) {
        if self.limit == 0 {
            return;
        }
        if self.minutes.back().is_none_or(|minute| now.since(minute.start) >= MINUTE_NS) {
            self.minutes.push_back(Minute { start: now, kept: Vec::new(), floor_ns: 0 });
            self.minutes.retain(|minute| now.since(minute.start) < (MINUTES + 1) * MINUTE_NS);
        }
        if let Some(minute) = self.minutes.back_mut() {
            minute.offer(exchange, self.limit);
        }
    }

    /// The latest kept request that `is_wanted`.
    pub(crate) fn find(&mut self, is_wanted: impl Fn(&Exchange) -> bool) -> Option<&mut Arc<Exchange>> {
        self.minutes.iter_mut().rev().flat_map(|minute| &mut minute.kept).find(|kept| is_wanted(kept))
    }

    /// The slowest requests that have not expired at `now`, the slowest first.
    pub(crate) fn list(&self, limit: usize, now: Stamp) -> Vec<Arc<Exchange>> {
        let young = self.minutes.iter().filter(|minute| now.since(minute.start) < (MINUTES + 1) * MINUTE_NS);
        let mut all: Vec<_> = young.flat_map(|minute| minute.kept.iter().cloned()).collect();
        all.sort_by_key(|exchange| std::cmp::Reverse(exchange.ledger.total_ns));
        all.truncate(limit.min(self.limit));
        all
    }
}

impl Minute {
    fn offer(&mut self, exchange: &Arc<Exchange>, limit: usize) {
        if self.kept.len() < limit {
            self.kept.push(exchange.clone());
        } else if exchange.ledger.total_ns > self.floor_ns {
            if let Some(least) = self.kept.iter_mut().min_by_key(|kept| kept.ledger.total_ns) {
                *least = exchange.clone();
            }
        } else {
            return;
        }
        if self.kept.len() == limit {
            self.floor_ns = self.kept.iter().map(|kept| kept.ledger.total_ns).min().unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_ledger::Ledger;

    fn exchange(total_ns: u64) -> Arc<Exchange> {
        let mut ledger = Ledger::open(Stamp::default(), 0);
        ledger.total_ns = total_ns;
        Arc::new(Exchange::of(ledger))
    }

    fn totals(slowest: &Slowest, now: Stamp) -> Vec<u64> {
        slowest.list(10, now).iter().map(|e| e.ledger.total_ns).collect()
    }

    #[test]
    fn the_slowest_stay_until_they_are_old() {
        let start = Stamp::from_ns(1).unwrap();
        let mut slowest = Slowest::new(3);
        for total in [5, 9, 1, 7, 3, 8] {
            slowest.offer(&exchange(total), start);
        }
        assert_eq!(totals(&slowest, start), [9, 8, 7]);
        let later = start.plus(9 * MINUTE_NS);
        slowest.offer(&exchange(2), later);
        assert_eq!(totals(&slowest, later), [9, 8, 7]);
        let last = start.plus(12 * MINUTE_NS);
        assert_eq!(totals(&slowest, last), [2]);
        slowest.offer(&exchange(1), last);
        assert_eq!((totals(&slowest, last), slowest.minutes.len()), (vec![2, 1], 2));
    }
}
