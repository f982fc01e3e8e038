//! A number of bytes as people write it: `64KiB`, `10MB`, `4096`.

use std::fmt;
use std::str::FromStr;

use super::number::{scaled, shortest};
use super::{Invalid, text::text_serde};

/// The units, in the order in which canonical text prefers them: binary before decimal, large before small.
const UNITS: [(&str, u128); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// A number of bytes. Text: a number and a unit, of `B kB MB GB TB KiB MiB GiB TiB` in any case, or `Ki Mi Gi Ti` as
/// Kubernetes writes them; a bare whole number is bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

text_serde!(Size, "a size, as in 64KiB or 10MB", {
    "title": "size", "type": ["string", "integer"], "minimum": 0,
    "pattern": r"^\s*([0-9]*\.)?[0-9]+\s*([kKmMgGtT]?[bB]|[kKmMgGtT][iI][bB]|[KMGT]i)?\s*$", "examples": ["64KiB", "10MB", 4096]
});

impl Size {
    /// `n` times 1024 bytes; saturating.
    #[must_use]
    pub const fn kib(n: u64) -> Self {
        Self(n.saturating_mul(1024))
    }

    /// `n` times 1024² bytes; saturating.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n.saturating_mul(1024 * 1024))
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = |reason: &str| Invalid::new(text, reason);
        let trimmed = text.trim();
        if trimmed.starts_with('-') {
            return Err(invalid("must not be negative"));
        }
        let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(end);
        let unit = unit.trim_start();
        if number.is_empty() {
            return Err(invalid("is not a size, as in 64KiB or 10MB"));
        }
        let named =
            |name: &str| name.eq_ignore_ascii_case(unit) || name.strip_suffix("iB").is_some_and(|k| unit == format!("{k}i"));
        let factor = match UNITS.iter().find(|(name, _)| named(name)) {
            Some((_, factor)) => *factor,
            None if unit.is_empty() => 1,
            None => return Err(invalid("has an unknown unit; the units are B, kB, MB, GB, TB, KiB, MiB, GiB and TiB")),
        };
        let bytes = scaled(number, factor).map_err(|reason| match reason {
            "is finer than the smallest unit" => invalid("is not a whole number of bytes"),
            other => invalid(other),
        })?;
        u64::try_from(bytes).map(Self).map_err(|_| invalid("is too large"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0B");
        }
        let (count, unit) = shortest(self.0.into(), &UNITS);
        write!(f, "{count}{unit}")
    }
}
