//! The cache as a data plane uses it: with the settings in force.

mod asking;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Method, Request};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::answer::{AnswerAgain, StoredAnswer};
use crate::answerable::{AnswerableCheck, RequestTerms};
use crate::coalesce::{CoalesceBounds, FollowerId, WhyAlone};
use crate::config::{CacheMode, CacheSettings, Config};
use crate::counts::CacheEvent;
use crate::generation::CacheGeneration;
use crate::key::{KeyContext, KeyedRequest};
use crate::plane::{CachePlane, Joined};
use crate::refresh::RefreshTicket;
use crate::routes::CacheRoutes;
use crate::store::{AnswerStore, CacheLookup};
use crate::trust::{CacheSeries, TrustRules, TrustState};
use lapwing_ledger::{Stamp, clock};
use lapwing_protocol::request_match::KnownRequest;
use lapwing_settings::{ConfigHandle, EvenDraw, LeverSwitch, Share};

pub use self::asking::Asking;

/// The cache of a process, and the settings that it follows.
#[derive(Clone, Debug)]
pub struct Caching {
    plane: Arc<CachePlane>,
    config: ConfigHandle<Config>,
}

impl Caching {
    /// A cache without answers, whose keys are made with this secret.
    ///
    /// `absences` counts how often an upstream was found to be away: who comes back may serve another model.
    #[must_use]
    pub fn new(secret: [u8; 32], absences: impl Fn() -> u64 + Send + Sync + 'static, config: ConfigHandle<Config>) -> Self {
        Self { plane: Arc::new(CachePlane::new(secret, absences)), config }
    }

    /// What it keeps.
    #[must_use]
    pub const fn plane(&self) -> &Arc<CachePlane> {
        &self.plane
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &ConfigHandle<Config> {
        &self.config
    }

    /// The cache with the settings in force. `lever` may turn it on or off instead.
    #[must_use]
    pub fn in_force(&self, lever: &LeverSwitch) -> ConfigHandle<Cache> {
        let (plane, lever) = (self.plane.clone(), lever.clone());
        self.config.map(move |config| Cache::new(&plane, config, &lever))
    }
}

/// The cache with the settings in force.
#[derive(Debug)]
pub struct Cache {
    plane: Arc<CachePlane>,
    routes: CacheRoutes,
    is_off: bool,
    is_on: bool,
    /// May turn it on or off instead.
    lever: LeverSwitch,
    check: AnswerableCheck,
    bounds: [u64; 2],
    /// Made when the first answer is looked for.
    store: OnceLock<Arc<AnswerStore>>,
    trust: TrustRules,
    verify: (EvenDraw, Share),
    /// Below which share of its time an answer is asked for anew.
    refresh: Option<Share>,
    coalesces: bool,
}

/// A request of which it is known whether an earlier answer may be given to it.
#[derive(Clone, Debug)]
pub struct CacheQuestion {
    keyed: KeyedRequest,
    terms: RequestTerms,
    settings: Arc<CacheSettings>,
    /// Whether answers are given, or it is only counted what that would bring.
    is_on: bool,
    /// `None` while its names are in no table: then nobody knows what has been shown.
    series: Option<CacheSeries>,
    generation: CacheGeneration,
    model: Option<Box<str>>,
    units: u64,
    asked: Stamp,
}

/// What else is known of a request.
#[derive(Clone, Copy, Debug)]
pub struct QuestionContext<'a> {
    /// What its body told.
    pub known: KnownRequest<'a>,
    /// The upstreams that it may go to.
    pub pool: &'a str,
    /// What it counts under.
    pub series: CacheSeries,
    /// What its connection proves of its client.
    pub identity: Option<&'a [u8]>,
    /// When it is asked.
    pub asked: Stamp,
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Looked {
    /// It is given this answer. It is soon out of date, if the upstream may be asked beside it.
    Answered(Box<AnswerAgain>, Option<Asking>),
    /// The upstream is asked, and its answer noted.
    Asked(Asking),
    /// It waits for the answer to the same request.
    Follows(Following),
    /// Its client wants an answer from here only, and there is none.
    OnlyIfCached,
}

impl Cache {
    fn new(plane: &Arc<CachePlane>, config: &Config, lever: &LeverSwitch) -> Self {
        let routes = CacheRoutes::new(config);
        let coalescing = config.coalesce_bounds();
        if let Some(bounds) = coalescing {
            plane.bound_waiting(bounds);
        } else {
            plane.bound_waiting(CoalesceBounds { followers: 0, leaders: 0, wait_ns: 0 });
        }
        Self {
            plane: plane.clone(),
            is_off: routes.is_off(),
            is_on: routes.is_on(),
            routes,
            lever: lever.clone(),
            check: AnswerableCheck::default(),
            bounds: [config.max_bytes.get(), config.largest_entry().get()],
            store: OnceLock::new(),
            trust: config.trust_rules(),
            verify: (EvenDraw::default(), config.verify),
            refresh: config.refresh.on().copied(),
            coalesces: coalescing.is_some(),
        }
    }

