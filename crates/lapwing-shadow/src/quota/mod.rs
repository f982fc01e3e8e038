//! Quotas: of each cost class of a route so many copies a minute, so that rare requests are seen that a share would miss.
//!
//! A class is known when its request has been answered, so the tap captures every request of a route with a quota and asks here
//! once its account closes. Each model and class of a route has a bucket of its own, filled at the quota's rate and holding what
//! a minute brings. Bounded: so many routes, so many buckets.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::named_routes::NamedRoutes;
use lapwing_ledger::{LabelId, LabelTable, Stamp};
use lapwing_protocol::{Protocols, fold_route};
use lapwing_settings::{Checks, Form, Record};

/// How many routes may have a quota.
const MAX_ROUTES: usize = 32;
/// How many buckets are kept. One that is full again is forgotten when another needs its room.
const MAX_BUCKETS: usize = 1024;
/// How often full buckets are looked for at most, in nanoseconds.
const SWEEP_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60_000_000_000;

/// A quota in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "quota")]
pub struct RouteQuota {
    /// The route, as `/stats` names it.
    pub route: String,
    /// How many copies a minute are taken of each cost class and model.
    #[serde(default = "default_per_minute")]
    pub per_minute: u32,
}

const fn default_per_minute() -> u32 {
    30
}

/// An element of `shadow.quotas`.
pub(crate) const QUOTA: Record = Record {
    what: "a route and how many copies a minute: route, per_minute",
    keys: &[("route", Form::Text), ("per_minute", Form::Number)],
    stand_in: &[("route", "POST /v2/models/{model}/infer")],
};

/// Checks the key `quotas`. `routes` are those that are safe to repeat although they are of no known protocol.
pub(crate) fn check(quotas: &[RouteQuota], routes: &[String], checks: &mut Checks) {
    if quotas.len() > MAX_ROUTES {
        checks.fault("quotas", quotas.len(), format!("there may be {MAX_ROUTES} quotas"));
    }
    for (index, RouteQuota { route, per_minute }) in quotas.iter().enumerate() {
        checks.range(&format!("quotas[{index}].per_minute"), per_minute, 1..=60_000);
        let reason = route_fault(route, routes).or_else(|| {
            let is_double = quotas[..index].iter().any(|other| other.route == *route);
            is_double.then(|| "has a quota already".to_owned())
        });
        if let Some(reason) = reason {
            checks.fault(&format!("quotas[{index}].route"), route, reason);
        }
    }
}

/// Why requests of this route would never be taken.
fn route_fault(route: &str, routes: &[String]) -> Option<String> {
    let method_and_path = route.split_once(' ').filter(|(_, path)| path.starts_with('/'));
    let Some((method, path)) = method_and_path else {
        return Some("must be a method and a path, as /stats names it: POST /v2/models/{model}/infer".to_owned());
    };
    let name = fold_route(method, path).name;
    if name != route {
        return Some(format!("is not a route's name; /stats calls it {name}"));
    }
    let protocols = Protocols::default();
    let headers = [HeaderMap::new(), HeaderMap::from_iter([(http::header::CONTENT_TYPE, GRPC)])];
    let is_inference = |method: &Method| headers.iter().any(|headers| protocols.may_be_inference(method, path, headers));
    let is_named = NamedRoutes::new(routes).has(route, method, path);
    let is_safe = is_named || method.parse().is_ok_and(|method| is_inference(&method));
    (!is_safe).then(|| "is of no known inference protocol; if it is safe to repeat, name it in shadow.routes too".to_owned())
}

const GRPC: http::HeaderValue = http::HeaderValue::from_static("application/grpc");

/// The place of a route among those with a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaIndex(usize);

/// What became of requests on routes with quotas that the share did not draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaResult {
    /// It was captured, and taken: its copy was handed over.
    Taken,
    /// It was captured, and let go: its class had its copies, or it was not answered.
    LetGo,
    /// It was not captured, or not handed over: the room is for requests that the share draws.
    Skipped,
}

impl QuotaResult {
    /// Every result.
    pub const ALL: [Self; 3] = [Self::Taken, Self::LetGo, Self::Skipped];

    /// The name on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::LetGo => "let_go",
            Self::Skipped => "skipped",
        }
    }
}

