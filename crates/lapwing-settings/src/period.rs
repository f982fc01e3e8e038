//! A length of time as people write it: `250us`, `5s`, `1m30s`. Kept in nanoseconds; a number without a unit is refused.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::number::{scaled, shortest};
use super::{Invalid, text::text_serde};

/// The units, in the order in which canonical text prefers them: largest first.
const UNITS: [(&str, u128); 6] =
    [("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// A length of time, to the nanosecond. Text: one or more numbers with a unit each, of `ns us ms s m h`; no bare numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(pub Duration);

text_serde!(Period, "a duration, as in 250us, 5s or 1m30s", {
    "title": "period", "type": "string", "pattern": r"^\s*(([0-9]*\.)?[0-9]+\s*(ns|us|µs|μs|ms|s|m|h)\s*)+$", "examples": ["250us", "5s", "1m30s"]
});

impl Period {
    /// `secs` seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// `millis` milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// The length.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }

    /// The length in nanoseconds, at most `u64::MAX`.
    #[must_use]
    pub fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl FromStr for Period {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = |reason: &str| Invalid::new(text, reason);
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(invalid("is empty: give a duration, as in 5s"));
        }
        if rest.starts_with('-') {
            return Err(invalid("must not be negative"));
        }
        let mut nanos = 0_u128;
        while !rest.is_empty() {
            let (number, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len()));
            let (unit, tail) = tail.split_at(tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len()));
            if number.is_empty() {
                return Err(invalid("is not a duration, as in 250us, 5s or 1m30s"));
            }
            let unit = match unit.trim() {
                "" => return Err(invalid("needs a unit, as in 250us, 5s or 1m")),
                "µs" | "μs" => "us",
                other => other,
            };
            let Some((_, unit)) = UNITS.iter().find(|(name, _)| *name == unit) else {
                return Err(invalid("has an unknown unit; the units are ns, us, ms, s, m and h"));
            };
            let part = scaled(number, *unit).map_err(invalid)?;
            nanos = nanos.checked_add(part).ok_or_else(|| invalid("is too large"))?;
            rest = tail.trim_start();
        }
        let nanos = u64::try_from(nanos).map_err(|_| invalid("is too large"))?;
        Ok(Self(Duration::from_nanos(nanos)))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() {
            return f.write_str("0s");
        }
        let (count, unit) = shortest(self.0.as_nanos(), &UNITS);
        write!(f, "{count}{unit}")
    }
}
