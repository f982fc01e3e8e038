//! The cache with the settings in force: which requests it may answer, and what it makes of answers.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Method, Request};

use crate::answer::{AnswerAgain, StoredAnswer};
use crate::answerable::{AnswerableCheck, RequestTerms};
use crate::coalesce::CoalesceBounds;
use crate::config::{CacheMode, CacheSettings, Config};
use crate::counts::CacheEvent;
use crate::generation::CacheGeneration;
use crate::ghost::GhostQuestion;
use crate::key::{KeyContext, KeyedRequest};
use crate::plane::{CachePlane, SeenAnswer};
use crate::refusal::CacheRefusal;
use crate::routes::{CacheRoutes, with_path};
use crate::storable::AnswerParts;
use crate::store::AnswerStore;
use crate::trust::{CacheSeries, TrustRules, TrustState};
use crate::verify::HitCheck;
use lapwing_ledger::{Stamp, clock};
use lapwing_protocol::request_match::KnownRequest;
use lapwing_settings::{EvenDraw, LeverSwitch, Share};

/// The cache with the settings in force.
#[derive(Debug)]
pub struct Cache {
    pub(crate) plane: Arc<CachePlane>,
    routes: CacheRoutes,
    is_off: bool,
    is_on: bool,
    /// May turn it on or off instead.
    lever: LeverSwitch,
    check: AnswerableCheck,
    bounds: [u64; 2],
    /// Made when the first answer is looked for.
    store: OnceLock<Arc<AnswerStore>>,
    pub(crate) trust: TrustRules,
    pub(crate) verify: (EvenDraw, Share),
    /// Below which share of its time an answer is asked for anew.
    pub(crate) refresh: Option<Share>,
    pub(crate) coalesces: bool,
}

/// A request of which it is known whether an earlier answer may be given to it.
#[derive(Clone, Debug)]
pub struct CacheQuestion {
    pub(crate) keyed: KeyedRequest,
    pub(crate) terms: RequestTerms,
    pub(crate) settings: Arc<CacheSettings>,
    /// Whether answers are given, or it is only counted what that would bring.
    pub(crate) is_on: bool,
    /// `None` while its names are in no table: then nobody knows what has been shown.
    pub(crate) series: Option<CacheSeries>,
    /// How far that was trusted when it was asked.
    pub(crate) trust: TrustState,
    pub(crate) generation: CacheGeneration,
    pub(crate) model: Option<Box<str>>,
    pub(crate) units: u64,
    pub(crate) asked: Stamp,
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

impl Cache {
    pub(crate) fn new(plane: &Arc<CachePlane>, config: &Config, lever: &LeverSwitch) -> Self {
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
        let refuse = |refusal| self.plane.counters.refuse(refusal);
        let terms = AnswerableCheck::terms_of_head(head).map_err(refuse).ok()?;
        self.plane.forget_who_left();
        let generation = self.plane.generations.current(known.model);
        let named = KeyContext { pool, model: known.model, version: None, identity, generation };
        let series = (self.trust.proof == 0 || series.is_named(known.model.is_some())).then_some(series);
        let question = CacheQuestion {
            keyed: self.plane.keys.key(head, body, named, &settings.keys),
            terms,
            is_on: self.is_on(settings),
            settings: settings.clone(),
            series,
            trust: self.trust_in(series),
            generation,
            model: known.model.map(Into::into),
            units: known.work.unwrap_or(0),
            asked,
        };
        // to read a body takes longer than all else here: what was kept under the same key was let pass
        let is_kept = question.is_on && question.trust == TrustState::Proven && self.store().peek(&question.keyed.key).is_some();
        match if is_kept { None } else { self.check.body_refusal(head, body) } {
            Some(refusal) => {
                refuse(refusal);
                None
            }
            None => Some(question),
        }
    }

    /// A request or its answer had no room to be read.
    pub fn count_unread(&self) {
        self.plane.counters.bump(CacheEvent::Unread);
    }

    fn trust_in(&self, series: Option<CacheSeries>) -> TrustState {
        series.map_or(TrustState::Unproven, |series| self.plane.trust.state(series, self.trust))
    }

    pub(crate) fn store(&self) -> &Arc<AnswerStore> {
        self.store.get_or_init(|| self.plane.store(self.bounds[0], self.bounds[1]))
    }
}

impl CacheQuestion {
    /// The answer, as the client that asked is given it.
    pub(crate) fn again(&self, answer: &StoredAnswer, now: Stamp) -> AnswerAgain {
        answer.again(&self.keyed, now, wall())
    }

    /// Among which requests of about as much work it counts.
    pub(crate) fn class(&self) -> usize {
        usize::try_from(self.units.checked_ilog2().unwrap_or(0) / 2).unwrap_or(usize::MAX)
    }
}

pub(crate) fn wall() -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(clock::unix_ns())
}

impl Cache {
    /// Notes an answer: compares it with an earlier one, lets the ghost count it, or stores it.
    pub(crate) fn note(
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
        if let Some(series) = question.series {
            self.plane.trust.took(series, service_ns);
        }
        if !question.is_on {
            let ghost = GhostQuestion { key: keyed.key, bytes: answer.cost(), class: question.class(), service_ns };
            self.plane.observe(ghost, now);
            return Ok(None);
        }
        if self.trust_in(question.series) != TrustState::Proven {
            return Ok(None);
        }
        self.store().put(keyed.key, answer).map(Some)
    }

    /// Compares an answer with the one before to the same question, if that would still be good: with the one that is given to others, where
    /// there is one. What other processes were told, or what is no longer among the latest questions, is only there.
    fn compare(&self, question: &CacheQuestion, answer: &StoredAnswer, fresh_ns: u64, now: Stamp) {
        let seen = SeenAnswer { digest: answer.digest(), at: question.asked };
        let given = if question.is_on { self.store().peek(&question.keyed.key) } else { None };
        let given = given.map(|given| SeenAnswer { digest: given.digest(), at: given.asked() });
        let before = given.or_else(|| self.plane.seen.get(&question.keyed.key));
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
