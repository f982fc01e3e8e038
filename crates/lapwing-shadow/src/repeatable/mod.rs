//! Which exchanges may be repeated or written down: those whose request and whose route's answers are recognised as calls of a model, and
//! those of routes that the user names.
//!
//! A copy is decided by its own body and by what was learnt of its route: so many exchanges in a row whose request and answer had the form of
//! the protocol. An answer of success that has not, or one to a request that has not, makes the route be learnt anew. Errors say
//! nothing of a route. Everything here works on whole copies, away from the request path.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;

use super::config::Config;
use super::counters::{ShadowCounters, ShadowDrop};
use super::named_routes::NamedRoutes;
use lapwing_compare::outputs::{FinishedAnswer, grpc_messages, whole_body};
use lapwing_protocol::{Media, Recognised, Recogniser, WholeBody, fold_route};

/// After so many recognised exchanges in a row a route is repeatable.
pub(crate) const LEARNT_AFTER: u32 = 3;
/// How many routes are kept. One that is not repeatable makes room for one that is recognised.
const MAX_ROUTES: usize = 128;

/// Decides which exchanges may be repeated.
#[derive(Debug)]
pub struct Repeatable {
    recogniser: Recogniser,
    named: NamedRoutes,
    learnt: Mutex<LearntRoutes>,
    /// How many bytes of a body are read at most, once it is decompressed.
    limit: usize,
    /// The reasons that were logged, as bits by [`ShadowDrop`].
    logged: AtomicU32,
}

/// A request that was looked at.
#[derive(Clone, Debug)]
pub struct JudgedRequest {
    method: Method,
    path: String,
    route: String,
    kind: RequestKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    /// On a route that the user names.
    Named,
    Recognised,
    Refused(ShadowDrop),
}

/// The answer to a request, whole.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredExchange<'a> {
    /// The HTTP status.
    pub status: StatusCode,
    /// The head's fields.
    pub headers: &'a HeaderMap,
    /// The trailers, if there are any.
    pub trailers: Option<&'a HeaderMap>,
    /// The body.
    pub body: &'a [Bytes],
}

impl Repeatable {
    /// By `config`, with nothing learnt.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let limit = config.compare.max_decoded.get().max(config.max_body.get());
        Self {
            recogniser: Recogniser::default(),
            named: NamedRoutes::new(&config.routes),
            learnt: Mutex::default(),
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            logged: AtomicU32::new(0),
        }
    }

    /// Looks at a whole request.
    #[must_use]
    pub fn request(&self, method: &Method, path: &str, headers: &HeaderMap, body: &[Bytes]) -> JudgedRequest {
        let route = fold_route(method.as_str(), path).name;
        let kind = if self.named.has(&route, method.as_str(), path) {
            RequestKind::Named
        } else {
            match self.read(headers, body, |body| self.recogniser.request(method, path, body)) {
                Recognised::Yes => RequestKind::Recognised,
                Recognised::Effect(_) => RequestKind::Refused(ShadowDrop::Effect),
                Recognised::Error | Recognised::No => RequestKind::Refused(ShadowDrop::NotRecognised),
            }
        };
        JudgedRequest { method: method.clone(), path: path.to_owned(), route, kind }
    }

    /// Whether a request may be repeated before it is answered.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn before_answer(&self, request: &JudgedRequest) -> Result<(), ShadowDrop> {
        let refused = match request.kind {
            RequestKind::Named => return Ok(()),
            RequestKind::Refused(reason) => reason,
            RequestKind::Recognised if self.learnt.lock().standing(&request.route) == Standing::Repeatable => return Ok(()),
            RequestKind::Recognised => ShadowDrop::Learning,
        };
        Err(self.refused(request, refused))
    }

    /// Learns from the answer to a request. Returns whether the exchange may be repeated now, or once its route is learnt.
    ///
    /// # Errors
    ///
    /// Why it may not be.
    pub fn answered(&self, request: &JudgedRequest, answer: &AnsweredExchange<'_>) -> Result<Standing, ShadowDrop> {
        match request.kind {
            RequestKind::Named => Ok(Standing::Repeatable),
            RequestKind::Refused(reason) => {
                if reason == ShadowDrop::NotRecognised && answer.is_success() {
                    self.learnt.lock().unlearn(&request.route);
                }
                Err(self.refused(request, reason))
            }
            RequestKind::Recognised => {
                let learnt = || match self.learnt.lock().standing(&request.route) {
                    Standing::Repeatable => Ok(Standing::Repeatable),
                    Standing::Learning(_) => Err(ShadowDrop::Learning),
                };
                if !answer.is_success() {
                    return learnt();
                }
                let read = |body: WholeBody<'_>| self.recogniser.answer(&request.method, &request.path, body);
                match self.read(answer.headers, answer.body, read) {
                    Recognised::Yes => Ok(self.learnt.lock().recognise(&request.route)),
                    Recognised::Error => learnt(),
                    Recognised::Effect(_) => Err(self.refused(request, ShadowDrop::Effect)),
                    Recognised::No => {
                        self.learnt.lock().unlearn(&request.route);
                        Err(self.refused(request, ShadowDrop::NotRecognised))
                    }
                }
            }
        }
    }

    /// How the route of a request stands that was to be learnt when learning had begun anew `restarts` times.
    ///
    /// # Errors
    ///
    /// If it has begun anew since, because something on the route was not recognised.
    pub fn standing(&self, request: &JudgedRequest, restarts: u64) -> Result<Standing, ShadowDrop> {
        match self.learnt.lock().standing(&request.route) {
            Standing::Learning(now) if now != restarts => Err(ShadowDrop::NotRecognised),
            standing => Ok(standing),
        }
    }

    /// What was learnt of each route.
    #[must_use]
    pub fn routes(&self) -> Vec<RouteStanding> {
        self.learnt.lock().all()
    }

    /// Logs the first refusal for each reason that the tap found by a request's head alone.
    pub fn log_refused_heads(&self, counters: &ShadowCounters) {
        for reason in [ShadowDrop::UnknownRoute, ShadowDrop::Session] {
            if counters.dropped(reason) > 0 && self.is_first(reason) {
                let reason = reason.name();
                tracing::info!(
                    reason,
                    "sampled requests are not copied; name their routes in shadow.routes if they are safe to repeat"
                );
            }
        }
    }

    /// Whether nothing was logged for this reason yet.
    fn is_first(&self, reason: ShadowDrop) -> bool {
        let bit = 1 << (reason as u32);
        // read first, because this is asked often
        self.logged.load(Relaxed) & bit == 0 && self.logged.fetch_or(bit, Relaxed) & bit == 0
    }

    /// Logs the first refusal for each reason, with the setting that would change it.
    fn refused(&self, request: &JudgedRequest, reason: ShadowDrop) -> ShadowDrop {
        if reason != ShadowDrop::Learning && self.is_first(reason) {
            let route = request.route.as_str();
            tracing::info!(
                route,
                reason = reason.name(),
                "a sampled request is neither copied nor recorded; if its route is safe to repeat, name it in shadow.routes; further ones \
                 are counted only"
            );
        }
        reason
    }

    /// Reads a body; one that cannot be decompressed, or is too large then, is not recognised.
    fn read(&self, headers: &HeaderMap, body: &[Bytes], recognise: impl FnOnce(WholeBody<'_>) -> Recognised) -> Recognised {
        let Ok(whole) = whole_body(headers, body, self.limit) else { return Recognised::No };
        match Media::of(headers) {
            Media::Grpc => {
                let message = FinishedAnswer { status: 200, headers, grpc_status: None, body, is_complete: true };
                let messages = grpc_messages(&message, &whole, self.limit);
                messages.map_or(Recognised::No, |messages| recognise(WholeBody::Messages(&messages)))
            }
            media => recognise(WholeBody::Document(media, &whole)),
        }
    }
}

