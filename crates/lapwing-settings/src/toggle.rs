//! A setting that is on or off, and off unless it is turned on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// On or off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Toggle {
    /// It is done.
    On,
    /// It is not.
    #[default]
    Off,
}

impl Toggle {
    /// Whether it is on.
    #[must_use]
    pub const fn is_on(self) -> bool {
        matches!(self, Self::On)
    }
}
