//! Which routes send spans, learnt from what they do: a route that sends none must not make its exchanges wait.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::ledger::{LabelId, SeriesKey, Stamp};

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
type Key = (LabelId, LabelId);

/// So many exchanges in a row must stay without spans before a route that once sent some is given up: an upstream may
/// sample on its own.
const PATIENCE: u32 = 16;

/// So many exchanges of a route that never sent spans wait at once; the others are merged at once. An exporter at its
/// defaults sends when it holds 512 spans or when 5 s passed: by then a fast route has no more than 512 exchanges behind
/// it, and a slow one fewer. So none is missed where spans come, and where none come little waits for nothing.
pub(super) const PROBES: u32 = 512;

/// Whether an exchange should wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Its route sends no spans, or enough others wait to find out.
    No,
    /// To find out whether its route sends spans; nothing else may suffer for it.
    Probe,
    /// Its route sends spans.
    Yes,
}

/// What is known of each route.
///
/// A route starts as unknown: a few exchanges wait. It is silent when one of them stayed without spans (to the end of
/// its grace period, or until it was evicted) while no span had joined for a whole grace period; a route that ever sent
/// spans, after [`PATIENCE`] such exchanges in a row. Nothing waits on a silent route. A span, even a late one, makes it
/// one whose exchanges all wait.
#[derive(Debug)]
pub(super) struct Routes {
    expect: Expect,
    grace_ns: u64,
    routes: FxHashMap<Key, Route>,
}

#[derive(Clone, Copy, Debug)]
struct Route {
    is_silent: bool,
    has_sent: bool,
    /// It was first seen, or last sent a span.
    since: Stamp,
    misses: u32,
    waiting: u32,
}

impl Routes {
    pub(super) fn new(expect: Expect, grace_ns: u64) -> Self {
        Self { expect, grace_ns, routes: FxHashMap::default() }
    }

    /// Whether an exchange of this series should wait.
    pub(super) fn wait(&mut self, series: SeriesKey, now: Stamp) -> Wait {
        match self.expect {
            Expect::Always => Wait::Yes,
            Expect::Never => Wait::No,
            Expect::Auto => match self.route(series, now) {
                Route { is_silent: true, .. } => Wait::No,
                Route { has_sent: true, .. } => Wait::Yes,
                Route { waiting, .. } if *waiting < PROBES => Wait::Probe,
                _ => Wait::No,
            },
        }
    }

    /// An exchange of this series begins to wait.
    pub(super) fn entered(&mut self, series: SeriesKey, now: Stamp) {
        self.route(series, now).waiting += 1;
    }

    /// An exchange of this series waits no more.
    pub(super) fn left(&mut self, series: SeriesKey, now: Stamp, has_spans: bool) {
        let grace_ns = self.grace_ns;
        let route = self.route(series, now);
        route.waiting = route.waiting.saturating_sub(1);
        if has_spans {
            return route.sent(now);
        }
        route.misses = route.misses.saturating_add(1);
        let is_convincing = !route.has_sent || route.misses >= PATIENCE;
        if is_convincing && now.since(route.since) >= grace_ns {
            route.is_silent = true;
        }
    }

    /// A span of this series came, in time or late.
    pub(super) fn sent(&mut self, series: SeriesKey, now: Stamp) {
        self.route(series, now).sent(now);
    }

    fn route(&mut self, series: SeriesKey, now: Stamp) -> &mut Route {
        let fresh = Route { is_silent: false, has_sent: false, since: now, misses: 0, waiting: 0 };
        self.routes.entry((series.route, series.upstream)).or_insert(fresh)
    }
}

impl Route {
    fn sent(&mut self, now: Stamp) {
        (self.is_silent, self.has_sent, self.since, self.misses) = (false, true, now, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE_NS: u64 = 100;
    const SERIES: SeriesKey = SeriesKey { route: LabelId::OTHER, model: LabelId::OTHER, upstream: LabelId::OTHER };

    fn at(ns: u64) -> Stamp {
        Stamp::default().plus(ns)
    }

    fn missed(routes: &mut Routes, ns: u64) {
        routes.left(SERIES, at(ns), false);
    }

    #[test]
    fn a_silent_route_stops_waiting_after_one_grace_period() {
        let mut routes = Routes::new(Expect::Auto, GRACE_NS);
        assert_eq!(routes.wait(SERIES, at(1)), Wait::Probe);
        missed(&mut routes, 50);
        assert_eq!(routes.wait(SERIES, at(50)), Wait::Probe, "evicted before anything can be known");
        missed(&mut routes, 101);
        assert_eq!(routes.wait(SERIES, at(101)), Wait::No);
        routes.sent(SERIES, at(150));
        assert_eq!(routes.wait(SERIES, at(150)), Wait::Yes);
    }

    #[test]
    fn of_a_route_that_never_sent_only_probes_wait() {
        let mut routes = Routes::new(Expect::Auto, GRACE_NS);
        (0..PROBES).for_each(|_| routes.entered(SERIES, at(1)));
        assert_eq!(routes.wait(SERIES, at(2)), Wait::No);
        missed(&mut routes, 3);
        assert_eq!(routes.wait(SERIES, at(3)), Wait::Probe);
        routes.entered(SERIES, at(3));
        routes.sent(SERIES, at(4));
        assert_eq!(routes.wait(SERIES, at(4)), Wait::Yes, "now it is known");
    }

    #[test]
    fn a_route_that_sent_spans_once_is_given_up_later() {
        let mut routes = Routes::new(Expect::Auto, GRACE_NS);
        routes.sent(SERIES, at(1));
        (1..PATIENCE).for_each(|_| missed(&mut routes, 500));
        assert_eq!(routes.wait(SERIES, at(500)), Wait::Yes);
        missed(&mut routes, 500);
        assert_eq!(routes.wait(SERIES, at(500)), Wait::No);
    }

    #[test]
    fn always_and_never_do_not_learn() {
        let (mut always, mut never) = (Routes::new(Expect::Always, 1), Routes::new(Expect::Never, 1));
        missed(&mut always, 9);
        never.sent(SERIES, at(9));
        assert_eq!((always.wait(SERIES, at(10)), never.wait(SERIES, at(10))), (Wait::Yes, Wait::No));
    }
}