impl AnsweredExchange<'_> {
    /// Whether the upstream did what it was asked for.
    fn is_success(&self) -> bool {
        let grpc_status = self.trailers.and_then(|fields| fields.get("grpc-status")).or_else(|| self.headers.get("grpc-status"));
        self.status.is_success() && grpc_status.is_none_or(|status| status == "0")
    }
}

/// Whether a route is repeatable now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is.
    Repeatable,
    /// Not yet: too few recognised exchanges. With the number of times that learning began anew.
    Learning(u64),
}

/// A route and what was learnt of it, for surfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteStanding {
    /// The route, as `/stats` names it.
    pub route: String,
    /// Whether it is repeatable now.
    pub is_repeatable: bool,
    /// Exchanges that were recognised.
    pub recognised: u64,
    /// Requests that were not, or whose answer was not.
    pub not_recognised: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Learnt {
    /// Recognised exchanges since the last one that was not.
    in_a_row: u32,
    restarts: u64,
    recognised: u64,
    not_recognised: u64,
}

/// All routes that were looked at.
#[derive(Debug, Default)]
pub(crate) struct LearntRoutes(BTreeMap<String, Learnt>);

impl LearntRoutes {
    /// How a route stands.
    pub(crate) fn standing(&self, route: &str) -> Standing {
        self.0.get(route).map_or(Standing::Learning(0), Learnt::standing)
    }

    /// An exchange was that of a known protocol. Returns how its route stands then.
    pub(crate) fn recognise(&mut self, route: &str) -> Standing {
        let Some(learnt) = self.entry(route, true) else { return Standing::Learning(0) };
        learnt.in_a_row = learnt.in_a_row.saturating_add(1);
        learnt.recognised += 1;
        learnt.standing()
    }

    /// A request, or a good answer, was not: the route is to be learnt anew.
    pub(crate) fn unlearn(&mut self, route: &str) {
        if let Some(learnt) = self.entry(route, false) {
            learnt.in_a_row = 0;
            learnt.restarts += 1;
            learnt.not_recognised += 1;
        }
    }

    /// The entry of a route, if there is room for it.
    fn entry(&mut self, route: &str, is_recognised: bool) -> Option<&mut Learnt> {
        if !self.0.contains_key(route) && self.0.len() >= MAX_ROUTES {
            let other = self.0.iter().find(|(_, learnt)| learnt.in_a_row == 0).map(|(route, _)| route.clone());
            self.0.remove(&other.filter(|_| is_recognised)?);
        }
        Some(self.0.entry(route.to_owned()).or_default())
    }

    /// Every route, by name.
    pub(crate) fn all(&self) -> Vec<RouteStanding> {
        let standing = |(route, learnt): (&String, &Learnt)| RouteStanding {
            route: route.clone(),
            is_repeatable: learnt.standing() == Standing::Repeatable,
            recognised: learnt.recognised,
            not_recognised: learnt.not_recognised,
        };
        self.0.iter().map(standing).collect()
    }
}

impl Learnt {
    const fn standing(&self) -> Standing {
        if self.in_a_row >= LEARNT_AFTER { Standing::Repeatable } else { Standing::Learning(self.restarts) }
    }
}
