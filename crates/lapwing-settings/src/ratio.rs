//! How many times as much: `1.1`.

use std::fmt;
use std::str::FromStr;

use super::{Invalid, text::text_serde};

/// A ratio of at least 0. Text: a number.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Ratio(f64);

text_serde!(Ratio, "a ratio, as in 1.1", {
    "title": "ratio", "type": ["string", "number"], "minimum": 0,
    "pattern": r"^\s*\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$", "examples": [1.1]
});

impl Ratio {
    /// The ratio in hundredths.
    #[must_use]
    pub const fn of_hundredths(hundredths: u32) -> Self {
        Self(hundredths as f64 / 100.0)
    }

    /// The ratio, finite and at least 0.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl FromStr for Ratio {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let ratio = text.trim().parse::<f64>().map_err(|_| Invalid::new(text, "is not a ratio, as in 1.1"))?;
        if ratio.is_finite() && ratio >= 0.0 { Ok(Self(ratio)) } else { Err(Invalid::new(text, "must be at least 0")) }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
