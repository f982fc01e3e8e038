//! Requests wait in front of the upstreams rather than in them, where it is known what they take: the queue of lapwing-dispatch, as the layers
//! use it.
//!
//! `config` is the section; [`DispatchPlane`] is the queue of a data plane, for all its workers and whatever settings are in force, and
//! [`Dispatching`] where it finds these;
//! [`Dispatch`] is that with the settings; `waiting` is a request that waits, and its place at an upstream;
//! `learning` is what the control plane does for it.

mod config;
mod learning;
mod waiting;

use std::sync::Arc;
use std::task::Waker;

use http::{Method, Request};
use parking_lot::Mutex;

pub use config::{Config, DispatchClass, DispatchMode, DispatchOrder, DispatchRefusal};
pub use learning::{DispatchLearning, DispatchSnapshot};
pub(crate) use waiting::{Dispatched, Queued};

use crate::health::UpstreamHealth;
use crate::in_flight::RequestAccount;
use crate::placement::{KnownRequest, Route, Upstreams};
use lapwing_dispatch::{Ask, Asked, DispatchQueue, RunId, ServiceModels, UpstreamSet, WorkSeries};
use lapwing_ledger::Stamp;
use lapwing_metrics::{Counter, Counters};
use lapwing_settings::{ConfigHandle, LeverSwitch};

/// The queue of a data plane.
#[derive(Debug)]
pub struct DispatchPlane {
    queue: Mutex<DispatchQueue<Waker>>,
    health: Box<[Arc<UpstreamHealth>]>,
}

/// What waits and what runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DispatchState {
    /// Requests that wait.
    pub waiting: usize,
    /// What those of each class take, in nanoseconds of one slot.
    pub work_ns: Vec<u64>,
    /// Requests at each upstream, as far as they were counted.
    pub running: Vec<usize>,
}

impl DispatchPlane {
    pub(crate) fn new(health: impl IntoIterator<Item = Arc<UpstreamHealth>>) -> Self {
        let health: Box<[_]> = health.into_iter().collect();
        Self { queue: Mutex::new(DispatchQueue::new(Config::default().queue(), health.len())), health }
    }

    /// Takes what is known of services.
    pub fn publish(&self, models: ServiceModels) {
        let now = Stamp::now();
        let away = self.away();
        self.with(|queue| {
            queue.note_away(away, now);
            queue.publish(models, now);
        });
    }

    /// Lets everybody pass for now, or no longer.
    pub(crate) fn open(&self, is_open: bool) {
        let now = Stamp::now();
        self.with(|queue| queue.open(is_open, now));
    }

    /// What waits and runs now.
    #[must_use]
    pub fn state(&self) -> DispatchState {
        let queue = self.queue.lock();
        let mut state = DispatchState { waiting: queue.waiting(), running: queue.running().collect(), work_ns: Vec::new() };
        for (class, work_ns) in queue.waiting_work() {
            if state.work_ns.len() <= class {
                state.work_ns.resize(class + 1, 0);
            }
            state.work_ns[class] += work_ns;
        }
        state
    }

    fn away(&self) -> UpstreamSet {
        let is_away = |(at, health): (usize, &Arc<UpstreamHealth>)| health.is_away().then_some(at);
        self.health.iter().enumerate().filter_map(is_away).collect()
    }

    /// Does something to the queue, and wakes whom that concerns once it is done.
    fn with<T>(&self, act: impl FnOnce(&mut DispatchQueue<Waker>) -> T) -> T {
        let (done, woken) = {
            let queue = &mut *self.queue.lock();
            (act(queue), queue.take_woken())
        };
        woken.into_iter().for_each(Waker::wake);
        done
    }
}

/// The queue of a data plane, and the settings that it follows.
#[derive(Clone, Debug)]
pub struct Dispatching {
    plane: Arc<DispatchPlane>,
    config: ConfigHandle<Config>,
}

impl Dispatching {
    /// A queue in front of `upstreams`.
    #[must_use]
    pub fn new(upstreams: &Upstreams, config: ConfigHandle<Config>) -> Self {
        let health = std::iter::once(upstreams.first()).chain(upstreams.others()).map(|one| one.health.clone());
        Self { plane: Arc::new(DispatchPlane::new(health)), config }
    }

