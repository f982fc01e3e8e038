//! Which upstream takes a request.
//!
//! Most data planes have one upstream, and nothing here runs. Where there are several, a request goes to the first route that takes it, else
//! to any upstream; of the route's, its policy chooses among those that take connections. One that takes none is looked for once a second; its
//! share goes to the others. A request whose connection failed before a byte of it was written goes to another one, once, and within a
//! budget: else what is left of the upstreams would be asked twice for everything.

mod config;
mod pool;
mod route;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use http::Request;

pub use config::{MAX_UPSTREAMS, NamedUpstream, PlacementPolicy, ROUTE, RouteMatch, UPSTREAM, UpstreamRoute, check};

use self::pool::{Candidate, Pool};
use self::route::Route;
use crate::config::UpstreamProtocol;
use crate::health::UpstreamHealth;
use crate::in_flight::{OnClose, RequestAccount};
use lapwing_ledger::{LabelId, Ledger};
use lapwing_metrics::Counter;
use lapwing_net::Target;

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

    /// Several upstreams, among which `routes` and, for what none of them takes, `policy` choose; `None` if there is none.
    #[must_use]
    pub fn several(members: Vec<PoolMember>, routes: &[UpstreamRoute], policy: PlacementPolicy) -> Option<Self> {
        let placement = Arc::new(Placement::new(&members, routes, policy));
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
    /// That of each route, then that of all upstreams.
    pools: Box<[Pool]>,
    /// Requests in flight that went to another upstream.
    moved: AtomicU32,
}

impl Placement {
    fn new(members: &[PoolMember], routes: &[UpstreamRoute], policy: PlacementPolicy) -> Self {
        let place = |name: &String| members.iter().position(|member| member.name == *name);
        let of_route =
            |route: &UpstreamRoute| Pool::new(route.to.iter().filter_map(place).collect(), route.policy.unwrap_or(policy));
        let all = Pool::new((0..members.len()).collect(), policy);
        let candidates = members.iter().map(|member| Candidate {
            label: member.label,
            weight: member.weight,
            health: member.upstream.health.clone(),
            active: AtomicU32::new(0),
        });
        Self {
            candidates: candidates.collect(),
            routes: routes.iter().map(|route| Route::new(&route.matches)).collect(),
            pools: routes.iter().map(of_route).chain([all]).collect(),
            moved: AtomicU32::new(0),
        }
    }

    /// Chooses the upstream that `request` goes to, under whose name it is counted from now on.
    pub(crate) fn place<B>(self: &Arc<Self>, request: &Request<B>, account: &RequestAccount) -> Placed {
        let pool = self.routes.iter().position(|route| route.takes(request)).unwrap_or(self.routes.len());
        let chosen = self.pools.get(pool).and_then(|pool| pool.choose(&self.candidates, None));
        let placed = Placed { at: chosen.unwrap_or_default(), pool };
        if let Some(one) = self.candidates.get(placed.at)
            && account.add_on_close(Box::new(PlacedRequest { placement: self.clone(), placed }))
        {
            one.active.fetch_add(1, Relaxed);
            account.write_ledger(|ledger| ledger.series.upstream = one.label);
        }
        placed
    }

