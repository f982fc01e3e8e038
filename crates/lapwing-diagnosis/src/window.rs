//! The windows of time that a diagnosis may be of: a few, so that the number of diagnoses is bounded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A window of a diagnosis: the last so many seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DiagnosisWindow {
    /// The last 10 seconds.
    #[serde(rename = "10s")]
    TenSeconds,
    /// The last minute.
    #[serde(rename = "1m")]
    OneMinute,
    /// The last five minutes.
    #[default]
    #[serde(rename = "5m")]
    FiveMinutes,
}

impl DiagnosisWindow {
    /// Every window, the shortest first.
    pub const ALL: [Self; 3] = [Self::TenSeconds, Self::OneMinute, Self::FiveMinutes];

    /// The name in queries and settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TenSeconds => "10s",
            Self::OneMinute => "1m",
            Self::FiveMinutes => "5m",
        }
    }

    /// The length in nanoseconds.
    #[must_use]
    pub const fn length_ns(self) -> u64 {
        let seconds = match self {
            Self::TenSeconds => 10,
            Self::OneMinute => 60,
            Self::FiveMinutes => 300,
        };
        seconds * 1_000_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_has_the_name_of_a_query_and_windows_grow() {
        for window in DiagnosisWindow::ALL {
            assert_eq!(serde_json::to_value(window).unwrap(), window.name());
        }
        assert!(DiagnosisWindow::ALL.is_sorted_by_key(|window| window.length_ns()));
    }
}
