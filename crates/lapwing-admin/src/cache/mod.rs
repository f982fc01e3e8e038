//! `/cache`: what is answered without asking the upstream, what stays out and why, and what a cache would bring; in words and as JSON.
//! Durations are nanoseconds, shares 0 to 1. `POST /cache/purge` forgets all answers.

mod ghost;
mod purge;
mod words;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use self::ghost::GhostView;
use crate::surfaces::Surfaces;
use lapwing_cache::{CacheEvent, CacheMode, CacheScope, CacheSeries, Caching, Config, SeriesTrust, TrustState};
use lapwing_diagnosis::LeverAdvice;
use lapwing_metrics::Labels;

pub(crate) use purge::{CachePurge, purge};

/// What `trial.lever` calls it.
const LEVER: &str = "cache";

/// What becomes of a request that may be answered from here: one of these.
pub(crate) const RESULTS: [CacheEvent; 11] = [
    CacheEvent::L1,
    CacheEvent::L2,
    CacheEvent::Coalesced,
    CacheEvent::Miss,
    CacheEvent::Verified,
    CacheEvent::Unproven,
    CacheEvent::Refused,
    CacheEvent::OnlyIfCached,
    CacheEvent::FollowersFull,
    CacheEvent::LeadersFull,
    CacheEvent::FollowerAlone,
];

/// The results that are answers from here.
const HITS: [CacheEvent; 3] = [CacheEvent::L1, CacheEvent::L2, CacheEvent::Coalesced];

/// The whole report. Counts are of the time since the start.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CacheView {
    /// `on` if requests of some route are answered from here, else `observe`.
    pub(crate) mode: CacheMode,
    /// `cache.proof`, `cache.ttl` and `cache.scope`, as far as no route says otherwise.
    pub(crate) proof: u64,
    pub(crate) ttl_ns: u64,
    pub(crate) scope: CacheScope,
    /// Requests that might have been answered from here, where it is on.
    pub(crate) requests: u64,
    /// What became of them.
    pub(crate) results: BTreeMap<&'static str, u64>,
    /// The share of them that was answered from here; absent if there were none.
    pub(crate) hit_rate: Option<f64>,
    /// What the upstream took when it gave those answers.
    pub(crate) saved_ns: u64,
    /// Answers that were compared with an earlier one to the same question.
    pub(crate) compared: u64,
    /// Those that were another.
    pub(crate) different: u64,
    /// Why requests are not answered from here, or their answers not kept: how often, by reason.
    pub(crate) refused: BTreeMap<&'static str, u64>,
    /// Answers that are kept.
    pub(crate) entries: usize,
    /// What they take, of `max_bytes`.
    pub(crate) bytes: u64,
    pub(crate) max_bytes: u64,
    /// Answers that were stored.
    pub(crate) stored: u64,
    /// Answers that were asked for and found to be out of date.
    pub(crate) expired: u64,
    /// Answers that were asked for anew while they were still good.
    pub(crate) refreshed: u64,
    /// Requests at the upstream whose answer others may be given.
    pub(crate) leading: usize,
    /// Requests that wait for the answer to the same one.
    pub(crate) following: usize,
    /// Whether the upstream gives the same answer to the same question, by route and model.
    pub(crate) series: Vec<SeriesTrustView>,
    /// What caches would have brought, of the requests that passed while it observes; absent until one has.
    pub(crate) ghost: Option<GhostView>,
}

/// Whether the upstream gives the same answer to the same question, on a route and for a model.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SeriesTrustView {
    pub(crate) route: String,
    pub(crate) model: String,
    /// `unproven`, `proven`, or `refused`: it gave another answer.
    pub(crate) state: &'static str,
    /// Answers that were compared with an earlier one, since its answers were last forgotten.
    pub(crate) compared: u64,
    pub(crate) same: u64,
    pub(crate) different: u64,
    /// Their share, with the bounds between which it is with a probability of 95 %.
    pub(crate) different_share: ShareView,
    /// How many must still be the same until requests are answered from here.
    pub(crate) needed: u64,
}

