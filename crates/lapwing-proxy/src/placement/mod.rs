//! Which upstream takes a request.
//!
//! Most data planes have one upstream, and nothing here runs. Where there are several, a request goes to the first route that takes it, else
//! to any upstream; of the route's, its policy chooses among those that take connections. One that takes none is looked for once a second; its
//! share goes to the others. A request whose connection failed before a byte of it was written goes to another one, once, and within a
//! budget: else what is left of the upstreams would be asked twice for everything.
//!
//! Where there is a live split, it chooses the side of what no route takes; of the baseline, the policy chooses one.

mod config;
mod pool;
mod route;
mod split;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use http::{HeaderMap, Request};

pub use config::{MAX_UPSTREAMS, NamedUpstream, PlacementPolicy, ROUTE, RouteMatch, UPSTREAM, UpstreamRoute, check};
pub use split::{SplitAssignment, TrafficSplit};

use self::pool::{Candidate, Pool};
pub(crate) use self::route::{AwaitedOfBody, KnownRequest};
use self::route::{Route, model_in_path};
use crate::config::UpstreamProtocol;
use crate::health::UpstreamHealth;
use crate::in_flight::{OnClose, RequestAccount};
use lapwing_ledger::{LabelId, Ledger};
use lapwing_metrics::Counter;
use lapwing_net::Target;
use lapwing_settings::{LeverSwitch, SplitKey};

/// One in so many of the requests in flight may be one that goes to another upstream because its own took no connection: Envoy's 20 %.
const RETRY_DIVISOR: u32 = 5;
/// So many may be, however few are in flight: Envoy's too.
const MIN_RETRIES: u32 = 3;

/// A model server that a data plane sends requests to.
#[derive(Clone, Debug)]
pub struct PlacedUpstream {
    /// Where it is reached.
    pub target: Target,
    /// The HTTP version spoken to it, if that is not `proxy.upstream_protocol`.
    pub protocol: Option<UpstreamProtocol>,
    /// What is known of it, by this data plane and others to the same upstream.
    pub health: Arc<UpstreamHealth>,
}

/// An upstream of several.
#[derive(Clone, Debug)]
pub struct PoolMember {
    /// The upstream.
    pub upstream: PlacedUpstream,
    /// Its name in [`UpstreamRoute::to`].
    pub name: String,
    /// The label under which its exchanges are counted.
    pub label: LabelId,
    /// Its weight, above 0.
    pub weight: u32,
}

/// The upstreams of a data plane, for all its workers. Clones are the same.
#[derive(Clone, Debug)]
pub struct Upstreams {
    first: PlacedUpstream,
    others: Arc<[PlacedUpstream]>,
    placement: Option<Arc<Placement>>,
    /// What ends clients' connections: the absence of the only upstream.
    health: Arc<UpstreamHealth>,
}

impl Upstreams {
    /// One upstream, which takes every request.
    #[must_use]
    pub fn one(upstream: PlacedUpstream) -> Self {
        let health = upstream.health.clone();
        Self { first: upstream, others: Arc::default(), placement: None, health }
    }

    /// Several upstreams, among which `routes` and, for what none of them takes, `split` and `policy` choose; `None` if there is none. A trial may
    /// turn the policy by `least_requests`.
    #[must_use]
    pub fn several(
        members: Vec<PoolMember>,
        routes: &[UpstreamRoute],
        policy: PlacementPolicy,
        split: Option<Arc<TrafficSplit>>,
        least_requests: &LeverSwitch,
    ) -> Option<Self> {
        let placement = Arc::new(Placement::new(&members, routes, policy, split, least_requests));
        let mut members = members.into_iter().map(|member| member.upstream);
        let (first, others) = (members.next()?, members.collect());
        Some(Self { first, others, placement: Some(placement), health: Arc::default() })
    }

    /// The upstream at `target`, of which nothing is known yet; of HTTP as `proxy.upstream_protocol` says.
    #[must_use]
    pub fn at(target: Target) -> Self {
        Self::one(PlacedUpstream { target, protocol: None, health: Arc::default() })
    }

    /// The first of them, which is always there.
    pub(crate) const fn first(&self) -> &PlacedUpstream {
        &self.first
    }

    /// All but the first.
    pub(crate) fn others(&self) -> &[PlacedUpstream] {
        &self.others
    }

    pub(crate) const fn placement(&self) -> Option<&Arc<Placement>> {
        self.placement.as_ref()
    }

