//! The section `diagnosis`: whether Lapwing diagnoses, and over which time. The budgets that it judges by are those of `metrics.budgets`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::window::DiagnosisWindow;
use lapwing_metrics::Shown;
use lapwing_settings::{Checks, Section};

/// The section `diagnosis`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// Whether exchanges are kept for a diagnosis, and `/diagnosis` answers.
    pub enabled: Shown,
    /// The time that a diagnosis looks at, if it is not asked for another.
    pub window: DiagnosisWindow,
}

impl Section for Config {
    fn check(&self, _checks: &mut Checks) {}
}
