//! The bounds on the memory of all metrics, latency budgets, and how histograms are shown.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::budget::{self, BUDGET, Budget, MODEL_BUDGET, ModelBudget};
use super::exponential::{FINEST_SCHEMA, WIDEST_SCHEMA};
use lapwing_settings::{Checks, Form, Period, Section};

/// Whether something is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Shown {
    /// It is.
    #[default]
    On,
    /// It is not.
    Off,
}

/// The section `metrics`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// How many series (route × model × upstream) are kept apart; further ones are counted under `other`.
    pub max_series: usize,
    /// How many routes are kept apart; further ones are named `other`.
    pub max_routes: usize,
    /// How many models are kept apart; further ones are named `other`.
    pub max_models: usize,
    /// How long a route, model or series must be idle before it gives way to a new one in a full table.
    pub idle_after: Period,
    /// How many of the latest exchanges `/exchanges` keeps.
    pub recent_exchanges: usize,
    /// How many of the slowest exchanges `/exchanges` keeps.
    pub slowest_exchanges: usize,
    /// Within what time a share of a route's requests, or each, should end, for at most 256 routes, named as in `/stats`; `*` is every
    /// other one.
    pub budgets: BTreeMap<String, Budget>,
    /// The same for each request of a model, before that of its route.
    pub model_budgets: BTreeMap<String, ModelBudget>,
    /// The fineness of native histograms: each step doubles the buckets. It is lowered for those beyond 160 buckets.
    pub native_schema: i8,
    /// Whether native histograms have classic buckets too. Text always has classic ones only.
    pub classic_buckets: Shown,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_series: 256,
            max_routes: 200,
            max_models: 100,
            idle_after: Period::from_secs(3600),
            recent_exchanges: 256,
            slowest_exchanges: 64,
            budgets: BTreeMap::new(),
            model_budgets: BTreeMap::new(),
            native_schema: 5,
            classic_buckets: Shown::On,
        }
    }
}

impl Section for Config {
    const FORMS: &'static [(&'static str, Form)] =
        &[("budgets", Form::Named(&Form::Record(&BUDGET))), ("model_budgets", Form::Named(&Form::Record(&MODEL_BUDGET)))];

    fn check(&self, checks: &mut Checks) {
        checks.range("max_series", &self.max_series, 1..=65_536);
        checks.range("max_routes", &self.max_routes, 1..=10_000);
        checks.range("max_models", &self.max_models, 1..=10_000);
        checks.range("idle_after", &self.idle_after, Period::from_secs(1)..=Period::from_secs(720 * 3600));
        checks.range("recent_exchanges", &self.recent_exchanges, 0..=65_536);
        checks.range("slowest_exchanges", &self.slowest_exchanges, 0..=4096);
        checks.range("native_schema", &self.native_schema, WIDEST_SCHEMA..=FINEST_SCHEMA);
        budget::check(&self.budgets, &self.model_budgets, checks);
    }
}