    /// Whose absence ends clients' connections. The absence of one of several ends none.
    pub(crate) const fn health(&self) -> &Arc<UpstreamHealth> {
        &self.health
    }

    /// The number of requests in flight at each of several upstreams, in order; empty for one.
    pub fn active(&self) -> impl Iterator<Item = u32> {
        let candidates = self.placement.as_ref().map_or(&[][..], |placement| &placement.candidates);
        candidates.iter().map(|one| one.active.load(Relaxed))
    }
}

/// Where a request was placed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// The upstream, by its place.
    pub(crate) at: usize,
    /// The pool that it was chosen from.
    pool: usize,
}

/// Chooses an upstream for each request.
#[derive(Debug)]
pub(crate) struct Placement {
    candidates: Box<[Candidate]>,
    routes: Box<[Route]>,
    /// Whether any of the routes, or the split, asks for what a body may tell.
    asks_bodies: bool,
    /// That of each route, then that of all upstreams, then the baseline of the split.
    pools: Box<[Pool]>,
    /// The split, and its candidate by its place.
    split: Option<(Arc<TrafficSplit>, usize)>,
    /// Requests in flight that went to another upstream.
    moved: AtomicU32,
}

impl Placement {
    fn new(
        members: &[PoolMember],
        routes: &[UpstreamRoute],
        policy: PlacementPolicy,
        split: Option<Arc<TrafficSplit>>,
        least_requests: &LeverSwitch,
    ) -> Self {
        let split = split.and_then(|split| {
            let candidate = members.iter().position(|member| member.name == split.candidate())?;
            Some((split, candidate))
        });
        let by_policy = |members: Box<[usize]>| Pool::new(members, policy).turned_by(least_requests);
        let baseline =
            split.as_ref().map(|(_, candidate)| by_policy((0..members.len()).filter(|place| place != candidate).collect()));
        let place = |name: &String| members.iter().position(|member| member.name == *name);
        let of_route = |route: &UpstreamRoute| {
            let members = route.to.iter().filter_map(place).collect();
            match route.policy {
                Some(own) => Pool::new(members, own),
                None => by_policy(members),
            }
        };
        let all = by_policy((0..members.len()).collect());
        let candidates = members.iter().map(|member| Candidate {
            label: member.label,
            weight: member.weight,
            health: member.upstream.health.clone(),
            active: AtomicU32::new(0),
        });
        Self {
            candidates: candidates.collect(),
            routes: routes.iter().map(|route| Route::new(&route.matches)).collect(),
            asks_bodies: routes.iter().any(|route| route.matches.model.is_some() || route.matches.class.is_some())
                || split.as_ref().is_some_and(|(split, _)| matches!(split.key(), SplitKey::Json(_))),
            pools: routes.iter().map(of_route).chain([all]).chain(baseline).collect(),
            split,
            moved: AtomicU32::new(0),
        }
    }

    /// What its body has to tell before it is known where `request` goes; `None` if its head decides.
    pub(crate) fn awaits<B>(&self, request: &Request<B>) -> Option<AwaitedOfBody> {
        if !self.asks_bodies {
            return None;
        }
        let in_path = model_in_path(request);
        let head = KnownRequest { model: in_path, ..KnownRequest::default() };
        let mut awaited = AwaitedOfBody::default();
        for route in &self.routes {
            // what routes after one that takes the request await does not matter
            if route.takes(request, head) {
                return awaited.if_any();
            }
            route.add_awaited(request, in_path, &mut awaited);
        }
        awaited.key = self.split.as_ref().is_some_and(|(split, _)| split.awaits_body().is_some());
        awaited.if_any()
    }

