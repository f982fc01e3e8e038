//! The one place that reads time: monotonic stamps, and the wall clock that anchors them.
//!
//! Unit: nanoseconds. A [`Stamp`] counts from the first use of the clock in this process, so it fits an atomic and never goes
//! backwards. It has no meaning in another process.

use std::sync::LazyLock;

use rustix::time::{ClockId, Timespec, clock_gettime};

static EPOCH_NS: LazyLock<u64> = LazyLock::new(|| ns(clock_gettime(ClockId::Monotonic)));

/// A time that the system gives, in nanoseconds. `Instant` would add its checks and a division to each reading.
#[inline]
fn ns(time: Timespec) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[inline]
fn system_ns() -> u64 {
    ns(clock_gettime(ClockId::Monotonic)).saturating_sub(*EPOCH_NS)
}

#[cfg(not(feature = "testing"))]
#[inline]
fn since_epoch_ns() -> u64 {
    system_ns()
}

#[cfg(feature = "testing")]
fn since_epoch_ns() -> u64 {
    runtime::elapsed().map_or_else(system_ns, |elapsed| u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
}

/// Stamps of the runtime's clock, which a test stops and moves: without them, a timer would fire that no stamp confirms.
#[cfg(feature = "testing")]
#[doc(hidden)]
#[allow(clippy::disallowed_methods, reason = "this is the clock")]
pub mod runtime {
    use std::cell::Cell;
    use std::time::Duration;

    use tokio::time::Instant;

    thread_local! {
        static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
    }

    /// Stamps of this thread follow the runtime's clock until this is dropped.
    #[derive(Debug)]
    #[must_use]
    pub struct FollowedRuntime(());

    /// Lets the stamps of this thread follow the clock of the current runtime.
    pub fn follow() -> FollowedRuntime {
        BEGAN.set(Some(Instant::now()));
        FollowedRuntime(())
    }

    impl Drop for FollowedRuntime {
        fn drop(&mut self) {
            BEGAN.set(None);
        }
    }

    pub(crate) fn elapsed() -> Option<Duration> {
        BEGAN.get().map(|began| Instant::now().saturating_duration_since(began))
    }
}

/// A monotonic point in time, in nanoseconds since the process's epoch. A stamp that was read from the clock is never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// Reads the monotonic clock (about 25 ns).
    #[must_use]
    pub fn now() -> Self {
        Self(since_epoch_ns().saturating_add(1))
    }

    /// The stamp as a number, to be kept in an atomic; zero means "not yet".
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// The stamp for a number from [`Self::as_ns`]; `None` for zero.
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

/// Three readings of a clock take less, in nanoseconds.
const READ_NS: u64 = 2_000;

/// The offset of the wall clock from the stamps: the system slews both alike, so this changes only if the clock is set.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    unix_ns: u64,
    at: Stamp,
}

impl WallClock {
    /// Reads both clocks, once more if something else ran between the readings.
    #[must_use]
    pub fn read() -> Self {
        let between = || {
            let (before, unix_ns, after) = (Stamp::now(), unix_ns(), Stamp::now());
            let took_ns = after.since(before);
            (took_ns, Self { unix_ns, at: before.plus(took_ns / 2) })
        };
        let (took_ns, first) = between();
        if took_ns < READ_NS {
            return first;
        }
        let (again_ns, second) = between();
        if again_ns < took_ns { second } else { first }
    }

    /// When `stamp` was or will be, in nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn unix_ns(self, stamp: Stamp) -> u64 {
        self.unix_ns.saturating_sub(self.at.since(stamp)).saturating_add(stamp.since(self.at))
    }
}

/// The wall clock, in nanoseconds since the Unix epoch; zero if the machine's clock is before 1970.
#[must_use]
pub fn unix_ns() -> u64 {
    ns(clock_gettime(ClockId::Realtime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_goes_with_the_stamps() {
        let (before, wall, after) = (unix_ns(), WallClock::read(), unix_ns());
        assert!((before..=after).contains(&wall.unix_ns));
        assert_eq!(wall.unix_ns(wall.at), wall.unix_ns);
        assert_eq!(wall.unix_ns(wall.at.plus(7)) - wall.unix_ns(wall.at), 7);
        let earlier = Stamp::from_ns(wall.at.as_ns() - 1).unwrap();
        assert_eq!(wall.unix_ns(wall.at) - wall.unix_ns(earlier), 1);
    }

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
