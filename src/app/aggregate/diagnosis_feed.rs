//! Hands clients' exchanges to the diagnostician.
//!
//! A diagnosis of every series holds the diagnostician for tens of milliseconds. The aggregator does not wait for it: exchanges wait here
//! meanwhile, at most [`MOST_WAITING`] of them, and are recorded in their order once it is free. Only past that bound the aggregator waits
//! for the diagnosis to end, so that no exchange is missing in the next one.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use lapwing_console::printable::printable;
use lapwing_diagnosis::{Diagnostician, HostReading};
use lapwing_ledger::{Exchange, Stamp};

/// Exchanges that may wait while a diagnosis is made: 50 ms of 20,000 requests a second.
const MOST_WAITING: usize = 1024;
/// How often the diagnostician is told the time; it looks at one series each time.
const TICK_NS: u64 = 100_000_000;
/// The most columns of a line for the log.
const LINE: usize = 1000;

/// What the aggregator hands over, and what of it waits.
pub(crate) struct DiagnosisFeed {
    diagnostician: Arc<Mutex<Diagnostician>>,
    waiting: VecDeque<(Exchange, Stamp)>,
    /// Whether names have given way that the diagnostician still holds.
    has_unnamed: bool,
    ticked: Stamp,
}

impl DiagnosisFeed {
    /// Feeds `diagnostician`.
    pub(crate) fn new(diagnostician: Arc<Mutex<Diagnostician>>) -> Self {
        Self { diagnostician, waiting: VecDeque::new(), has_unnamed: false, ticked: Stamp::now() }
    }

    /// Takes a merged exchange of a client.
    pub(crate) fn record(&mut self, exchange: &Exchange, now: Stamp) {
        let shared = self.diagnostician.clone();
        let free = if self.waiting.len() < MOST_WAITING { shared.try_lock() } else { Some(shared.lock()) };
        match free {
            Some(mut diagnostician) => {
                self.catch_up(&mut diagnostician);
                diagnostician.record(exchange, now);
            }
            None => self.waiting.push_back((exchange.clone(), now)),
        }
    }

    /// Records what waited, and every tenth of a second lets time pass and logs what has changed.
    pub(crate) fn tick(&mut self, now: Stamp) {
        let is_due = now.since(self.ticked) >= TICK_NS;
        if !is_due && !self.has_unnamed && self.waiting.is_empty() {
            return;
        }
        let shared = self.diagnostician.clone();
        // if it is busy, the next look is 20 ms away
        let Some(mut diagnostician) = shared.try_lock() else { return };
        self.catch_up(&mut diagnostician);
        if is_due {
            self.ticked = now;
            if diagnostician.wants_host(now)
                && let Some(reading) = HostReading::read()
            {
                diagnostician.take_host(reading, now);
            }
            let (changed, missing) = (diagnostician.tick(now), diagnostician.tick_gaps(now));
            drop(diagnostician);
            missing.iter().for_each(|line| tracing::warn!("missing: {}", printable(line, LINE)));
            // they quote names that clients chose
            changed.iter().for_each(|line| tracing::info!("{}", printable(line, LINE)));
        }
    }

    /// Has the diagnostician forget the series whose names gave way, as soon as it is free.
    pub(crate) const fn retain_named(&mut self) {
        self.has_unnamed = true;
    }

    fn catch_up(&mut self, diagnostician: &mut Diagnostician) {
        // what waited may be of names that gave way: they are forgotten after it is recorded
        if !self.waiting.is_empty() {
            for (exchange, ended) in std::mem::take(&mut self.waiting) {
                diagnostician.record(&exchange, ended);
            }
        }
        if std::mem::take(&mut self.has_unnamed) {
            diagnostician.retain_named();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use lapwing_ledger::Ledger;
    use lapwing_metrics::Labels;

    fn feed() -> DiagnosisFeed {
        let diagnostician = Diagnostician::new(BTreeMap::new(), Arc::new(Labels::new(8, 8, 8)));
        DiagnosisFeed::new(Arc::new(Mutex::new(diagnostician)))
    }

    fn exchange() -> Exchange {
        Exchange::of(Ledger::open(Stamp::now(), 0))
    }

    #[test]
    fn exchanges_wait_for_a_diagnosis_and_not_the_aggregator() {
        let mut feed = feed();
        let (one, now) = (exchange(), Stamp::now());
        let diagnosing = feed.diagnostician.clone();
        let guard = diagnosing.lock();
        // on this very thread: it would never return if it waited
        for n in 1..=MOST_WAITING {
            feed.record(&one, now);
            assert_eq!(feed.waiting.len(), n);
        }
        feed.retain_named();
        feed.tick(now.plus(2 * TICK_NS));
        assert_eq!((feed.waiting.len(), feed.has_unnamed), (MOST_WAITING, true), "it is busy");
        drop(guard);
        feed.tick(now);
        assert_eq!((feed.waiting.len(), feed.has_unnamed), (0, false), "all are recorded");
    }

    #[test]
    fn past_the_bound_the_aggregator_waits_and_nothing_is_lost() {
        let mut feed = feed();
        let (one, now) = (exchange(), Stamp::now());
        let diagnosing = feed.diagnostician.clone();
        let guard = diagnosing.lock();
        (0..MOST_WAITING).for_each(|_| feed.record(&one, now));
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| feed.record(&one, now));
            drop(guard);
            waits.join().unwrap();
        });
        assert!(feed.waiting.is_empty());
    }
}
