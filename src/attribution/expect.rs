//! Which routes send spans, learnt from what they do: a route that sends none must not make its exchanges wait.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::ledger::{Name, SeriesKey, Stamp};

/// Whether a closed ledger waits for spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expect {
    /// It waits if its route has been seen to send spans, or is too young to tell.
    #[default]
    Auto,
    /// Every sampled exchange waits.
    Always,
    /// None waits, and received spans are not joined.
    Never,
}

/// A route at an upstream. Names are interned in bounded tables, so the routes are bounded too.
type Key = (Name, Name);

/// So many exchanges in a row must stay without spans before a route that once sent some is given up: an upstream may
/// sample on its own.
const PATIENCE: u32 = 16;

/// What is known of each route.
///
/// A route starts as expecting. It stops when an exchange stayed without spans (to the end of its grace period, or until
/// it was evicted) while no span had joined for a whole grace period; one that ever sent spans, after [`PATIENCE`] such
/// exchanges in a row. A span that comes late turns it on again.
#[derive(Debug)]
pub(super) struct Routes {
    expect: Expect,
    grace_ns: u64,
    routes: FxHashMap<Key, Route>,
}

#[derive(Clone, Copy, Debug)]
struct Route {
    is_expecting: bool,
    /// It was first seen, last had a span joined, or was turned on again: whichever came last.
    since: Stamp,
    has_sent: bool,
    misses: u32,
}

impl Routes {
    pub(super) fn new(expect: Expect, grace_ns: u64) -> Self {
        Self { expect, grace_ns, routes: FxHashMap::default() }
    }

    /// Whether an exchange of this series should wait.
    pub(super) fn expects(&mut self, series: SeriesKey, now: Stamp) -> bool {
        match self.expect {
            Expect::Always => true,
            Expect::Never => false,
            Expect::Auto => self.route(series, now).is_expecting,
        }
    }

    /// A span of this series came, in time or late.
    pub(super) fn sent(&mut self, series: SeriesKey, now: Stamp) {
        *self.route(series, now) = Route { is_expecting: true, since: now, has_sent: true, misses: 0 };
    }

    /// An exchange of this series was merged without spans.
    pub(super) fn missed(&mut self, series: SeriesKey, now: Stamp) {
        let grace_ns = self.grace_ns;
        let route = self.route(series, now);
        route.misses = route.misses.saturating_add(1);
        let is_convincing = !route.has_sent || route.misses >= PATIENCE;
        if is_convincing && now.since(route.since) >= grace_ns {
            route.is_expecting = false;
        }
    }

    fn route(&mut self, series: SeriesKey, now: Stamp) -> &mut Route {
        let fresh = Route { is_expecting: true, since: now, has_sent: false, misses: 0 };
        self.routes.entry((series.route, series.upstream)).or_insert(fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE_NS: u64 = 100;

    fn at(ns: u64) -> Stamp {
        Stamp::default().plus(ns)
    }

    #[test]
    fn a_silent_route_stops_expecting_after_one_grace_period() {
        let mut routes = Routes::new(Expect::Auto, GRACE_NS);
        let series = SeriesKey::default();
        assert!(routes.expects(series, at(1)));
        routes.missed(series, at(50));
        assert!(routes.expects(series, at(50)), "evicted before anything can be known");
        routes.missed(series, at(101));
        assert!(!routes.expects(series, at(101)));
        routes.sent(series, at(150));
        assert!(routes.expects(series, at(150)));
    }

    #[test]
    fn a_route_that_sent_spans_once_is_given_up_later() {
        let mut routes = Routes::new(Expect::Auto, GRACE_NS);
        let series = SeriesKey::default();
        routes.sent(series, at(1));
        (1..PATIENCE).for_each(|_| routes.missed(series, at(500)));
        assert!(routes.expects(series, at(500)));
        routes.missed(series, at(500));
        assert!(!routes.expects(series, at(500)));
    }

    #[test]
    fn always_and_never_do_not_learn() {
        let series = SeriesKey::default();
        let (mut always, mut never) = (Routes::new(Expect::Always, 1), Routes::new(Expect::Never, 1));
        always.missed(series, at(9));
        never.sent(series, at(9));
        assert!(always.expects(series, at(10)) && !never.expects(series, at(10)));
    }
}
