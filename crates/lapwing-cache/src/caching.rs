//! The cache as a data plane uses it: with the settings in force.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::answer::{AnswerAgain, StoredAnswer};
use crate::answerable::{AnswerableCheck, RequestTerms};
use crate::coalesce::{CoalesceBounds, FollowerId, LeaderTicket, WhyAlone};
use crate::config::{CacheMode, CacheSettings, Config};
use crate::counts::CacheEvent;
use crate::generation::CacheGeneration;
use crate::ghost::GhostQuestion;
use crate::key::{KeyContext, KeyedRequest};
use crate::plane::{CachePlane, Joined, SeenAnswer};
use crate::refusal::CacheRefusal;
use crate::routes::{CacheRoutes, with_path};
use crate::sealed::SharedEpoch;
use crate::shared::{SharedAnswers, SharedKeeper};
use crate::storable::{AnswerParts, head_refusal};
use crate::store::{AnswerStore, CacheLookup};
use crate::trust::{CacheSeries, TrustRules, TrustState};
use crate::verify::HitCheck;
use lapwing_ledger::{Stamp, clock};
use lapwing_protocol::request_match::KnownRequest;
use lapwing_settings::{ConfigHandle, EvenDraw, Fault, LeverSwitch, Share};

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

    /// The same with the Redis of `config`, which processes share, if it names one; and its background, which the caller runs.
    ///
    /// # Errors
    ///
    /// A file of the section that cannot be used.
    pub fn shared_by(&self, config: &Config) -> Result<Option<SharedKeeper>, Fault> {
        let plane = self.plane.clone();
        let forget = move |scope| plane.forget_as(&scope);
        let shared = SharedAnswers::new("cache.redis", &config.redis, config.largest_entry().get(), forget)?;
        Ok(shared.map(|(shared, keeper)| {
            self.plane.share(shared);
            keeper
        }))
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
    /// It is given this answer.
    Answered(Box<AnswerAgain>),
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
        self.routes.awaits(request).is_some() || self.is_on(self.routes.of(request, with_path(request, KnownRequest::default())))
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
        let QuestionContext { known, pool, series, identity, asked } = context;
        let known = with_path(head, known);
        let settings = self.routes.of(head, known);
        if settings.mode == CacheMode::Off {
            return None;
        }
        let terms = self.check.terms(head, body).map_err(|refusal| self.plane.counters.refuse(refusal)).ok()?;
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
        let asking = |question, ticket, looks_further| {
            Looked::Asked(Asking { cache: self.clone(), question: Some(question), ticket, looks_further, epoch: None })
        };
        let ask = |question, ticket| asking(question, ticket, false);
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
            return Looked::Answered(Box::new(question.again(&answer, now)));
        }
        if question.terms.only_if_cached {
            counters.bump(CacheEvent::OnlyIfCached);
            return Looked::OnlyIfCached;
        }
        let is_shared = self.plane.shared().is_some();
        if !self.coalesces || !question.terms.may_answer {
            counters.bump(CacheEvent::Miss);
            return asking(question, None, is_shared);
        }
        match self.plane.join(question.keyed.key, now) {
            Joined::Leads(ticket) => {
                counters.bump(CacheEvent::Miss);
                asking(question, Some(ticket), is_shared)
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

/// A request that the upstream is asked, whose answer is to be noted. Dropped: it had none that others may be given.
#[derive(Debug)]
pub struct Asking {
    cache: Arc<Cache>,
    question: Option<CacheQuestion>,
    ticket: Option<LeaderTicket>,
    /// Whether others may have an answer to it.
    looks_further: bool,
    /// In which the answer may be shared.
    epoch: Option<SharedEpoch>,
}

impl Asking {
    /// Whether others may wait for its answer, so that it must come whether its client leaves or not.
    #[must_use]
    pub const fn leads(&self) -> bool {
        self.ticket.is_some()
    }

    /// Whether an answer with this head may be stored. If not, that is counted.
    #[must_use]
    pub fn wants(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        let Some(question) = &self.question else { return false };
        let refusal = head_refusal(status, headers, question.settings.storing);
        refusal.is_none_or(|refusal| {
            self.cache.plane.counters.refuse(refusal);
            false
        })
    }

    /// Whether other processes may have an answer.
    #[must_use]
    pub const fn looks_further(&self) -> bool {
        self.looks_further
    }

    /// Looks for an answer of other processes. It takes no longer than `cache.redis.deadline`.
    pub async fn look_further(&mut self) -> Option<AnswerAgain> {
        let (question, plane) = (self.question.as_ref()?, &self.cache.plane);
        let now = (Stamp::now(), wall());
        let found = plane.shared()?.get(&question.keyed.shared, question.model.as_deref(), &question.terms, None, now).await;
        self.epoch = found.epoch;
        let answer = found.answer.ok()?;
        if plane.generations.current(question.model.as_deref()) != question.generation {
            return None;
        }
        let answer = self.cache.store().put(question.keyed.key, answer).ok()?;
        plane.counters.bump(CacheEvent::L2);
        plane.counters.save(answer.service_ns());
        let again = question.again(&answer, Stamp::now());
        if let Some(ticket) = self.ticket.take() {
            plane.finish(ticket, Some(&answer));
        }
        Some(again)
    }

    /// Too much was waiting to be noted: nothing is.
    pub fn give_up(self) {
        self.cache.plane.counters.bump(CacheEvent::Unread);
    }

    /// The upstream answered, with the last byte at `now`.
    pub fn answered(mut self, parts: AnswerParts<'_>, now: Stamp) {
        let Some(question) = self.question.take() else { return };
        let service_ns = now.since(question.asked);
        let noted = self.cache.note(&question, parts, service_ns, now);
        let answer = noted.map_err(|refusal| self.cache.plane.counters.refuse(refusal)).ok().flatten();
        if let (Some(answer), Some(shared), Some(epoch)) = (&answer, self.cache.plane.shared(), self.epoch.take()) {
            // what there is no room for is counted there
            let _ = shared.put(question.keyed.shared, epoch, answer.clone(), (now, wall()));
        }
        if let Some(ticket) = self.ticket.take() {
            self.cache.plane.finish(ticket, answer.as_ref());
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.cache.plane.finish(ticket, None);
        }
    }
}

impl Cache {
    /// Notes an answer: compares it with an earlier one, lets the ghost count it, or stores it.
    fn note(
        &self,
        question: &CacheQuestion,
        parts: AnswerParts<'_>,
        service_ns: u64,
        now: Stamp,
    ) -> Result<Option<Arc<StoredAnswer>>, CacheRefusal> {
        let CacheQuestion { keyed, settings, .. } = question;
        let terms = parts.terms(settings.storing, &settings.keys)?;
        let answer = StoredAnswer::new(keyed, parts, terms, service_ns, question.asked)?;
        let named = question.series.filter(|series| series.is_named(question.model.is_some()));
        if let Some((version, series)) = answer.model_version().zip(named) {
            self.plane.on_version(series.model, question.model.as_deref(), &version);
        }
        if self.plane.generations.current(question.model.as_deref()) != question.generation {
            // it was asked of a server that is another by now, or of none that is trusted
            return Ok(None);
        }
        self.compare(question, &answer, terms.fresh_ns, now);
        if !question.is_on {
            let ghost = GhostQuestion { key: keyed.key, bytes: answer.cost(), class: question.class(), service_ns };
            self.plane.observe(ghost, now);
            return Ok(None);
        }
        if self.trust_in(question) != TrustState::Proven {
            return Ok(None);
        }
        self.store().put(keyed.key, answer).map(Some)
    }

    /// Compares an answer with the one before to the same question, if that would still be good.
    fn compare(&self, question: &CacheQuestion, answer: &StoredAnswer, fresh_ns: u64, now: Stamp) {
        let seen = SeenAnswer { digest: answer.digest(), at: question.asked };
        let before = self.plane.seen.get(&question.keyed.key);
        self.plane.seen.insert(question.keyed.key, seen);
        let Some(before) = before.filter(|before| now.since(before.at) < fresh_ns) else { return };
        let is_same = before.digest == seen.digest;
        self.plane.counters.bump(if is_same { CacheEvent::Same } else { CacheEvent::Different });
        let check = if is_same { HitCheck::Fresh } else { HitCheck::Stale };
        if question.series.is_some_and(|series| self.plane.trust.note(series, check, self.trust)) {
            // what was stored of it is not to be found again
            self.plane.renew(question.model.as_deref());
            let model = question.model.as_deref().unwrap_or("unnamed");
            tracing::warn!(model, "the upstream gave another answer to the same question: it is asked in all cases from now on");
        }
    }
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
        let question = Some(self.question.take()?);
        Some(Asking { cache: self.cache.clone(), question, ticket: None, looks_further: false, epoch: None })
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.cache.plane.leave(self.id);
    }
}

/// The pieces of a body, most of which have one.
pub type BodyPieces = SmallVec<[Bytes; 4]>;
