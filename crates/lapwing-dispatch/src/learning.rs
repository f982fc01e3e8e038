//! What the control plane does for the queue: it learns from closed ledgers what requests take, publishes it each second, and replays what
//! passed as it would have gone through the queue.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::config::{Config, DispatchMode, HedgeMode};
use crate::dispatch::Dispatching;
use crate::ghost::{Ghost, GhostReport};
use crate::learn::{Departure, DepartureEnd, ServiceLearner};
use crate::plane::DispatchState;
use crate::service::{NoWindow, ServiceModels, SlotsOf, WorkSeries};
use lapwing_ledger::{ExchangeKind, LabelId, Ledger, Outcome, Stamp, Unit};
use lapwing_settings::LeverSwitch;

/// How often what is known is published, in nanoseconds.
const PUBLISH_NS: u64 = 1_000_000_000;
/// How often it is learnt anew; each time while an upstream has answered too few requests.
const LEARN_NS: u64 = 5_000_000_000;
/// How often what passed is replayed.
const REPLAY_NS: u64 = 15_000_000_000;
/// How often upstreams are sent more for `dispatch.recheck`.
const RECHECK_NS: u64 = 60_000_000_000;

/// Learns for the queue of a data plane. One thread feeds it; others may read.
#[derive(Debug)]
pub struct DispatchLearning {
    dispatching: Dispatching,
    /// The labels of the upstreams, by their places.
    labels: Box<[LabelId]>,
    /// What a trial turns: it, and its second requests.
    lever: LeverSwitch,
    hedge_lever: LeverSwitch,
    applied: Arc<Config>,
    learner: ServiceLearner,
    models: ServiceModels,
    ghost: Option<GhostReport>,
    published: Stamp,
    learnt: Stamp,
    replayed: Stamp,
    /// When they last were.
    rechecked: Stamp,
    is_rechecking: bool,
}

/// What is known of the queue.
#[derive(Clone, Debug)]
pub struct DispatchSnapshot {
    /// The settings.
    pub config: Arc<Config>,
    /// Whether requests wait: by the settings, or a trial.
    pub is_on: bool,
    /// Whether a trial turns it on and off.
    pub is_on_trial: bool,
    /// Whether upstreams are sent more for a moment, to see how many they work on at once.
    pub is_rechecking: bool,
    /// Whether those that take long are sent to a second upstream: by the settings, or a trial.
    pub hedge: HedgeMode,
    /// What requests take, and how many upstreams work on at once.
    pub models: ServiceModels,
    /// The labels of the upstreams, by their places.
    pub labels: Box<[LabelId]>,
    /// What waits and runs.
    pub state: DispatchState,
    /// What the queue would have made of requests that passed.
    pub ghost: Option<GhostReport>,
}

impl DispatchLearning {
    /// Learns for `dispatching`, in front of upstreams with these labels; of the levers, one may turn it on or off, the other its second requests.
    #[must_use]
    pub fn new(
        dispatching: Dispatching,
        labels: impl IntoIterator<Item = LabelId>,
        (lever, hedge_lever): (LeverSwitch, LeverSwitch),
        now: Stamp,
    ) -> Self {
        let applied = dispatching.config().load();
        Self {
            dispatching,
            labels: labels.into_iter().collect(),
            lever,
            hedge_lever,
            applied,
            learner: ServiceLearner::default(),
            models: ServiceModels::default(),
            ghost: None,
            published: now,
            learnt: now,
            replayed: now,
            rechecked: now,
            is_rechecking: false,
        }
    }

    /// Whether requests wait, by the settings or a trial.
    fn is_on(&self) -> bool {
        self.lever.is_on(self.applied.mode == DispatchMode::On)
    }

    /// Whether there are second requests, by the settings or a trial.
    fn hedge(&self) -> HedgeMode {
        let mode = self.applied.hedge.mode;
        match (self.hedge_lever.is_turned(), self.hedge_lever.is_on(mode == HedgeMode::On)) {
            (false, _) => mode,
            (true, true) => HedgeMode::On,
            (true, false) => HedgeMode::Observe,
        }
    }

    /// Whether anything is learnt. A trial turns the lever on and off, and both sides tell.
    fn is_learning(&self) -> bool {
        self.applied.mode != DispatchMode::Off || self.lever.is_turned()
    }