/// The quotas of all routes, and what is left of them.
#[derive(Debug, Default)]
pub struct QuotaTable {
    routes: Vec<QuotaOfRoute>,
    /// Locked by the data plane alone, once a request is answered.
    buckets: Mutex<Buckets>,
}

/// The quota of one route, and what became of its requests.
#[derive(Debug)]
pub struct QuotaOfRoute {
    /// The route, as `/stats` names it.
    pub route: String,
    /// Copies a minute of each model and class.
    pub per_minute: u32,
    label: LabelId,
    /// By [`QuotaResult`].
    counts: [AtomicU64; QuotaResult::ALL.len()],
}

impl QuotaOfRoute {
    /// How many requests had this result.
    #[must_use]
    pub fn count(&self, result: QuotaResult) -> u64 {
        self.counts[result as usize].load(Relaxed)
    }
}

/// A route, a model and a class.
type BucketKey = (usize, LabelId, Option<usize>);

#[derive(Debug, Default)]
struct Buckets {
    /// When each is full again, in nanoseconds. One that is not here is full.
    full_at: FxHashMap<BucketKey, u64>,
    swept_at: u64,
}

impl QuotaTable {
    /// The table of a checked configuration. The routes get their labels in `labels`.
    #[must_use]
    pub fn new(quotas: &[RouteQuota], labels: &LabelTable) -> Self {
        let of_route = |RouteQuota { route, per_minute }: &RouteQuota| {
            let label = labels.intern(route);
            if label == LabelId::OTHER {
                tracing::warn!(route, "the quota does nothing, because there are more routes than metrics.max_routes");
            }
            QuotaOfRoute { route: route.clone(), per_minute: (*per_minute).max(1), label, counts: Default::default() }
        };
        Self { routes: quotas.iter().map(of_route).collect(), buckets: Mutex::default() }
    }

    /// Whether no route has a quota.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// The quota of a route, if it has one.
    #[must_use]
    pub fn find(&self, route: LabelId) -> Option<QuotaIndex> {
        let is_named = route != LabelId::OTHER;
        self.routes.iter().position(|quota| is_named && quota.label == route).map(QuotaIndex)
    }

    /// Takes a request of this model and cost class (`None`: its work is unknown) at `now`, if its class has room.
    #[must_use]
    pub fn take(&self, quota: QuotaIndex, model: LabelId, class: Option<usize>, now: Stamp) -> bool {
        let Some(of_route) = self.routes.get(quota.0) else { return false };
        let each_ns = MINUTE_NS / u64::from(of_route.per_minute);
        self.buckets.lock().take((quota.0, model, class), each_ns, now.as_ns())
    }

    /// Counts what became of a request.
    pub fn record(&self, quota: QuotaIndex, result: QuotaResult) {
        if let Some(of_route) = self.routes.get(quota.0) {
            of_route.counts[result as usize].fetch_add(1, Relaxed);
        }
    }

    /// Every quota, in the order of the configuration.
    pub fn routes(&self) -> impl Iterator<Item = &QuotaOfRoute> {
        self.routes.iter()
    }
}

impl Buckets {
    /// The generic cell rate algorithm (ITU-T I.371): each copy puts off by `each_ns` the time at which the bucket is full again, which
    /// is at most a minute ahead.
    fn take(&mut self, key: BucketKey, each_ns: u64, now_ns: u64) -> bool {
        if !self.full_at.contains_key(&key) && self.full_at.len() >= MAX_BUCKETS && !self.make_room(now_ns) {
            return false;
        }
        let full_at = self.full_at.entry(key).or_default();
        let next = now_ns.max(*full_at).saturating_add(each_ns);
        let has_room = next.saturating_sub(now_ns) <= MINUTE_NS;
        if has_room {
            *full_at = next;
        }
        has_room
    }

    /// Forgets full buckets. Returns whether there is room for another.
    fn make_room(&mut self, now_ns: u64) -> bool {
        if now_ns.saturating_sub(self.swept_at) >= SWEEP_NS {
            self.swept_at = now_ns;
            self.full_at.retain(|_, full_at| *full_at > now_ns);
        }
        self.full_at.len() < MAX_BUCKETS
    }
}

#[cfg(test)]
mod tests;
