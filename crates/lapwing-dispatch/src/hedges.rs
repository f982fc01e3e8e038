//! What is counted for second requests: what they may take yet, and how busy the upstreams are.

use lapwing_ledger::Stamp;

use crate::ask::HedgeSettings;
use crate::upstreams::{RunId, Upstream};

/// The utilisation is a mean over about so long, in nanoseconds.
const UTILISATION_NS: f64 = 10e9;
/// How many requests the mean time of one is taken over.
const MEAN_OF: f64 = 256.0;

/// Why a request that takes long is not sent a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeWithheld {
    /// No other upstream is idle.
    Busy,
    /// The budget is used up.
    Budget,
    /// The upstreams are too busy on the whole.
    Utilisation,
}

/// Whether a request is sent a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hedge {
    /// Now, to the upstream at this place.
    Go(usize, RunId),
    /// It does not take long yet: ask again then. `None`: its upstream does not work on it yet; its waker is woken when that may be otherwise.
    NotYet(Option<Stamp>),
    /// It takes long; its waker is woken when there may be another upstream for it.
    Withheld(HedgeWithheld),
    /// It never will be.
    Never,
}

/// What is counted for second requests.
#[derive(Debug)]
pub(crate) struct Hedges<W> {
    /// What they may take yet, in nanoseconds.
    left_ns: f64,
    /// The mean that a request takes.
    mean_ns: f64,
    /// The share of slots that were busy lately, and when that was reckoned.
    utilisation: f64,
    reckoned: Stamp,
    /// Requests that take long, or are not worked on yet, and whom to wake.
    blocked: Vec<(RunId, W)>,
    /// Second requests that run: since when, and what was taken off the budget for each.
    running: Vec<(RunId, Stamp, u64)>,
    /// What all requests were predicted to take, and the second ones among them, in nanoseconds.
    pub(crate) predicted_ns: u64,
    pub(crate) hedged_ns: u64,
}

impl<W> Default for Hedges<W> {
    fn default() -> Self {
        Self {
            left_ns: 0.0,
            mean_ns: 0.0,
            utilisation: 0.0,
            reckoned: Stamp::default(),
            blocked: Vec::new(),
            running: Vec::new(),
            predicted_ns: 0,
            hedged_ns: 0,
        }
    }
}

impl<W> Hedges<W> {
    /// Lets time pass in which the upstreams were as they are.
    #[allow(clippy::cast_precision_loss, reason = "times below years")]
    pub(crate) fn reckon(&mut self, upstreams: &[Upstream], now: Stamp) {
        let (mut busy, mut slots) = (0_usize, 0_usize);
        for upstream in upstreams {
            let Some(of_one) = upstream.slots else { continue };
            slots += of_one as usize;
            busy += upstream.running().min(of_one as usize);
        }
        let share = busy as f64 / slots.max(1) as f64;
        let passed = now.since(self.reckoned) as f64;
        self.utilisation = share + (self.utilisation - share) * (-passed / UTILISATION_NS).exp();
        self.reckoned = now;
    }

    /// A request that takes so long is sent for the first time.
    #[allow(clippy::cast_precision_loss, reason = "times below years")]
    pub(crate) fn earn(&mut self, settings: &HedgeSettings, service_ns: u64) {
        let takes = service_ns as f64;
        if self.mean_ns == 0.0 {
            // the burst is there from the beginning
            (self.mean_ns, self.left_ns) = (takes, f64::from(settings.burst) * takes);
        }
        self.mean_ns += (takes - self.mean_ns) / MEAN_OF;
        self.left_ns = (self.left_ns + settings.budget * takes).min(f64::from(settings.burst) * self.mean_ns);
        self.predicted_ns = self.predicted_ns.saturating_add(service_ns);
    }

    /// Has `waker` woken for the run.
    pub(crate) fn block(&mut self, id: RunId, waker: W) {
        self.forget(id);
        self.blocked.push((id, waker));
    }

    fn forget(&mut self, id: RunId) {
        self.blocked.retain(|(other, _)| *other != id);
    }

    /// A run has ended. Of a second one it is known now what it took.
    #[allow(clippy::cast_precision_loss, reason = "times below years")]
    pub(crate) fn end(&mut self, id: RunId, now: Stamp) {
        self.forget(id);
        if let Some(at) = self.running.iter().position(|(other, ..)| *other == id) {
            let (_, began, charged) = self.running.swap_remove(at);
            self.left_ns += charged as f64 - now.since(began) as f64;
        }
    }

    /// The share of slots that were busy lately.
    pub(crate) const fn utilisation(&self) -> f64 {
        self.utilisation
    }

    /// Whether the budget has so much time left, in nanoseconds.
    pub(crate) fn affords(&self, costs: f64) -> bool {
        costs <= self.left_ns
    }

    /// A second request goes, which counts for what it is expected to take until it is known what it takes.
    #[allow(clippy::cast_precision_loss, reason = "times below years")]
    pub(crate) fn spend(&mut self, id: RunId, predicted_ns: u64, now: Stamp) {
        self.left_ns -= predicted_ns as f64;
        self.hedged_ns = self.hedged_ns.saturating_add(predicted_ns);
        self.running.push((id, now, predicted_ns));
    }

    /// A second request is not sent after all.
    pub(crate) fn withdraw(&mut self, id: RunId) {
        let predicted_ns = self.running.iter().find(|(other, ..)| *other == id).map_or(0, |(_, _, predicted_ns)| *predicted_ns);
        self.hedged_ns = self.hedged_ns.saturating_sub(predicted_ns);
    }

    /// Whom to wake, once an upstream has become free.
    pub(crate) fn take_blocked(&mut self) -> impl Iterator<Item = W> {
        self.blocked.drain(..).map(|(_, waker)| waker)
    }
}
