//! The queue as the layers of a data plane use it: with the settings in force.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request};

use crate::ask::{Ask, QueueRequest};
use crate::config::{Config, DispatchMode, HedgeMode};
use crate::plane::DispatchPlane;
use crate::second::SecondTurn;
use crate::service::WorkSeries;
use crate::speeds::UpstreamSpeeds;
use crate::upstreams::{RunId, UpstreamSet};
use crate::waiting::{Dispatched, Queued};
use lapwing_ledger::{Ledger, Stamp};
use lapwing_metrics::{Counter, Counters};
use lapwing_protocol::Recogniser;
use lapwing_protocol::request_match::{KnownRequest, RequestMatch};
use lapwing_settings::{ConfigHandle, LeverSwitch};

/// The queue of a data plane, and the settings that it follows.
#[derive(Clone, Debug)]
pub struct Dispatching {
    plane: Arc<DispatchPlane>,
    config: ConfigHandle<Config>,
    /// Those of the upstreams, by their places.
    names: Arc<[String]>,
}

impl Dispatching {
    /// A queue in front of upstreams with these names, of which those of `away` take no connections; `speeds` is told how fast they are.
    #[must_use]
    pub fn new(
        names: impl IntoIterator<Item = String>,
        away: impl Fn() -> UpstreamSet + Send + Sync + 'static,
        speeds: Arc<UpstreamSpeeds>,
        config: ConfigHandle<Config>,
    ) -> Self {
        let names: Arc<[String]> = names.into_iter().collect();
        Self { plane: Arc::new(DispatchPlane::new(names.len(), away, speeds)), config, names }
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

    /// The queue with the settings in force. `lever` may turn it on or off instead, `hedge_lever` its second requests.
    #[must_use]
    pub fn in_force(&self, lever: &LeverSwitch, hedge_lever: &LeverSwitch) -> ConfigHandle<Dispatch> {
        let (plane, lever, hedge_lever) = (self.plane.clone(), lever.clone(), hedge_lever.clone());
        let names = self.names.clone();
        self.config.map(move |config| Dispatch::new((&plane, &names), config, &lever, &hedge_lever))
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
    hedge: HedgeMode,
    /// May turn second requests on or off instead.
    hedge_lever: LeverSwitch,
    /// Whether there is an upstream for second requests only.
    has_spare: bool,
    recogniser: Recogniser,
}

impl Dispatch {
    /// Puts `config` in force.
    pub(crate) fn new(
        (plane, names): (&Arc<DispatchPlane>, &[String]),
        config: &Config,
        lever: &LeverSwitch,
        hedge_lever: &LeverSwitch,
    ) -> Self {
        let spare = config.hedge.spare().and_then(|spare| names.iter().position(|name| name == spare));
        let mut settings = config.queue();
        settings.hedge.spare = spare;
        plane.with((), |queue, _| queue.apply(settings));
        Self {
            plane: plane.clone(),
            is_on: config.mode == DispatchMode::On,
            lever: lever.clone(),
            classes: config.classes.iter().map(|class| RequestMatch::new(&class.matches)).collect(),
            asks_models: config.classes.iter().any(|class| class.matches.model.is_some()),
            budget_ns: config.budget.on().map(|budget| budget.as_nanos()),
            hedge: config.hedge.mode,
            hedge_lever: hedge_lever.clone(),
            has_spare: spare.is_some(),
            recogniser: Recogniser::default(),
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

    /// Whether any request may be sent to a second upstream.
    #[inline]
    #[must_use]
    pub fn may_hedge(&self) -> bool {
        self.hedge == HedgeMode::Observe || self.hedge_lever.is_on(self.hedge == HedgeMode::On)
    }

    /// The request that was asked for so, and `goes`, may be sent to a second one of these upstreams, if that is settled and there is another.
    #[must_use]
    pub fn second(&self, goes: &Dispatched, to: UpstreamSet, account: &AskingAccount, work: Option<u64>) -> Option<SecondTurn> {
        let mode = match (self.hedge, self.hedge_lever.is_on(self.hedge == HedgeMode::On)) {
            (_, true) => HedgeMode::On,
            (HedgeMode::Observe, false) => HedgeMode::Observe,
            (_, false) => return None,
        };
        if to.len() < 2 && !self.has_spare {
            return None;
        }
        let (plane, at, id) = (self.plane.clone(), goes.at(), goes.id());
        let (series, units, arrived) = (account.series?, work?, account.arrived);
        Some(SecondTurn { plane, mode, at, id, to, series, units, arrived, withheld: None })
    }

    /// Whether a call with this body may be sent twice: it is one of a known protocol, and leaves nothing behind.
    #[must_use]
    pub fn may_repeat<B>(&self, head: &Request<B>, body: &[Bytes]) -> bool {
        self.recogniser.is_repeatable(head, body)
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
