//! Latency budgets: within what time a share of a route's requests should end. Requests that took longer are counted, so that a
//! monitoring system can say how fast the budget burns.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use lapwing_settings::{Checks, Form, Period, Record};

/// The budgets of a route in the configuration.
pub(crate) const BUDGET: Record = Record {
    what: "a section of durations by quantile: p50, p90, p99, p999",
    keys: &[("p50", Form::Text), ("p90", Form::Text), ("p99", Form::Text), ("p999", Form::Text)],
    stand_in: &[],
};
/// How many routes may have budgets.
const MAX_ROUTES: usize = 256;
/// The route that means all that have no entry.
const EVERY_ROUTE: &str = "*";

/// Within what time these shares of a route's requests should end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "budget")]
pub struct Budget {
    /// Of half of the requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50: Option<Period>,
    /// Of 90 % of them; not below `p50`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p90: Option<Period>,
    /// Of 99 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<Period>,
    /// Of 99.9 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p999: Option<Period>,
}

/// The budgets of a series, by quantile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteBudget {
    /// In nanoseconds; `u64::MAX` where there is none.
    pub(crate) limits_ns: [u64; Self::QUANTILES.len()],
}

impl Default for RouteBudget {
    fn default() -> Self {
        Self { limits_ns: [u64::MAX; Self::QUANTILES.len()] }
    }
}

impl RouteBudget {
    /// The quantiles that may have a budget: the name, and the share of requests that may take longer.
    pub const QUANTILES: [(&'static str, f64); 4] = [("p50", 0.5), ("p90", 0.1), ("p99", 0.01), ("p999", 0.001)];

    /// The budgets that a route has: the place in [`Self::QUANTILES`], and the budget in nanoseconds.
    pub fn limits(&self) -> impl Iterator<Item = (usize, u64)> {
        self.limits_ns.into_iter().enumerate().filter(|(_, ns)| *ns < u64::MAX)
    }

    /// The budgets of `route`, else those of every route.
    #[must_use]
    pub fn of(budgets: &BTreeMap<String, Budget>, route: &str) -> Self {
        let Some(Budget { p50, p90, p99, p999 }) = budgets.get(route).or_else(|| budgets.get(EVERY_ROUTE)) else {
            return Self::default();
        };
        Self { limits_ns: [p50, p90, p99, p999].map(|limit| limit.map_or(u64::MAX, Period::as_nanos)) }
    }
}

/// Reports budgets that cannot be kept, or that contradict one another.
pub(crate) fn check(budgets: &BTreeMap<String, Budget>, checks: &mut Checks) {
    if budgets.len() > MAX_ROUTES {
        checks.fault("budgets", budgets.len(), format!("must be at most {MAX_ROUTES} routes"));
    }
    let range = Period(std::time::Duration::from_micros(1))..=Period::from_secs(3600);
    for (route, Budget { p50, p90, p99, p999 }) in budgets {
        let mut before = None;
        for (name, limit) in [("p50", p50), ("p90", p90), ("p99", p99), ("p999", p999)] {
            let key = format!("budgets.{route}.{name}");
            checks.optional_range(&key, limit.as_ref(), range.clone());
            let Some(limit) = limit else { continue };
            if let Some((lower, below)) = before.filter(|(_, below)| *below > limit) {
                checks.fault(&key, limit, format!("must not be below {lower}, which is {below}"));
            }
            before = Some((name, limit));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn budgets(text: serde_json::Value) -> BTreeMap<String, Budget> {
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn a_route_has_its_own_budgets_or_those_of_every_route() {
        let budgets = budgets(serde_json::json!({"*": {"p50": "10ms"}, "POST /a": {"p99": "200ms", "p999": "1s"}}));
        let of = |route| RouteBudget::of(&budgets, route).limits().collect::<Vec<_>>();
        assert_eq!(of("POST /a"), [(2, 200_000_000), (3, 1_000_000_000)]);
        assert_eq!(of("GET /b"), [(0, 10_000_000)]);
        assert_eq!(RouteBudget::of(&BTreeMap::new(), "POST /a"), RouteBudget::default());
        BUDGET.assert_describes::<Budget>();
    }

    #[test]
    fn budgets_out_of_range_or_order_are_faults() {
        let mut checks = Checks::new(BTreeSet::new());
        check(&budgets(serde_json::json!({"/a": {"p50": "1s", "p90": "2h", "p999": "500ms"}, "/b": {"p99": "0s"}})), &mut checks);
        let faults: Vec<_> = checks.into_faults().iter().map(ToString::to_string).collect();
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(faults[1].starts_with("budgets./a.p999: 500ms: must not be below p90"), "{faults:?}");
    }
}
