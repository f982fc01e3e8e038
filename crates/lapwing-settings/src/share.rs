//! A part of a whole: `20%` or `0.2`.

use std::fmt;
use std::str::FromStr;

use super::{Invalid, text::text_serde};

/// A part of a whole, 0 to 1. Text: a number with `%`, or a fraction.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Share(f64);

text_serde!(Share, "a share, as in 20% or 0.2", {
    "title": "share", "type": ["string", "number"], "minimum": 0, "maximum": 1,
    "pattern": r"^\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*%?\s*$", "examples": ["20%", 0.2]
});

impl Share {
    /// One in a hundred.
    pub const ONE_PERCENT: Self = Self(0.01);

    /// So many in a hundred, at most all.
    #[must_use]
    pub const fn of_percent(percent: u8) -> Self {
        Self(if percent > 100 { 1.0 } else { percent as f64 / 100.0 })
    }

    /// The part, `0.0..=1.0`.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl FromStr for Share {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = |reason: &str| Invalid::new(text, reason);
        let trimmed = text.trim();
        let (number, divisor) = match trimmed.strip_suffix('%') {
            Some(number) => (number.trim_end(), 100.0),
            None => (trimmed, 1.0),
        };
        let share = number.parse::<f64>().map_err(|_| invalid("is not a share, as in 20% or 0.2"))? / divisor;
        if share > 1.0 && divisor == 1.0 {
            return Err(invalid("must be at most 1; for percent write %, as in 20%"));
        }
        if !(0.0..=1.0).contains(&share) {
            return Err(invalid("must be between 0% and 100%"));
        }
        // no negative zero
        Ok(Self(share.abs()))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = (self.0 * 1e11).round() / 1e9;
        if percent / 100.0 == self.0 { write!(f, "{percent}%") } else { write!(f, "{}", self.0) }
    }
}
