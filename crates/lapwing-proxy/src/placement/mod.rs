//! Which upstream takes a request.
//!
//! Most data planes have one upstream, and nothing here runs. Where there are several, a request goes to the first route that takes it, else
//! to any upstream; of the route's, its policy chooses among those that take connections. One that takes none is looked for once a second; its
//! share goes to the others. A request whose connection failed before a byte of it was written goes to another one, once, and within a
//! budget: else what is left of the upstreams would be asked twice for everything.
//!
//! Weights, tags, routes and the policy follow a reload: what chooses is made anew, and counts what is in flight where its predecessor did. A
//! request ends by what it began with.
//!
//! Where there is a live split, it chooses the side of what no route takes; of the baseline, the policy chooses one.

mod answering;
mod candidates;
mod pool;
mod split;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::{HeaderMap, Request};

pub use candidates::{PlacedUpstream, PoolMember};
pub use split::{SplitAssignment, TrafficSplit};

use self::candidates::{Candidate, Candidates, PlacedRequest};
use self::pool::{Pool, WeightedPlace};
use crate::health::UpstreamHealth;
use crate::in_flight::RequestAccount;
use lapwing_dispatch::{Dispatching, NamedUpstream, PlacementPolicy, UpstreamRoute, UpstreamSet, names_upstream};
use lapwing_metrics::Counter;
use lapwing_net::Target;
use lapwing_protocol::request_match::{AwaitedOfBody, KnownRequest, RequestMatch, model_in_path};
use lapwing_settings::{ConfigHandle, LeverSwitch, SplitKey};

/// One in so many of the requests in flight may be one that goes to another upstream because its own took no connection: Envoy's 20 %.
const RETRY_DIVISOR: u32 = 5;
/// So many may be, however few are in flight: Envoy's too.
const MIN_RETRIES: u32 = 3;

/// Which of several upstreams takes which requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacementSettings {
    /// The weights and tags of upstreams, by name. One that is not there has the weight 1, and no tag.
    pub upstreams: BTreeMap<String, NamedUpstream>,
    /// Where some requests go.
    pub routes: Vec<UpstreamRoute>,
    /// How an upstream is chosen where a route does not say.
    pub policy: PlacementPolicy,
    /// The name of the upstream that no request is placed at: it is sent second requests only.
    pub spare: Option<String>,
}

/// The upstreams of a data plane, for all its workers. Clones are the same.
#[derive(Clone, Debug)]
pub struct Upstreams {
    first: PlacedUpstream,
    others: Arc<[PlacedUpstream]>,
    /// What is known of each, and what chooses between them.
    placed: Option<(Arc<Candidates>, ConfigHandle<Placement>)>,
    /// What ends clients' connections: the absence of the only upstream.
    health: Arc<UpstreamHealth>,
}

impl Upstreams {
    /// One upstream, which takes every request.
    #[must_use]
    pub fn one(upstream: PlacedUpstream) -> Self {
        let health = upstream.health.clone();
        Self { first: upstream, others: Arc::default(), placed: None, health }
    }

    /// Several upstreams, among which the routes of `settings` and, for what none of them takes, `split` and the policy choose; `None` if there
    /// is none. A trial may turn the policy by `least_requests`.
    #[must_use]
    pub fn several(
        members: Vec<PoolMember>,
        settings: &ConfigHandle<PlacementSettings>,
        split: Option<Arc<TrafficSplit>>,
        least_requests: &LeverSwitch,
    ) -> Option<Self> {
        let candidates = Arc::new(Candidates::of(&members));
        let (known, least_requests) = (candidates.clone(), least_requests.clone());
        let placement = settings.map(move |settings| Placement::new(&known, settings, split.clone(), &least_requests));
        let mut members = members.into_iter().map(|member| member.upstream);
        let (first, others) = (members.next()?, members.collect());
        Some(Self { first, others, placed: Some((candidates, placement)), health: Arc::default() })
    }

    /// The upstream at `target`, of which nothing is known yet; of HTTP as `proxy.upstream_protocol` says.
    #[must_use]
    pub fn at(target: Target) -> Self {
        Self::one(PlacedUpstream { target, protocol: None, health: Arc::default() })
    }