    /// Whether nothing of `request` is of interest.
    #[inline]
    #[must_use]
    pub fn ignores<B>(&self, request: &Request<B>) -> bool {
        (self.is_off && !self.lever.is_turned()) || *request.method() != Method::POST
    }

    /// Whether `request` may be answered from here, by its head: then its body has to be known before it goes on.
    #[must_use]
    pub fn may_answer<B>(&self, request: &Request<B>) -> bool {
        if !self.lever.is_on(self.is_on) {
            return false;
        }
        self.routes.awaits(request).is_some() || self.is_on(self.routes.of(request, KnownRequest::default()))
    }

    /// Whether what holds for `request` depends on a model that its body names.
    #[must_use]
    pub fn awaits_model<B>(&self, request: &Request<B>) -> bool {
        self.routes.awaits(request).is_some()
    }

    /// Whether answers are given by these settings. A trial turns on what is counted otherwise.
    fn is_on(&self, settings: &CacheSettings) -> bool {
        settings.mode != CacheMode::Off && self.lever.is_on(settings.mode == CacheMode::On)
    }

    /// The largest body of an answer, in bytes.
    #[must_use]
    pub const fn largest_entry(&self) -> u64 {
        self.bounds[1]
    }

    /// The question of a request with this head and whole body; `None`, and counted, if no answer may be given to it.
    pub fn question<B>(&self, head: &Request<B>, body: &[Bytes], context: QuestionContext<'_>) -> Option<CacheQuestion> {
        let settings = self.routes.of(head, context.known);
        if settings.mode == CacheMode::Off {
            return None;
        }
        let terms = self.check.terms(head, body).map_err(|refusal| self.plane.counters.refuse(refusal)).ok()?;
        let QuestionContext { known, pool, series, identity, asked } = context;
        self.plane.forget_who_left();
        let generation = self.plane.generations.current(known.model);
        let named = KeyContext { pool, model: known.model, version: None, identity, generation };
        Some(CacheQuestion {
            keyed: self.plane.keys.key(head, body, named, &settings.keys),
            terms,
            is_on: self.is_on(settings),
            settings: settings.clone(),
            series: (self.trust.proof == 0 || series.is_named(known.model.is_some())).then_some(series),
            generation,
            model: known.model.map(Into::into),
            units: known.work.unwrap_or(0),
            asked,
        })
    }

    fn trust_in(&self, question: &CacheQuestion) -> TrustState {
        question.series.map_or(TrustState::Unproven, |series| self.plane.trust.state(series, self.trust))
    }

    fn store(&self) -> &Arc<AnswerStore> {
        self.store.get_or_init(|| self.plane.store(self.bounds[0], self.bounds[1]))
    }

