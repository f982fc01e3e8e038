//! The queue as the layers of a data plane use it: with the settings in force.

use std::sync::Arc;

use http::{Method, Request};

use crate::ask::{Ask, QueueRequest};
use crate::config::{Config, DispatchMode};
use crate::plane::DispatchPlane;
use crate::service::WorkSeries;
use crate::speeds::UpstreamSpeeds;
use crate::upstreams::{RunId, UpstreamSet};
use crate::waiting::{Dispatched, Queued};
use lapwing_ledger::{Ledger, Stamp};
use lapwing_metrics::{Counter, Counters};
use lapwing_protocol::request_match::{KnownRequest, RequestMatch};
use lapwing_settings::{ConfigHandle, LeverSwitch};

/// The queue of a data plane, and the settings that it follows.
#[derive(Clone, Debug)]
pub struct Dispatching {
    plane: Arc<DispatchPlane>,
    config: ConfigHandle<Config>,
}

impl Dispatching {
    /// A queue in front of so many upstreams, of which those of `away` take no connections; `speeds` is told how fast they are.
    #[must_use]
    pub fn new(
        upstreams: usize,
        away: impl Fn() -> UpstreamSet + Send + Sync + 'static,
        speeds: Arc<UpstreamSpeeds>,
        config: ConfigHandle<Config>,
    ) -> Self {
        Self { plane: Arc::new(DispatchPlane::new(upstreams, away, speeds)), config }
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
    #[must_use]
    pub fn in_force(&self, lever: &LeverSwitch) -> ConfigHandle<Dispatch> {
        let (plane, lever) = (self.plane.clone(), lever.clone());
        self.config.map(move |config| Dispatch::new(&plane, config, &lever))
    }
}

/// The queue with the settings in force.
#[derive(Debug)]
pub struct Dispatch {
    plane: Arc<DispatchPlane>,
    is_on: bool,
    /// May turn it on or off instead.
    lever: LeverSwitch,
    /// Which requests each class takes, but the last.
    classes: Box<[RequestMatch]>,
    /// Whether any of them asks for the model.
    asks_models: bool,
    budget_ns: Option<u64>,
}

impl Dispatch {
    /// Puts `config` in force.
    pub(crate) fn new(plane: &Arc<DispatchPlane>, config: &Config, lever: &LeverSwitch) -> Self {
        plane.with((), |queue, _| queue.apply(config.queue()));
        Self {
            plane: plane.clone(),
            is_on: config.mode == DispatchMode::On,
            lever: lever.clone(),
            classes: config.classes.iter().map(|class| RequestMatch::new(&class.matches)).collect(),
            asks_models: config.classes.iter().any(|class| class.matches.model.is_some()),
            budget_ns: config.budget.on().map(|budget| budget.as_nanos()),
        }
    }

    /// Whether `request` may wait: it is a call, whose work its body may tell.
    #[inline]
    #[must_use]
    pub fn may_hold<B>(&self, request: &Request<B>) -> bool {
        self.lever.is_on(self.is_on) && *request.method() == Method::POST
    }

    /// Whether the model has to be known.
    #[must_use]
    pub const fn asks_models(&self) -> bool {
        self.asks_models
    }

    /// The class of a request, by its head and what else is `known` of it.
    fn class_of<B>(&self, request: &Request<B>, known: KnownRequest<'_>) -> usize {
        self.classes.iter().position(|class| class.takes(request, known)).unwrap_or(self.classes.len())
    }

    /// A request asks to be sent to one of these upstreams. What becomes of it is counted.
    pub fn ask<B>(
        &self,
        request: &Request<B>,
        known: KnownRequest<'_>,
        upstreams: UpstreamSet,
        account: &AskingAccount,
        counters: &Counters,
    ) -> Answered {
        let passes = |counter| {
            counters.bump(counter);
            Answered::Passes
        };
        let (Some(series), Some(units)) = (account.series, known.work) else {
            return passes(Counter::DispatchPassedUnknown);
        };
        if account.is_stateful {
            return passes(Counter::DispatchPassedStateful);
        }
        let deadline = account.budget_ns.or(self.budget_ns).map(|ns| account.arrived.plus(ns));
        let class = self.class_of(request, known);
        let asked = QueueRequest { class, upstreams, series, units, arrived: account.arrived, deadline };
        match self.plane.ask(&asked) {
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
    #[must_use]
    pub fn pass(&self, at: usize, series: WorkSeries, work: Option<u64>) -> Dispatched {
        let id = self.plane.with(RunId::NONE, |queue, now| queue.pass(at, series, work, now));
        Dispatched::new(self.plane.clone(), at, id)
    }
}

/// What the account of a request says of it.
#[derive(Clone, Copy, Debug)]
pub struct AskingAccount {
    /// Its route and model, if they are known.
    pub series: Option<WorkSeries>,
    /// When it came.
    pub arrived: Stamp,
    /// How long it may take by itself, in nanoseconds.
    pub budget_ns: Option<u64>,
    /// Whether it depends on calls before it, or later ones on it: then it keeps its place.
    pub is_stateful: bool,
}

impl AskingAccount {
    /// What an open ledger says of a request that is stateful or not.
    #[must_use]
    pub fn of(ledger: &Ledger, is_stateful: bool) -> Self {
        Self {
            series: ledger.new_names.is_none().then(|| ledger.series.into()),
            arrived: ledger.started,
            budget_ns: ledger.deadline.map(|deadline| deadline.budget_ns),
            is_stateful,
        }
    }
}

/// What the queue says to a request.
#[derive(Debug)]
pub enum Answered {
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