    /// A queue in front of them, by the settings of `config`.
    #[must_use]
    pub fn dispatched_by(&self, config: ConfigHandle<lapwing_dispatch::Config>) -> Dispatching {
        let health: Vec<_> = std::iter::once(&self.first).chain(&*self.others).map(|one| one.health.clone()).collect();
        let names = self.placed.as_ref().map_or_else(|| vec![String::new()], |(candidates, _)| candidates.names.to_vec());
        let away = move || (0..health.len()).filter(|at| health[*at].is_away()).collect();
        let speeds = self.placed.as_ref().map(|(candidates, _)| candidates.speeds.clone());
        Dispatching::new(names, away, speeds.unwrap_or_default(), config)
    }

    /// The first of them, which is always there.
    pub(crate) const fn first(&self) -> &PlacedUpstream {
        &self.first
    }

    /// All but the first.
    pub(crate) fn others(&self) -> &[PlacedUpstream] {
        &self.others
    }

    /// What chooses by the settings in force, if they are several.
    pub(crate) fn placement(&self) -> Option<&ConfigHandle<Placement>> {
        self.placed.as_ref().map(|(_, placement)| placement)
    }

    /// Whose absence ends clients' connections. The absence of one of several ends none.
    pub(crate) const fn health(&self) -> &Arc<UpstreamHealth> {
        &self.health
    }

    /// The number of requests in flight at each of several upstreams, in order; empty for one.
    pub fn active(&self) -> impl Iterator<Item = u32> {
        let all = self.placed.as_ref().map_or(&[][..], |(candidates, _)| &candidates.all);
        all.iter().map(|one| one.active.load(Relaxed))
    }
}

/// Where a request was placed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// The upstream, by its place.
    pub(crate) at: usize,
    /// The pool that it was chosen from.
    pool: usize,
    /// How much it asks for, if that is known.
    work: Option<u64>,
}

/// Chooses an upstream for each request.
#[derive(Debug)]
pub(crate) struct Placement {
    candidates: Arc<Candidates>,
    routes: Box<[RequestMatch]>,
    /// Whether any of the routes, pools or the split asks for what a body may tell.
    asks_bodies: bool,
    /// That of each route, then that of all upstreams, then the baseline of the split.
    pools: Box<[Pool]>,
    /// The split, and its candidate by its place.
    split: Option<(Arc<TrafficSplit>, usize)>,
}

impl Placement {
    fn new(
        candidates: &Arc<Candidates>,
        settings: &PlacementSettings,
        split: Option<Arc<TrafficSplit>>,
        least_requests: &LeverSwitch,
    ) -> Self {
        let PlacementSettings { upstreams, routes, policy, spare } = settings;
        let names = &candidates.names;
        let places = || (0..names.len()).filter(|place| spare.as_ref() != names.get(*place));
        let split = split.and_then(|split| {
            let candidate = names.iter().position(|name| name == split.candidate())?;
            Some((split, candidate))
        });
        let weighted = |place: usize| {
            let known = names.get(place).and_then(|name| upstreams.get(name));
            WeightedPlace { place, weight: known.map_or(1, |one| one.weight) }
        };
        let by_policy = |members: Box<[WeightedPlace]>| Pool::new(members, *policy).turned_by(least_requests);
        let of_route = |route: &UpstreamRoute| {
            let is_of_route = |place: &usize| {
                let name = names.get(*place).map_or("", |name| name);
                route.to.iter().any(|to| names_upstream(to, name, upstreams.get(name)))
            };
            let members = places().filter(is_of_route).map(weighted).collect();
            let pool = match route.policy {
                Some(own) => Pool::new(members, own),
                None => by_policy(members),
            };
            pool.with_homes(route.affinity.as_ref())
        };
        let all = by_policy(places().map(weighted).collect());
        let baseline = split.as_ref().map(|(_, candidate)| {
            let others = places().filter(|place| place != candidate);
            by_policy(others.map(weighted).collect())
        });
        let pools: Box<[_]> = routes.iter().map(of_route).chain([all]).chain(baseline).collect();
        Self {
            candidates: candidates.clone(),
            routes: routes.iter().map(|route| RequestMatch::new(&route.matches)).collect(),
            asks_bodies: routes.iter().any(|route| route.matches.model.is_some() || route.matches.class.is_some())
                || pools.iter().any(|pool| pool.key_in_body().is_some() || pool.counts_work())
                || split.as_ref().is_some_and(|(split, _)| matches!(split.key(), SplitKey::Json(_))),
            pools,
            split,
        }
    }

