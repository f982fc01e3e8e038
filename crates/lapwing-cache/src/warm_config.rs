//! The section `cache.warm`: which requests the cache has the answers of before somebody asks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use lapwing_settings::{Checks, File, Period, Switch};

/// The section `cache.warm`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct WarmConfig {
    /// A recording (`lapwing record`), or a file of requests, that Lapwing sends itself at its start, once the upstream accepts
    /// connections.
    pub file: Switch<File>,
    /// Whether `/readyz` fails until that is done. Otherwise it is done beside the traffic, and only while the upstream has little else to
    /// do.
    pub before_ready: bool,
    /// How long it may take; then `/readyz` succeeds all the same.
    pub timeout: Period,
}

impl Default for WarmConfig {
    fn default() -> Self {
        Self { file: Switch::Off, before_ready: true, timeout: Period::from_secs(60) }
    }
}

impl WarmConfig {
    /// Reports faults.
    pub(crate) fn check(&self, checks: &mut Checks) {
        checks.range("timeout", &self.timeout, Period::from_secs(1)..=Period::from_secs(3_600));
    }
}
