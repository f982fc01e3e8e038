//! Learns which routes send spans, so that exchanges of routes that send none do not wait.

use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use lapwing_ledger::{LabelId, SeriesKey, Stamp};

/// Whether a closed ledger waits for spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpanExpectation {
    /// If its route sends spans, or is too new to know.
    #[default]
    Auto,
    /// Every sampled exchange waits.
    Always,
    /// No exchange waits, and received spans are not joined.
    Never,
}

/// A route at an upstream. Names are interned in bounded tables, so the routes are bounded too.
type Key = (LabelId, LabelId);

/// The number of exchanges in a row without spans after which a route that once sent some is given up; an upstream may sample on
/// its own.
const MAX_WITHOUT_SPANS: u32 = 16;

/// The number of exchanges that may wait at once on a route that never sent spans; further ones are merged at once. An exporter
/// with default settings sends when it holds 512 spans or after 5 s: by then at most 512 exchanges of the route have ended. So no
/// spans are missed if the route sends any, and little waits in vain if it does not.
pub(crate) const PROBES: u32 = 512;

/// Whether an exchange should wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitDecision {
    /// No: its route sends no spans, or enough others wait to find out.
    No,
    /// To find out whether its route sends spans. It must not displace other waiting exchanges.
    Probe,
    /// Yes: its route sends spans.
    Yes,
}

/// What is known about each route.
///
/// A route starts as unknown, and a limited number of its exchanges wait. It becomes silent when one of them got no spans (until
/// the end of its grace period, or until it was evicted) and no span had joined for a whole grace period; a route that sent spans
/// before becomes silent after [`MAX_WITHOUT_SPANS`] such exchanges in a row. No exchange waits on a silent route. A span, even a late
/// one, makes all exchanges of the route wait.
#[derive(Debug)]
pub(crate) struct Routes {
    expect: SpanExpectation,
    grace_ns: u64,
    routes: FxHashMap<Key, RouteState>,
}

#[derive(Clone, Copy, Debug)]
struct RouteState {
    is_silent: bool,
    has_sent: bool,
    /// When it was first seen, or last sent a span.
    since: Stamp,
    misses: u32,
    waiting: u32,
}

impl Routes {
    pub(crate) fn new(expect: SpanExpectation, grace_ns: u64) -> Self {
        Self { expect, grace_ns, routes: FxHashMap::default() }
    }

    /// Applies these from now on; what was learnt about the routes stays.
    pub(crate) const fn set(&mut self, expect: SpanExpectation, grace_ns: u64) {
        (self.expect, self.grace_ns) = (expect, grace_ns);
    }

    /// Whether an exchange of this series should wait.
    pub(crate) fn wait(&mut self, series: SeriesKey, now: Stamp) -> WaitDecision {
        match self.expect {
            SpanExpectation::Always => WaitDecision::Yes,
            SpanExpectation::Never => WaitDecision::No,
            SpanExpectation::Auto => match self.route(series, now) {
                RouteState { is_silent: true, .. } => WaitDecision::No,
                RouteState { has_sent: true, .. } => WaitDecision::Yes,
                RouteState { waiting, .. } if *waiting < PROBES => WaitDecision::Probe,
                _ => WaitDecision::No,
            },
        }
    }

    /// Records that an exchange of this series begins to wait.
    pub(crate) fn entered(&mut self, series: SeriesKey, now: Stamp) {
        self.route(series, now).waiting += 1;
    }

    /// Records that an exchange of this series stops waiting.
    pub(crate) fn left(&mut self, series: SeriesKey, now: Stamp, has_spans: bool) {
        let grace_ns = self.grace_ns;
        let route = self.route(series, now);
        route.waiting = route.waiting.saturating_sub(1);
        if has_spans {
            return route.sent(now);
        }
        route.misses = route.misses.saturating_add(1);
        let is_convincing = !route.has_sent || route.misses >= MAX_WITHOUT_SPANS;
        if is_convincing && now.since(route.since) >= grace_ns {
            route.is_silent = true;
        }
    }

    /// Records that a span of this series arrived, in time or late.
    pub(crate) fn sent(&mut self, series: SeriesKey, now: Stamp) {
        self.route(series, now).sent(now);
    }

    /// Forgets the routes that are not kept.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(LabelId) -> bool) {
        self.routes.retain(|(route, _), _| is_kept(*route));
    }

    fn route(&mut self, series: SeriesKey, now: Stamp) -> &mut RouteState {
        let fresh = RouteState { is_silent: false, has_sent: false, since: now, misses: 0, waiting: 0 };
        self.routes.entry((series.route, series.upstream)).or_insert(fresh)
    }
}

impl RouteState {
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
        let mut routes = Routes::new(SpanExpectation::Auto, GRACE_NS);
        assert_eq!(routes.wait(SERIES, at(1)), WaitDecision::Probe);
        missed(&mut routes, 50);
        assert_eq!(routes.wait(SERIES, at(50)), WaitDecision::Probe, "evicted before anything can be known");
        missed(&mut routes, 101);
        assert_eq!(routes.wait(SERIES, at(101)), WaitDecision::No);
        routes.sent(SERIES, at(150));
        assert_eq!(routes.wait(SERIES, at(150)), WaitDecision::Yes);
    }

    #[test]
    fn of_a_route_that_never_sent_only_probes_wait() {
        let mut routes = Routes::new(SpanExpectation::Auto, GRACE_NS);
        (0..PROBES).for_each(|_| routes.entered(SERIES, at(1)));
        assert_eq!(routes.wait(SERIES, at(2)), WaitDecision::No);
        missed(&mut routes, 3);
        assert_eq!(routes.wait(SERIES, at(3)), WaitDecision::Probe);
        routes.entered(SERIES, at(3));
        routes.sent(SERIES, at(4));
        assert_eq!(routes.wait(SERIES, at(4)), WaitDecision::Yes, "now it is known");
    }

    #[test]
    fn a_route_that_sent_spans_once_is_given_up_later() {
        let mut routes = Routes::new(SpanExpectation::Auto, GRACE_NS);
        routes.sent(SERIES, at(1));
        (1..MAX_WITHOUT_SPANS).for_each(|_| missed(&mut routes, 500));
        assert_eq!(routes.wait(SERIES, at(500)), WaitDecision::Yes);
        missed(&mut routes, 500);
        assert_eq!(routes.wait(SERIES, at(500)), WaitDecision::No);
    }

    #[test]
    fn always_and_never_do_not_learn() {
        let (mut always, mut never) = (Routes::new(SpanExpectation::Always, 1), Routes::new(SpanExpectation::Never, 1));
        missed(&mut always, 9);
        never.sent(SERIES, at(9));
        assert_eq!((always.wait(SERIES, at(10)), never.wait(SERIES, at(10))), (WaitDecision::Yes, WaitDecision::No));
    }
}