    /// The candidate at a place.
    fn at(&self, place: usize) -> Option<&Candidate> {
        self.candidates.all.get(place)
    }

    /// What its body has to tell before it is known where `request` goes; `None` if its head decides.
    pub(crate) fn awaits<B>(&self, request: &Request<B>) -> Option<AwaitedOfBody> {
        if !self.asks_bodies {
            return None;
        }
        let in_path = model_in_path(request);
        let head = KnownRequest { model: in_path, ..KnownRequest::default() };
        let mut awaited = AwaitedOfBody::default();
        for (route, pool) in self.routes.iter().zip(&self.pools) {
            let (takes, has_key, counts_work) = (route.takes(request, head), pool.key_in_body().is_some(), pool.counts_work());
            // what routes after one that takes the request await does not matter
            if takes {
                awaited.key |= has_key;
                awaited.work |= counts_work;
                return awaited.if_any();
            }
            let [model, work] = route.awaits(request, in_path);
            awaited.model |= model;
            awaited.work |= work || counts_work && model;
            awaited.key |= has_key && (model || work);
        }
        awaited.key = self.split.as_ref().is_some_and(|(split, _)| split.awaits_body().is_some());
        awaited.work |= self.pools.get(self.routes.len()..).is_some_and(|pools| pools.iter().any(Pool::counts_work));
        awaited.if_any()
    }

