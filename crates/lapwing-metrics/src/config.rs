//! The bounds on the memory of all metrics, latency budgets, and how histograms are shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::budget::{self, BUDGET, Budget};
use super::exponential::{FINEST_SCHEMA, WIDEST_SCHEMA};
use lapwing_settings::{Checks, Form, Period, Section};

/// Whether something is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shown {
    /// It is.
    #[default]
    On,
    /// It is not.
    Off,
}

/// The section `metrics`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// Series (route × model × upstream) kept apart; further series are counted under `other`. Default 256; 1 to 65,536.
    pub max_series: usize,
    /// Routes kept apart; further routes are named `other`. Default 200; 1 to 10,000.
    pub max_routes: usize,
    /// Models kept apart; further models are named `other`. Default 100; 1 to 10,000.
    pub max_models: usize,
    /// For how long a route, a model or a series must have been idle before it may give way to a new one in a full table. Default
    /// 1 h; 1 s to 720 h.
    pub idle_after: Period,
    /// The latest exchanges kept as waterfalls for `/exchanges`. Default 256; 0 to 65,536.
    pub recent_exchanges: usize,
    /// The slowest exchanges kept as waterfalls for `/exchanges`. Default 64; 0 to 4096.
    pub slowest_exchanges: usize,
    /// Within what time requests should end, by route; `*` is every route that has no entry of its own. At most 256.
    pub budgets: BTreeMap<String, Budget>,
    /// The schema of Prometheus' native histograms, lowered for those that would take more than 160 buckets. Default 5; −4 to 8.
    pub native_schema: i8,
    /// Whether a native histogram has classic buckets too. Default `on`.
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
            native_schema: 5,
            classic_buckets: Shown::On,
        }
    }
}

impl Section for Config {
    const FORMS: &'static [(&'static str, Form)] = &[("budgets", Form::Named(&Form::Record(&BUDGET)))];

    fn check(&self, checks: &mut Checks) {
        checks.range("max_series", &self.max_series, 1..=65_536);
        checks.range("max_routes", &self.max_routes, 1..=10_000);
        checks.range("max_models", &self.max_models, 1..=10_000);
        checks.range("idle_after", &self.idle_after, Period::from_secs(1)..=Period::from_secs(720 * 3600));
        checks.range("recent_exchanges", &self.recent_exchanges, 0..=65_536);
        checks.range("slowest_exchanges", &self.slowest_exchanges, 0..=4096);
        checks.range("native_schema", &self.native_schema, WIDEST_SCHEMA..=FINEST_SCHEMA);
        budget::check(&self.budgets, checks);
    }
}