    /// Chooses another upstream that `speaks` what is needed, for a request whose own takes no connection, if there is room in the budget.
    pub(crate) fn place_again(&self, failed: Placed, account: &RequestAccount, speaks: impl Fn(usize) -> bool) -> Option<Placed> {
        let counters = &account.context.counters;
        let found = self.pools.get(failed.pool).and_then(|pool| pool.choose(&self.candidates, Some(failed.at)));
        let at = found.filter(|at| !self.candidates.get(*at).is_none_or(|one| one.health.is_away()) && speaks(*at))?;
        let (from, to) = (self.candidates.get(failed.at)?, self.candidates.get(at)?);
        let active: u32 = self.candidates.iter().map(|one| one.active.load(Relaxed)).sum();
        if self.moved.load(Relaxed) >= (active / RETRY_DIVISOR).max(MIN_RETRIES) {
            counters.bump(Counter::FailoversWithheld);
            return None;
        }
        account.write_ledger(|ledger| {
            ledger.series.upstream = to.label;
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
mod tests {
    use super::*;
    use crate::in_flight::fixtures;
    use lapwing_ledger::{LabelTable, Stamp};
    use lapwing_net::ConnectError;

    fn upstreams(names: &[&str], routes: &[UpstreamRoute]) -> (Upstreams, Vec<LabelId>) {
        let labels = LabelTable::new(16);
        let member = |name: &&str| PoolMember {
            upstream: PlacedUpstream { target: Target::Tcp(format!("{name}:1")), protocol: None, health: Arc::default() },
            name: (*name).to_owned(),
            label: labels.intern(name),
            weight: 1,
        };
        let members: Vec<_> = names.iter().map(member).collect();
        let labels = members.iter().map(|member| member.label).collect();
        (Upstreams::several(members, routes, PlacementPolicy::RoundRobin).unwrap(), labels)
    }

    fn active(upstreams: &Upstreams) -> Vec<u32> {
        upstreams.active().collect()
    }

    fn post(path: &str) -> Request<()> {
        Request::post(path).body(()).unwrap()
    }

    #[test]
    fn a_request_counts_where_it_went_until_it_ends() {
        let (upstreams, labels) = upstreams(&["a", "b"], &[]);
        let placement = upstreams.placement().unwrap();
        let accounts = [(); 3].map(|()| fixtures::account());
        let places: Vec<_> = accounts.iter().map(|account| placement.place(&post("/"), account).at).collect();
        assert_eq!((places, active(&upstreams)), (vec![0, 1, 0], vec![2, 1]));
        let upstream = |at: usize| accounts[at].read_ledger(|ledger| ledger.series.upstream);
        assert_eq!([upstream(0), upstream(1)], [Some(labels[0]), Some(labels[1])]);
        let again = placement.place_again(Placed { at: 0, pool: 0 }, &accounts[0], |_| true).unwrap();
        assert_eq!((again.at, upstream(0), active(&upstreams)), (1, Some(labels[1]), vec![1, 2]));
        accounts.iter().for_each(|account| account.hand_over(Stamp::now(), |_| ()));
        assert_eq!((active(&upstreams), placement.moved.load(Relaxed)), (vec![0, 0], 0));
        let late = &accounts[0];
        placement.place(&post("/"), late);
        assert!(placement.place_again(Placed { at: 0, pool: 0 }, late, |_| true).is_none());
        assert_eq!(active(&upstreams), [0, 0], "its ledger is handed over");
    }

    #[test]
    fn the_budget_bounds_how_many_go_to_another_upstream() {
        let (upstreams, _) = upstreams(&["a", "b"], &[]);
        let placement = upstreams.placement().unwrap();
        let moved = |requests: usize| {
            let accounts: Vec<_> = (0..requests).map(|_| fixtures::account()).collect();
            let placed: Vec<_> = accounts.iter().map(|account| placement.place(&post("/"), account)).collect();
            let again = placed.iter().zip(&accounts).map(|(placed, account)| placement.place_again(*placed, account, |_| true));
            let moved = again.flatten().count();
            let withheld: u64 = accounts.iter().map(|account| account.context.counters.get(Counter::FailoversWithheld)).sum();
            assert_eq!(withheld, (requests - moved) as u64);
            accounts.iter().for_each(|account| account.hand_over(Stamp::now(), |_| ()));
            moved
        };
        assert_eq!([moved(2), moved(10), moved(100)], [2, 3, 20]);
    }

    #[test]
    fn nobody_else_means_no_second_try() {
        let (upstreams, _) = upstreams(&["a", "b"], &[]);
        let placement = upstreams.placement().unwrap();
        let (account, failed) = (fixtures::account(), Placed { at: 0, pool: 0 });
        placement.place(&post("/"), &account);
        assert!(placement.place_again(failed, &account, |_| false).is_none(), "none speaks it");
        let refused = ConnectError::Io(std::io::ErrorKind::ConnectionRefused.into());
        upstreams.others()[0].health.on_failed(&upstreams.others()[0].target, &refused);
        assert!(placement.place_again(failed, &account, |_| true).is_none(), "the other is away");
        assert!(!upstreams.health().is_away(), "clients stay");
    }

    #[test]
    fn a_route_leads_to_its_own_upstreams() {
        let route = |matches: RouteMatch, to: &[&str]| UpstreamRoute {
            matches,
            to: to.iter().map(|name| (*name).to_owned()).collect(),
            policy: None,
        };
        let by_model = route(RouteMatch { model: Some("bert*".into()), ..RouteMatch::default() }, &["b"]);
        let by_path = route(RouteMatch { route: Some("/v1/*".into()), ..RouteMatch::default() }, &["c"]);
        let (upstreams, _) = upstreams(&["a", "b", "c"], &[by_model, by_path]);
        let placement = upstreams.placement().unwrap();
        let at = |path: &str| placement.place(&post(path), &fixtures::account()).at;
        assert!((0..4).all(|_| at("/v2/models/bert-base/infer") == 1 && at("/v1/chat/completions") == 2));
        assert_eq!([(); 3].map(|()| at("/other")), [0, 1, 2], "no route takes it");
    }
}
