//! Which running requests are sent a second time: those that an upstream has worked on for longer than almost all like it take, and only where
//! another upstream would otherwise do nothing. Whoever answers first answers (Dean and Barroso, The Tail at Scale, 2013).
//!
//! Sent by the time since it came rather than since it is worked on, or to an upstream that is busy, a second one makes a queue longer just when
//! it is long. The budget is of time, not of requests: a large one costs more.

use std::fmt::Debug;

use lapwing_ledger::Stamp;

use crate::queue::DispatchQueue;
use crate::upstreams::{RunId, Upstream, UpstreamSet};

/// The utilisation is a mean over about so long, in nanoseconds.
const UTILISATION_NS: f64 = 10e9;
/// How many requests the mean time of one is taken over.
const MEAN_OF: f64 = 256.0;
/// Below this utilisation a request that takes long is sent twice at once, if that is settled (Vulimiri et al., 2013: it stops paying between a
/// quarter and a half).
const DUAL_BELOW: f64 = 0.3;

/// What is settled for second requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HedgeSettings {
    /// A running request is sent again when it has taken longer than this share of those like it, in `0..1`.
    pub quantile: f64,
    /// How much time second requests may take, as a share of that of all.
    pub budget: f64,
    /// How many may come at once, of mean time.
    pub burst: u32,
    /// Above this share of busy slots there is none.
    pub max_utilisation: f64,
    /// Requests that take longer than this, in nanoseconds, go to two upstreams at once while these are mostly idle.
    pub dual_above_ns: Option<u64>,
}

impl Default for HedgeSettings {
    fn default() -> Self {
        Self { quantile: 0.98, budget: 0.02, burst: 10, max_utilisation: 0.9, dual_above_ns: None }
    }
}

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
    running: Vec<(RunId, Stamp, f64)>,
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
    fn block(&mut self, id: RunId, waker: W) {
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
            self.left_ns += charged - now.since(began) as f64;
        }
    }

    /// Whom to wake, once an upstream has become free.
    pub(crate) fn take_blocked(&mut self) -> impl Iterator<Item = W> {
        self.blocked.drain(..).map(|(_, waker)| waker)
    }
}

impl<W: Debug> DispatchQueue<W> {
    /// Whether a running request is sent a second time, to one of these upstreams. If it may be later, `waker` wakes it, once.
    pub fn hedge(&mut self, id: RunId, to: UpstreamSet, now: Stamp, waker: impl FnOnce() -> W) -> Hedge {
        let settings = self.settings.hedge;
        let found = self.upstreams.iter().enumerate().find_map(|(at, upstream)| Some((at, upstream.run(id)?)));
        let Some((at, run)) = found else { return Hedge::Never };
        let Some(predicted) = run.predicted else { return Hedge::Never };
        let Some(began) = run.began else {
            self.hedges.block(id, waker());
            return Hedge::NotYet(None);
        };
        self.hedges.reckon(&self.upstreams, now);
        let is_dual =
            settings.dual_above_ns.is_some_and(|above| predicted.service_ns > above) && self.hedges.utilisation < DUAL_BELOW;
        let due = began.plus(self.upstreams[at].takes(predicted.service_ns + predicted.hedge_more_ns));
        if now < due && !is_dual {
            return Hedge::NotYet(Some(due));
        }
        let withheld = match self.idle(to.without(UpstreamSet::from_iter([at])), now) {
            None => HedgeWithheld::Busy,
            Some(_) if self.hedges.utilisation > settings.max_utilisation => HedgeWithheld::Utilisation,
            Some(leg) => {
                #[allow(clippy::cast_precision_loss, reason = "times below years")]
                let costs = self.upstreams[leg].takes(predicted.service_ns) as f64;
                if costs <= self.hedges.left_ns {
                    self.hedges.left_ns -= costs;
                    self.hedges.hedged_ns = self.hedges.hedged_ns.saturating_add(predicted.service_ns);
                    let second = self.begin(leg, Some(predicted), now);
                    self.hedges.running.push((second, now, costs));
                    return Hedge::Go(leg, second);
                }
                HedgeWithheld::Budget
            }
        };
        self.hedges.block(id, waker());
        Hedge::Withheld(withheld)
    }

    /// Whoever takes long looks again whether an upstream is idle.
    pub(crate) fn wake_blocked(&mut self) {
        self.woken.extend(self.hedges.take_blocked());
    }
}