    /// The key by which the upstreams of a request's route, or the split, divide requests, in a body of these pieces.
    pub(crate) fn key_in<'p, B>(
        &self,
        request: &Request<B>,
        in_body: KnownRequest<'_>,
        pieces: impl IntoIterator<Item = &'p [u8]>,
    ) -> Option<Vec<u8>> {
        // to find the route takes longer than all else here
        if self.split.is_none() && !self.pools.iter().any(|pool| pool.key_in_body().is_some()) {
            return None;
        }
        match self.route_of(request, in_body) {
            Some(route) => self.pools.get(route)?.key_in_body()?.find(pieces),
            None => self.split.as_ref()?.0.awaits_body()?.find(pieces),
        }
    }

    /// Chooses the upstream that `request` goes to, under whose name it is counted from now on, by its head and what its body tells.
    pub(crate) fn place<B>(&self, request: &Request<B>, in_body: KnownRequest<'_>, account: &RequestAccount) -> Placed {
        let (placed, split_key) = match (self.route_of(request, in_body), &self.split) {
            (None, Some((split, candidate))) => self.place_by(split, *candidate, request.headers(), in_body),
            (route, _) => (self.choose_for(route.unwrap_or(self.routes.len()), request.headers(), in_body), None),
        };
        self.note(placed, split_key, account);
        placed
    }

    /// The pool that `request` goes to, and its upstreams by their places; `None` if a split chooses, or a key.
    pub(crate) fn pool_of<B>(&self, request: &Request<B>, in_body: KnownRequest<'_>) -> Option<(usize, UpstreamSet)> {
        let pool = match (self.route_of(request, in_body), &self.split) {
            (None, Some(_)) => return None,
            (route, _) => route.unwrap_or(self.routes.len()),
        };
        let members = self.pools.get(pool).filter(|pool| !pool.has_homes())?;
        Some((pool, members.places().collect()))
    }

    /// Places a request, which asks for so much, at an upstream of a pool that the queue of dispatch chose.
    pub(crate) fn place_at(&self, pool: usize, at: usize, work: Option<u64>, account: &RequestAccount) -> Placed {
        let placed = Placed { at, pool, work };
        self.note(placed, None, account);
        placed
    }

    /// The route that takes a request.
    fn route_of<B>(&self, request: &Request<B>, in_body: KnownRequest<'_>) -> Option<usize> {
        let model = if self.asks_bodies { model_in_path(request).or(in_body.model) } else { None };
        let known = KnownRequest { model, ..in_body };
        self.routes.iter().position(|route| route.takes(request, known))
    }

    /// The request of `account`, which was placed so, was answered by a second upstream at this place before that of `first`: from now on it
    /// counts as in flight there.
    pub(crate) fn answered_by(&self, at: usize, (placed, first): (Placed, &RequestAccount), account: &RequestAccount) {
        let Candidates { all, moved, .. } = &*self.candidates;
        let first = first.read_ledger(|ledger| ledger.series.upstream);
        let from = all.iter().find(|one| Some(one.label) == first).or_else(|| self.at(placed.at));
        let (Some(from), Some(to)) = (from, self.at(at)) else { return };
        account.write_ledger(|ledger| {
            ledger.series.upstream = to.label;
            from.end(placed.work);
            to.begin(placed.work);
            // its connection may have failed before, and then it has moved already
            if self.at(placed.at).is_some_and(|one| one.label == from.label) {
                moved.fetch_add(1, Relaxed);
            }
        });
    }

    /// From now on a request counts as in flight at its upstream.
    fn note(&self, placed: Placed, split_key: Option<NonZeroU32>, account: &RequestAccount) {
        if let Some(one) = self.at(placed.at)
            && account.add_on_close(Box::new(PlacedRequest {
                candidates: self.candidates.clone(),
                at: placed.at,
                work: placed.work,
            }))
        {
            one.begin(placed.work);
            account.write_ledger(|ledger| {
                ledger.series.upstream = one.label;
                ledger.split_key = split_key;
            });
        }
    }

    /// The upstream of a pool for a request with these headers, of whose body this is known.
    fn choose_for(&self, pool: usize, headers: &HeaderMap, in_body: KnownRequest<'_>) -> Placed {
        let home = self.pools.get(pool).and_then(|members| members.home(&self.candidates.all, headers, in_body.key));
        home.map_or_else(|| self.choose_from(pool, in_body.work), |at| Placed { at, pool, work: in_body.work })
    }

    fn choose_from(&self, pool: usize, work: Option<u64>) -> Placed {
        let chosen = self.pools.get(pool).and_then(|pool| pool.choose(&self.candidates, None, work));
        Placed { at: chosen.unwrap_or_default(), pool, work }
    }

    /// The upstream for a request with these headers, of whose body this is known, by a split, and its key if the choice is the split's.
    fn place_by(
        &self,
        split: &TrafficSplit,
        candidate: usize,
        headers: &HeaderMap,
        in_body: KnownRequest<'_>,
    ) -> (Placed, Option<NonZeroU32>) {
        let (baseline, work) = (self.routes.len() + 1, in_body.work);
        let of_candidate = Placed { at: candidate, pool: baseline, work };
        let is_away = |placed: Placed| self.at(placed.at).is_some_and(|one| one.health.is_away());
        let assigned = if split.is_open() { split.assign(headers, in_body.key) } else { None };
        if let Some((SplitAssignment::Candidate, key)) = assigned {
            if !is_away(of_candidate) {
                split.count(SplitAssignment::Candidate);
                return (of_candidate, Some(key));
            }
            split.count(SplitAssignment::Away);
            return (self.choose_from(baseline, work), None);
        }
        let placed = self.choose_from(baseline, work);
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
        let is_there = |at: &usize| !self.at(*at).is_none_or(|one| one.health.is_away()) && speaks(*at);
        let Candidates { all, moved, .. } = &*self.candidates;
        let other = |pool: usize| self.pools.get(pool)?.choose(&self.candidates, Some(failed.at), failed.work).filter(is_there);
        // a baseline of which nobody else is there has the candidate
        let is_of_split = self.split.is_some() && failed.pool > self.routes.len();
        let at = other(failed.pool).or_else(|| if is_of_split { other(self.routes.len()) } else { None })?;
        let (from, to) = (self.at(failed.at)?, self.at(at)?);
        let active: u32 = all.iter().map(|one| one.active.load(Relaxed)).sum();
        if moved.load(Relaxed) >= (active / RETRY_DIVISOR).max(MIN_RETRIES) {
            counters.bump(Counter::FailoversWithheld);
            return None;
        }
        account.write_ledger(|ledger| {
            ledger.series.upstream = to.label;
            ledger.split_key = None;
            from.end(failed.work);
            to.begin(failed.work);
            moved.fetch_add(1, Relaxed);
        })?;
        account.move_place(at);
        counters.bump(Counter::FailoversMoved);
        Some(Placed { at, ..failed })
    }
}

#[cfg(test)]
mod tests;