    /// Takes the account of a client's request as it was closed.
    pub fn take(&mut self, ledger: &Ledger) {
        if !self.is_learning() || ledger.outcome != Outcome::Ok || ledger.kind != ExchangeKind::Request || ledger.is_copy {
            return;
        }
        let Some(upstream) = self.labels.iter().position(|label| *label == ledger.series.upstream) else { return };
        let (Some(window), Some(units)) = (ledger.window, asked_units(ledger)) else { return };
        let budget_ns = ledger.deadline.map(|deadline| deadline.budget_ns);
        let budget_ns = budget_ns.or_else(|| self.applied.budget.on().map(|budget| budget.as_nanos()));
        self.learner.take(Departure {
            series: ledger.series.into(),
            upstream,
            units,
            arrived: ledger.started,
            sent: ledger.started.plus(window.start_ns),
            ended: ledger.started.plus(window.end_ns),
            deadline: budget_ns.map(|ns| ledger.started.plus(ns)),
            end: DepartureEnd::Given,
        });
    }

    /// Forgets series whose names gave way.
    pub fn retain(&mut self, holds: impl Fn(WorkSeries) -> bool) {
        self.learner.retain(holds);
    }

    /// Lets time pass: learns, publishes and replays what is due. `agrees` says whether the shadow target of this name answers requests of a series
    /// as the upstream does.
    pub fn tick(&mut self, now: Stamp, agrees: impl Fn(&str, WorkSeries) -> bool) {
        if now.since(self.published) < PUBLISH_NS && !(self.is_rechecking && self.is_recheck_over(now)) {
            return;
        }
        self.published = now;
        self.applied = self.dispatching.config().load();
        if !self.is_learning() {
            self.forget();
            return;
        }
        self.learner.set_slots(self.applied.slots.given());
        self.learner.set_hedge_quantile(self.applied.hedge.quantile.get());
        self.dispatching.plane().take_lost().into_iter().for_each(|departure| self.learner.take(departure));
        let is_new = |one: &SlotsOf| matches!(one.slots, Err(NoWindow::TooFewRequests { .. }));
        let is_new = self.models.upstreams.is_empty() || self.models.upstreams.iter().any(is_new);
        if is_new || now.since(self.learnt) >= LEARN_NS {
            self.learnt = now;
            self.models = self.learner.learn(now);
        }
        if now.since(self.replayed) >= REPLAY_NS {
            self.replayed = now;
            self.ghost = Ghost::new(&self.learner, &self.models, now).report(&self.applied.queue());
        }
        self.recheck(now);
        self.models.agreeing = match self.applied.hedge.spare() {
            Some(spare) => self.models.lines.keys().copied().filter(|series| agrees(spare, *series)).collect(),
            None => FxHashSet::default(),
        };
        self.models.made = now;
        self.dispatching.plane().publish(self.models.clone());
    }

    /// Everything that is known; `None` while it is off.
    #[must_use]
    pub fn snapshot(&self) -> Option<DispatchSnapshot> {
        self.is_learning().then(|| DispatchSnapshot {
            config: self.applied.clone(),
            is_on: self.is_on(),
            is_on_trial: self.lever.is_turned(),
            is_rechecking: self.is_rechecking,
            hedge: self.hedge(),
            models: self.models.clone(),
            labels: self.labels.clone(),
            state: self.dispatching.plane().state(),
            ghost: self.ghost,
        })
    }

    fn is_recheck_over(&self, now: Stamp) -> bool {
        self.applied.recheck.on().is_none_or(|length| now.since(self.rechecked) >= length.as_nanos())
    }

    /// Lets more through for a moment. In a trial all pass in turn anyway.
    fn recheck(&mut self, now: Stamp) {
        let is_rechecking = if self.is_rechecking {
            !self.is_recheck_over(now)
        } else {
            let is_due = now.since(self.rechecked) >= RECHECK_NS && self.is_on() && !self.lever.is_turned();
            is_due && self.applied.recheck.is_on()
        };
        if is_rechecking != self.is_rechecking {
            self.is_rechecking = is_rechecking;
            if is_rechecking {
                self.rechecked = now;
            }
            self.dispatching.plane().recheck(is_rechecking);
        }
    }

    /// Off: what was learnt is of another time when it is turned on again.
    fn forget(&mut self) {
        if !self.models.upstreams.is_empty() {
            self.learner = ServiceLearner::default();
            self.models = ServiceModels::default();
            self.ghost = None;
            self.is_rechecking = false;
            self.dispatching.plane().recheck(false);
            self.dispatching.plane().publish(ServiceModels::default());
        }
    }
}

/// How much a request asks for, as its queue counts it: of generated answers what is read, since nobody knows what will be written.
fn asked_units(ledger: &Ledger) -> Option<u64> {
    match ledger.work.primary? {
        Unit::OutputToken => Some(ledger.work.get(Unit::InputToken)?.0),
        _ => ledger.work.primary_amount(),
    }
}
