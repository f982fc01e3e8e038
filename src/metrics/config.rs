//! The bounds on the memory of all metrics.

use serde::{Deserialize, Serialize};

use crate::settings::{Checks, Period, Section};

/// The section `metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
        }
    }
}

impl Section for Config {
    fn check(&self, checks: &mut Checks) {
        checks.range("max_series", &self.max_series, 1..=65_536);
        checks.range("max_routes", &self.max_routes, 1..=10_000);
        checks.range("max_models", &self.max_models, 1..=10_000);
        checks.range("idle_after", &self.idle_after, Period::from_secs(1)..=Period::from_secs(720 * 3600));
        checks.range("recent_exchanges", &self.recent_exchanges, 0..=65_536);
        checks.range("slowest_exchanges", &self.slowest_exchanges, 0..=4096);
    }
}
