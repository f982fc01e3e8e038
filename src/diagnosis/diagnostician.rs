//! Keeps what is needed of each exchange and diagnoses from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::bound::Bound;
use super::report::Diagnosis;
use crate::ledger::{Exchange, SeriesKey, Stamp};
use crate::metrics::{Budget, Labels};

/// Time above the budget of a series since the start, by what is to blame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoundTotals {
    /// The series.
    pub series: SeriesKey,
    /// Seconds above the budget that each bound explains, in the order of [`Bound::ALL`].
    pub bound_seconds: [f64; Bound::ALL.len()],
    /// Seconds above the budget, of all requests that took longer.
    pub excess_seconds: f64,
}

/// Records exchanges and diagnoses. The aggregator's thread records; whoever asks for a diagnosis holds the lock meanwhile.
#[derive(Debug)]
pub struct Diagnostician {
    labels: Arc<Labels>,
    budgets: BTreeMap<String, Budget>,
}

impl Diagnostician {
    /// Judges by `budgets`, by route.
    #[must_use]
    pub fn new(budgets: BTreeMap<String, Budget>, labels: Arc<Labels>) -> Self {
        Self { labels, budgets }
    }

    /// Takes a merged exchange of a client.
    pub fn record(&mut self, exchange: &Exchange, now: Stamp) {
        let _ = (exchange, now, &self.labels, &self.budgets);
    }

    /// Lets time pass: closes blocks of time, adds to the totals, and returns lines for the log where a first verdict has changed.
    pub fn tick(&mut self, now: Stamp) -> Vec<String> {
        let _ = now;
        Vec::new()
    }

    /// Diagnoses every series of the last `window_ns` nanoseconds.
    #[must_use]
    pub fn diagnose(&self, window_ns: u64, now: Stamp) -> Diagnosis {
        let _ = now;
        #[allow(clippy::cast_precision_loss, reason = "seconds")]
        let window_seconds = window_ns as f64 / 1e9;
        Diagnosis { window_seconds, routes: Vec::new() }
    }

    /// Time above the budgets since the start, by what is to blame.
    #[must_use]
    pub fn totals(&self) -> Vec<BoundTotals> {
        Vec::new()
    }

    /// Forgets series whose names gave way.
    pub fn retain_named(&mut self) {}
}
