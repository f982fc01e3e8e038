//! What an interval of ratios says of the candidate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::IntervalEstimate;

/// Whether the candidate is faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All of the interval lies below 1.
    Faster,
    /// All of the interval lies above 1.
    Slower,
    /// All of the interval lies within the margin, even if it also lies on one side of 1.
    Same,
    /// The interval allows more than one of these.
    Undecided,
}

impl Verdict {
    /// The verdict of an interval of ratios, candidate to baseline. `margin` is relative: 0.02 counts 1/1.02 to 1.02 as the same.
    pub(crate) fn of(ratio: &IntervalEstimate, margin: f64) -> Self {
        let (low, high) = (ratio.low, ratio.high.unwrap_or(f64::INFINITY));
        if low >= 1.0 / (1.0 + margin) && high <= 1.0 + margin {
            Self::Same
        } else if high < 1.0 {
            Self::Faster
        } else if low > 1.0 {
            Self::Slower
        } else {
            Self::Undecided
        }
    }

    /// Its name in surfaces: `faster`, `slower`, `same` or `undecided`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Same => "same",
            Self::Undecided => "undecided",
        }
    }
}
