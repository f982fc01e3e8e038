//! Latency budgets: within what time a share of a route's requests should end, so that a monitoring system can say how fast the budget
//! burns; and within what time each request of a route or of a model should, for goodput.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use lapwing_ledger::{Deadline, DeadlineSource};
use lapwing_settings::{Checks, Form, Period, Record};

/// The budgets of a route in the configuration.
pub(crate) const BUDGET: Record = Record {
    what: "a section of durations: of quantiles (p50, p90, p99, p999), and of each request (total, first_token, per_token)",
    keys: &[
        ("p50", Form::Text),
        ("p90", Form::Text),
        ("p99", Form::Text),
        ("p999", Form::Text),
        ("total", Form::Text),
        ("first_token", Form::Text),
        ("per_token", Form::Text),
    ],
    stand_in: &[],
};
/// The budget of a model in the configuration.
pub(crate) const MODEL_BUDGET: Record = Record {
    what: "a section of durations: total, first_token, per_token",
    keys: &[("total", Form::Text), ("first_token", Form::Text), ("per_token", Form::Text)],
    stand_in: &[],
};
/// How many routes, and how many models, may have budgets.
const MAX_ROUTES: usize = 256;
/// The route that means all that have no entry.
const EVERY_ROUTE: &str = "*";

/// Within what time these shares of a route's requests should end, and what each of them should keep to.
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
    /// Of each request, unless it says itself how long it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Period>,
    /// Of each request until its first token came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token: Option<Period>,
    /// Of each request for one output token after the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_token: Option<Period>,
}

/// What each request of a model should keep to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "model's budget")]
pub struct ModelBudget {
    /// In all, unless it says itself how long it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Period>,
    /// Until its first token came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token: Option<Period>,
    /// For one output token after the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_token: Option<Period>,
}

/// What each request of a series should keep to by the settings, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestLimits {
    /// In all.
    pub total_ns: Option<u64>,
    /// Until its first token came.
    pub first_token_ns: Option<u64>,
    /// For one output token after the first.
    pub per_token_ns: Option<u64>,
    /// Whether the first of them is that of its model.
    pub is_of_model: bool,
}

impl RequestLimits {
    /// Those of `model` in `models`; what it has none of, by its route.
    #[must_use]
    pub fn of(routes: &BTreeMap<String, Budget>, models: &BTreeMap<String, ModelBudget>, route: &str, model: &str) -> Self {
        let route = routes.get(route).or_else(|| routes.get(EVERY_ROUTE)).copied().unwrap_or_default();
        let model = models.get(model).copied().unwrap_or_default();
        let first = |model: Option<Period>, route: Option<Period>| model.or(route).map(Period::as_nanos);
        Self {
            total_ns: first(model.total, route.total),
            first_token_ns: first(model.first_token, route.first_token),
            per_token_ns: first(model.per_token, route.per_token),
            is_of_model: model.total.is_some(),
        }
    }

    /// How long a request may take in all, and who says so.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        let source = if self.is_of_model { DeadlineSource::Model } else { DeadlineSource::Route };
        Some(Deadline { budget_ns: self.total_ns?, source })
    }
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
        let Some(Budget { p50, p90, p99, p999, .. }) = budgets.get(route).or_else(|| budgets.get(EVERY_ROUTE)) else {
            return Self::default();
        };
        Self { limits_ns: [p50, p90, p99, p999].map(|limit| limit.map_or(u64::MAX, Period::as_nanos)) }
    }
}

/// Reports budgets that cannot be kept, or that contradict one another.
pub(crate) fn check(budgets: &BTreeMap<String, Budget>, models: &BTreeMap<String, ModelBudget>, checks: &mut Checks) {
    for (key, count, what) in [("budgets", budgets.len(), "routes"), ("model_budgets", models.len(), "models")] {
        if count > MAX_ROUTES {
            checks.fault(key, count, format!("must be at most {MAX_ROUTES} {what}"));
        }
    }
    let range = Period(std::time::Duration::from_micros(1))..=Period::from_secs(3600);
    let of_routes = budgets.iter().map(|(route, of)| (format!("budgets.{route}"), [of.total, of.first_token, of.per_token]));
    let of_models = models.iter().map(|(model, of)| (format!("model_budgets.{model}"), [of.total, of.first_token, of.per_token]));
    for (of, limits) in of_routes.chain(of_models) {
        for (name, limit) in ["total", "first_token", "per_token"].into_iter().zip(&limits) {
            checks.optional_range(&format!("{of}.{name}"), limit.as_ref(), range.clone());
        }
    }
    for (route, Budget { p50, p90, p99, p999, .. }) in budgets {
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
        MODEL_BUDGET.assert_describes::<ModelBudget>();
    }

    #[test]
    fn a_models_budget_counts_before_its_routes() {
        let routes =
            budgets(serde_json::json!({"*": {"p50": "1ms", "total": "9s", "first_token": "1s"}, "POST /a": {"total": "2s"}}));
        let models: BTreeMap<String, ModelBudget> =
            serde_json::from_value(serde_json::json!({"m": {"total": "1s", "per_token": "50ms"}, "n": {"first_token": "1ms"}}))
                .unwrap();
        let of = |route, model| {
            let limits = RequestLimits::of(&routes, &models, route, model);
            let ms = [limits.total_ns, limits.first_token_ns, limits.per_token_ns].map(|ns| ns.map_or(0, |ns| ns / 1_000_000));
            (ms, limits.deadline().map(|deadline| deadline.source.name()))
        };
        assert_eq!(of("POST /a", "m"), ([1_000, 0, 50], Some("model")));
        assert_eq!(of("POST /b", "n"), ([9_000, 1, 0], Some("route")));
        assert_eq!(of("POST /a", ""), ([2_000, 0, 0], Some("route")));
        assert_eq!(RequestLimits::of(&BTreeMap::new(), &models, "POST /a", "n").deadline(), None);
    }

    #[test]
    fn budgets_out_of_range_or_order_are_faults() {
        let mut checks = Checks::new(BTreeSet::new());
        let routes = serde_json::json!({"/a": {"p50": "1s", "p90": "2h", "p999": "500ms"}, "/b": {"p99": "0s", "total": "2h"}});
        let models =
            BTreeMap::from([("m".to_owned(), ModelBudget { per_token: Some(Period::from_secs(0)), ..ModelBudget::default() })]);
        check(&budgets(routes), &models, &mut checks);
        let faults: Vec<_> = checks.into_faults().iter().map(ToString::to_string).collect();
        assert_eq!(faults.len(), 5, "{faults:?}");
        let has = |start: &str| faults.iter().any(|fault| fault.starts_with(start));
        assert!(has("budgets./a.p999: 500ms: must not be below p90"), "{faults:?}");
        assert!(has("budgets./b.total: 2h") && has("model_budgets.m.per_token: 0s"), "{faults:?}");
    }
}