    /// Looks for an answer.
    #[must_use]
    pub fn look(self: &Arc<Self>, question: CacheQuestion, now: Stamp) -> Looked {
        let counters = &self.plane.counters;
        let ask =
            |question, ticket| Looked::Asked(Asking { cache: self.clone(), question: Some(question), ticket, refresh: None });
        if !question.is_on {
            return ask(question, None);
        }
        match self.trust_in(&question) {
            TrustState::Proven => {}
            state => {
                counters.bump(if state == TrustState::Refused { CacheEvent::Refused } else { CacheEvent::Unproven });
                return ask(question, None);
            }
        }
        if let CacheLookup::Hit(answer) = self.store().get(&question.keyed.key, &question.terms, now) {
            let (draw, share) = &self.verify;
            if !question.terms.only_if_cached && draw.draw(*share) {
                counters.bump(CacheEvent::Verified);
                return ask(question, None);
            }
            counters.bump(CacheEvent::L1);
            counters.save(answer.service_ns());
            let again = Box::new(question.again(&answer, now));
            let refresh = self.refresh.and_then(|share| RefreshTicket::of(&self.plane, &answer, share, now));
            let asks = |ticket| Asking { cache: self.clone(), question: Some(question), ticket: None, refresh: Some(ticket) };
            return Looked::Answered(again, refresh.map(asks));
        }
        if question.terms.only_if_cached {
            counters.bump(CacheEvent::OnlyIfCached);
            return Looked::OnlyIfCached;
        }
        if !self.coalesces || !question.terms.may_answer {
            counters.bump(CacheEvent::Miss);
            return ask(question, None);
        }
        match self.plane.join(question.keyed.key, now) {
            Joined::Leads(ticket) => {
                counters.bump(CacheEvent::Miss);
                ask(question, Some(ticket))
            }
            Joined::Alone(why) => {
                let full = if why == WhyAlone::Leaders { CacheEvent::LeadersFull } else { CacheEvent::FollowersFull };
                counters.bump(full);
                ask(question, None)
            }
            Joined::Follows { id, answer } => {
                Looked::Follows(Following { cache: self.clone(), id, answer, question: Some(question) })
            }
        }
    }
}

impl CacheQuestion {
    /// The answer, as the client that asked is given it.
    fn again(&self, answer: &StoredAnswer, now: Stamp) -> AnswerAgain {
        answer.again(&self.keyed, now, wall())
    }

    /// Among which requests of about as much work it counts.
    fn class(&self) -> usize {
        usize::try_from(self.units.checked_ilog2().unwrap_or(0) / 2).unwrap_or(usize::MAX)
    }
}

fn wall() -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(clock::unix_ns())
}

/// A request that waits for the answer to the same one.
#[derive(Debug)]
pub struct Following {
    cache: Arc<Cache>,
    id: FollowerId,
    answer: oneshot::Receiver<Option<Arc<StoredAnswer>>>,
    question: Option<CacheQuestion>,
}

impl Following {
    /// How long it may wait, in nanoseconds.
    #[must_use]
    pub fn wait_ns(&self) -> u64 {
        self.cache.plane.wait_ns()
    }

    /// Waits for the answer; `None` if the one that it follows has none for it. To be given up after [`Self::wait_ns`].
    pub async fn answer(&mut self) -> Option<AnswerAgain> {
        let answer = (&mut self.answer).await.ok().flatten()?;
        self.cache.plane.counters.bump(CacheEvent::Coalesced);
        self.cache.plane.counters.save(answer.service_ns());
        Some(self.question.as_ref()?.again(&answer, Stamp::now()))
    }

    /// It goes on its own.
    #[must_use]
    pub fn alone(mut self) -> Option<Asking> {
        self.cache.plane.counters.bump(CacheEvent::FollowerAlone);
        Some(Asking { cache: self.cache.clone(), question: Some(self.question.take()?), ticket: None, refresh: None })
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.cache.plane.leave(self.id);
    }
}

/// The pieces of a body, most of which have one.
pub type BodyPieces = SmallVec<[Bytes; 4]>;