    /// The key by which the split divides requests, in a body of these pieces.
    pub(crate) fn key_in<'p>(&self, pieces: impl IntoIterator<Item = &'p [u8]>) -> Option<Vec<u8>> {
        self.split.as_ref()?.0.awaits_body()?.find(pieces)
    }

    /// Chooses the upstream that `request` goes to, under whose name it is counted from now on, by its head and what its body tells.
    pub(crate) fn place<B>(
        self: &Arc<Self>,
        request: &Request<B>,
        in_body: KnownRequest<'_>,
        account: &RequestAccount,
    ) -> Placed {
        let model = if self.asks_bodies { model_in_path(request).or(in_body.model) } else { None };
        let known = KnownRequest { model, ..in_body };
        let taken = self.routes.iter().position(|route| route.takes(request, known));
        let (placed, split_key) = match (taken, &self.split) {
            (None, Some((split, candidate))) => self.place_by(split, *candidate, request.headers(), known.key),
            (route, _) => (self.choose_from(route.unwrap_or(self.routes.len())), None),
        };
        if let Some(one) = self.candidates.get(placed.at)
            && account.add_on_close(Box::new(PlacedRequest { placement: self.clone(), placed }))
        {
            one.active.fetch_add(1, Relaxed);
            account.write_ledger(|ledger| {
                ledger.series.upstream = one.label;
                ledger.split_key = split_key;
            });
        }
        placed
    }

    fn choose_from(&self, pool: usize) -> Placed {
        let chosen = self.pools.get(pool).and_then(|pool| pool.choose(&self.candidates, None));
        Placed { at: chosen.unwrap_or_default(), pool }
    }

    /// The upstream for a request with these headers, or this key in its body, by a split, and its key if the choice is the split's.
    fn place_by(
        &self,
        split: &TrafficSplit,
        candidate: usize,
        headers: &HeaderMap,
        in_body: Option<&[u8]>,
    ) -> (Placed, Option<NonZeroU32>) {
        let baseline = self.routes.len() + 1;
        let of_candidate = Placed { at: candidate, pool: baseline };
        let is_away = |placed: Placed| self.candidates.get(placed.at).is_some_and(|one| one.health.is_away());
        let assigned = if split.is_open() { split.assign(headers, in_body) } else { None };
        if let Some((SplitAssignment::Candidate, key)) = assigned {
            if !is_away(of_candidate) {
                split.count(SplitAssignment::Candidate);
                return (of_candidate, Some(key));
            }
            split.count(SplitAssignment::Away);
            return (self.choose_from(baseline), None);
        }
        let placed = self.choose_from(baseline);
        // all of the baseline are away
        if is_away(placed) && !is_away(of_candidate) {
            split.count(SplitAssignment::Away);
            return (of_candidate, None);
        }
        let is_keyless = assigned.is_none() && split.is_open();
        split.count(if is_keyless { SplitAssignment::WithoutKey } else { SplitAssignment::Baseline });
        (placed, assigned.map(|(_, key)| key))
    }

    /// Chooses another upstream that `speaks` what is needed, for a request whose own takes no connection, if there is room in the budget.
    pub(crate) fn place_again(&self, failed: Placed, account: &RequestAccount, speaks: impl Fn(usize) -> bool) -> Option<Placed> {
        let counters = &account.context.counters;
        let is_there = |at: &usize| !self.candidates.get(*at).is_none_or(|one| one.health.is_away()) && speaks(*at);
        let other = |pool: usize| self.pools.get(pool)?.choose(&self.candidates, Some(failed.at)).filter(is_there);
        // a baseline of which nobody else is there has the candidate
        let is_of_split = self.split.is_some() && failed.pool > self.routes.len();
        let at = other(failed.pool).or_else(|| if is_of_split { other(self.routes.len()) } else { None })?;
        let (from, to) = (self.candidates.get(failed.at)?, self.candidates.get(at)?);
        let active: u32 = self.candidates.iter().map(|one| one.active.load(Relaxed)).sum();
        if self.moved.load(Relaxed) >= (active / RETRY_DIVISOR).max(MIN_RETRIES) {
            counters.bump(Counter::FailoversWithheld);
            return None;
        }
        account.write_ledger(|ledger| {
            ledger.series.upstream = to.label;
            ledger.split_key = None;
            from.active.fetch_sub(1, Relaxed);
            to.active.fetch_add(1, Relaxed);
            self.moved.fetch_add(1, Relaxed);
        })?;
        counters.bump(Counter::FailoversMoved);
        Some(Placed { at, ..failed })
    }
}

/// A request that counts as in flight at an upstream, until its ledger closes.
#[derive(Debug)]
struct PlacedRequest {
    placement: Arc<Placement>,
    /// Where it was placed first. Its ledger has the label of the upstream that it went to.
    placed: Placed,
}

impl OnClose for PlacedRequest {
    fn on_close(self: Box<Self>, ledger: &mut Ledger) {
        let Placement { candidates, moved, .. } = &*self.placement;
        let Some(first) = candidates.get(self.placed.at) else { return };
        let at_end = candidates.iter().find(|one| one.label == ledger.series.upstream).unwrap_or(first);
        at_end.active.fetch_sub(1, Relaxed);
        if at_end.label != first.label {
            moved.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