    /// The queue.
    #[must_use]
    pub const fn plane(&self) -> &Arc<DispatchPlane> {
        &self.plane
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &ConfigHandle<Config> {
        &self.config
    }

    /// The queue with the settings in force, which `lever` may turn on or off instead.
    pub(crate) fn in_force(&self, lever: &LeverSwitch) -> ConfigHandle<Dispatch> {
        let (plane, lever) = (self.plane.clone(), lever.clone());
        self.config.map(move |config| Dispatch::new(&plane, config, &lever))
    }
}

/// The queue with the settings in force.
#[derive(Debug)]
pub(crate) struct Dispatch {
    plane: Arc<DispatchPlane>,
    is_on: bool,
    /// May turn it on or off instead.
    lever: LeverSwitch,
    /// Which requests each class takes, but the last.
    classes: Box<[Route]>,
    /// Whether any of them asks for the model.
    asks_models: bool,
    budget_ns: Option<u64>,
}

impl Dispatch {
    /// Puts `config` in force.
    pub(crate) fn new(plane: &Arc<DispatchPlane>, config: &Config, lever: &LeverSwitch) -> Self {
        plane.with(|queue| queue.apply(config.queue()));
        Self {
            plane: plane.clone(),
            is_on: config.mode == DispatchMode::On,
            lever: lever.clone(),
            classes: config.classes.iter().map(|class| Route::new(&class.matches)).collect(),
            asks_models: config.classes.iter().any(|class| class.matches.model.is_some()),
            budget_ns: config.budget.on().map(|budget| budget.as_nanos()),
        }
    }

    /// Whether `request` may wait: it is a call, whose work its body may tell.
    #[inline]
    pub(crate) fn may_hold<B>(&self, request: &Request<B>) -> bool {
        self.lever.is_on(self.is_on) && *request.method() == Method::POST
    }

    /// Whether the model has to be known.
    pub(crate) const fn asks_models(&self) -> bool {
        self.asks_models
    }

    /// The class of a request, by its head and what else is `known` of it.
    fn class_of<B>(&self, request: &Request<B>, known: KnownRequest<'_>) -> usize {
        self.classes.iter().position(|class| class.takes(request, known)).unwrap_or(self.classes.len())
    }

    /// A request asks to be sent to one of these upstreams.
    pub(crate) fn ask<B>(
        &self,
        request: &Request<B>,
        known: KnownRequest<'_>,
        upstreams: UpstreamSet,
        account: &RequestAccount,
    ) -> Answered {
        let counters = &account.context.counters;
        let passes = |counter| {
            counters.bump(counter);
            Answered::Passes
        };
        let named = account.read_ledger(|ledger| {
            let deadline_ns = ledger.deadline.map(|deadline| deadline.budget_ns).or(self.budget_ns);
            let deadline = deadline_ns.map(|ns| ledger.started.plus(ns));
            (ledger.new_names.is_none().then_some(ledger.series), ledger.started, deadline)
        });
        let (Some((Some(series), arrived, deadline)), Some(units)) = (named, known.work) else {
            return passes(Counter::DispatchPassedUnknown);
        };
        let class = self.class_of(request, known);
        let asked = Asked { class, upstreams, series: series.into(), units, arrived, deadline };
        let (now, away) = (Stamp::now(), self.plane.away());
        let answer = self.plane.with(|queue| {
            queue.note_away(away, now);
            queue.ask(&asked, now)
        });
        match answer {
            Ask::Go(at, id) => {
                counters.bump(Counter::DispatchSent);
                Answered::Goes(Dispatched::new(self.plane.clone(), at, id))
            }
            Ask::Wait(ticket) => {
                counters.bump(Counter::DispatchQueued);
                Answered::Waits(Queued::new(self.plane.clone(), ticket))
            }
            Ask::Late { wait_ns, drain_ns } => {
                counters.bump(Counter::DispatchRefused);
                Answered::Late { wait_ns, drain_ns }
            }
            Ask::Unknown => passes(Counter::DispatchPassedUnknown),
            Ask::Full => passes(Counter::DispatchPassedFull),
        }
    }

    /// A request goes to the upstream at this place without having asked.
    pub(crate) fn pass(&self, at: usize, account: &RequestAccount, work: Option<u64>) -> Dispatched {
        let series = account.read_ledger(|ledger| ledger.series).unwrap_or_default();
        let now = Stamp::now();
        let id: RunId = self.plane.with(|queue| queue.pass(at, WorkSeries::from(series), work, now));
        Dispatched::new(self.plane.clone(), at, id)
    }
}

/// What the queue says to a request.
#[derive(Debug)]
pub(crate) enum Answered {
    /// It goes.
    Goes(Dispatched),
    /// It waits.
    Waits(Queued),
    /// It would miss its deadline.
    Late {
        /// What it would wait, in nanoseconds.
        wait_ns: u64,
        /// When what waits now will have gone, in nanoseconds from now.
        drain_ns: u64,
    },
    /// It goes as it would without a queue, which was counted.
    Passes,
}

/// Counts a request that was on its way into the queue, and could not be held.
pub(crate) fn count_unheld(counters: &Counters) {
    counters.bump(Counter::DispatchPassedUnheld);
}
