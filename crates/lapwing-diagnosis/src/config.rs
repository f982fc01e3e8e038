//! The section `diagnosis`: whether Lapwing diagnoses, and over which time. The budgets that it judges by are those of `metrics.budgets`.

use serde::{Deserialize, Serialize};

use super::window::DiagnosisWindow;
use lapwing_metrics::Shown;
use lapwing_settings::{Checks, Section};

/// The section `diagnosis`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// Whether exchanges are kept for a diagnosis, and `/diagnosis` answers. Default `on`.
    pub enabled: Shown,
    /// The window of a diagnosis that names none. Default `5m`.
    pub window: DiagnosisWindow,
}

impl Section for Config {
    fn check(&self, _checks: &mut Checks) {}
}
