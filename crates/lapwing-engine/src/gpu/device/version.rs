//! CUDA versions.

use std::fmt;

/// A CUDA version: major and minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(
    /// Major.
    pub u32,
    /// Minor.
    pub u32,
);

impl Version {
    /// Decodes the driver's number: 1000 · major + 10 · minor.
    pub(crate) fn from_number(number: i32) -> Self {
        let number = u32::try_from(number).unwrap_or(0);
        Self(number / 1000, number % 1000 / 10)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}