/// A share with its interval of 95 %.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ShareView {
    pub(crate) share: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// What the section and its routes come to: `Off` if nothing is looked at.
fn mode(config: &Config) -> CacheMode {
    let mut modes = config.routes.iter().filter_map(|route| route.mode).chain([config.mode]);
    let has = |wanted| modes.clone().any(|mode| mode == wanted);
    if has(CacheMode::On) { CacheMode::On } else { modes.find(|mode| *mode == CacheMode::Observe).unwrap_or(CacheMode::Off) }
}

/// What is known until now; `None` if it is off.
pub(crate) fn view(caching: &Caching, labels: &Labels) -> Option<CacheView> {
    let config = caching.config().load();
    let mode = mode(&config);
    if mode == CacheMode::Off {
        return None;
    }
    let state = caching.plane().state();
    let counts = &state.counts;
    let requests = RESULTS.into_iter().map(|event| counts.of(event)).sum();
    let hits: u64 = HITS.into_iter().map(|event| counts.of(event)).sum();
    let different = counts.of(CacheEvent::Different);
    let unread = (CacheEvent::Unread.name(), counts.of(CacheEvent::Unread));
    let refused = counts.refusals.iter().map(|(refusal, count)| (refusal.name(), *count)).chain([unread]);
    let proof = u64::from(config.proof);
    Some(CacheView {
        mode,
        proof,
        ttl_ns: config.ttl.as_nanos(),
        scope: config.scope,
        requests,
        results: RESULTS.into_iter().map(|event| (event.name(), counts.of(event))).collect(),
        #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        hit_rate: (requests > 0).then(|| hits as f64 / requests as f64),
        saved_ns: counts.saved_ns,
        compared: counts.of(CacheEvent::Same) + different,
        different,
        refused: refused.collect(),
        entries: state.store.entries,
        bytes: state.store.bytes,
        max_bytes: config.max_bytes.get(),
        stored: state.store.stored,
        expired: state.store.expired,
        refreshed: counts.of(CacheEvent::Refreshed),
        leading: state.leading,
        following: state.following,
        series: state.series.iter().map(|one| SeriesTrustView::of(one, proof, labels)).collect(),
        ghost: GhostView::of(&state),
    })
}

impl SeriesTrustView {
    fn of((series, trust): &(CacheSeries, SeriesTrust), proof: u64, labels: &Labels) -> Self {
        let (compared, different) = trust.seen.compared();
        let share = trust.seen.stale_share();
        Self {
            route: labels.routes.text(series.route).to_string(),
            model: labels.models.text(series.model).to_string(),
            state: trust.state.name(),
            compared,
            same: compared - different,
            different,
            different_share: ShareView { share: share.share, low: share.low, high: share.high },
            needed: if trust.state == TrustState::Unproven { proof.saturating_sub(compared) } else { 0 },
        }
    }
}

/// What the diagnosis says of it while it observes: that it would answer requests, if no question was seen to have two answers. The ghost
/// counts all series together, so one that has has to be left out by `cache.routes` first.
pub(crate) fn advice(surfaces: &Surfaces) -> Option<LeverAdvice> {
    let caching = surfaces.cache.as_ref().filter(|caching| mode(&caching.config().load()) == CacheMode::Observe)?;
    let trial = surfaces.trials.as_ref().and_then(|trials| trials.lock().status());
    let state = trial.is_none_or(|trial| trial.lever != LEVER).then(|| caching.plane().state())?;
    let is_doubtful = |trust: &SeriesTrust| match trust.state {
        TrustState::Proven => false,
        TrustState::Unproven => trust.seen.compared().1 > 0,
        TrustState::Refused => true,
    };
    if state.series.iter().any(|(_, trust)| is_doubtful(trust)) {
        return None;
    }
    LeverAdvice::cache(&ghost::worth(&state)?)
}
