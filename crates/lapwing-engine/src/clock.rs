//! The one place where the engine reads time: monotonic stamps.
//!
//! Unit: nanoseconds. A [`Stamp`] counts from the first use of the clock in this process, so it fits an atomic
//! and never goes backwards; it has no meaning in another process.

use std::sync::LazyLock;
use std::time::Instant;

static EPOCH: LazyLock<Instant> = LazyLock::new(epoch);

#[allow(clippy::disallowed_methods, reason = "this is the clock")]
fn epoch() -> Instant {
    Instant::now()
}

/// A monotonic point in time, in nanoseconds since the process's epoch; never zero once read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// Reads the monotonic clock (about 25 ns).
    #[must_use]
    pub fn now() -> Self {
        let ns = u64::try_from(EPOCH.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Self(ns.saturating_add(1))
    }

    /// The stamp as a number, for keeping in an atomic; zero stands for "not yet".
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// The stamp that [`Self::as_ns`] gave; `None` for zero.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Option<Self> {
        if ns == 0 { None } else { Some(Self(ns)) }
    }

    /// Nanoseconds from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Nanoseconds from `self` to now.
    #[must_use]
    pub fn elapsed(self) -> u64 {
        Self::now().since(self)
    }

    /// The stamp `ns` nanoseconds later.
    #[must_use]
    pub const fn plus(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_never_zero_and_never_go_back() {
        let a = Stamp::now();
        let b = Stamp::now();
        assert!(a.as_ns() > 0);
        assert!(b >= a);
        assert_eq!(a.since(b), 0);
        assert_eq!(Stamp::from_ns(a.as_ns()), Some(a));
        assert_eq!(Stamp::from_ns(0), None);
    }
}
