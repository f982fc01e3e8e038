//! What the upstream's own statistics say of a model's requests, averaged between two polls: an estimate for stages that
//! no request carries, and the only word on batches.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::ledger::{Batch, Name, Report, Stamp};

/// The latest statistics of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Polled {
    /// Mean durations per request, in the order in which they follow one another.
    pub reports: Vec<Report>,
    /// The batches.
    pub batch: Option<Batch>,
    /// When they were polled.
    pub at: Stamp,
}

/// The latest statistics of every model of the upstream, by the model's interned name.
#[derive(Debug, Default)]
pub struct Statistics {
    by_model: Mutex<FxHashMap<Name, Polled>>,
}

impl Statistics {
    /// Takes what a poll found; it replaces what was known of the model.
    pub fn put(&self, model: Name, polled: Polled) {
        self.by_model.lock().insert(model, polled);
    }

    /// What is known of `model`, if it was polled within `max_age_ns` before `now`.
    #[must_use]
    pub fn get(&self, model: Name, now: Stamp, max_age_ns: u64) -> Option<Polled> {
        self.by_model.lock().get(&model).filter(|polled| now.since(polled.at) <= max_age_ns).cloned()
    }
}
