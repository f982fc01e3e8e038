//! Limits a warning that could repeat endlessly to one a second.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lapwing_ledger::Stamp;

const INTERVAL_NS: u64 = 1_000_000_000;

/// One kind of warning, for the whole process.
#[derive(Debug, Default)]
pub struct WarningThrottle {
    /// When it was last written.
    written_ns: AtomicU64,
    /// How often it was not written since.
    held_back: AtomicU64,
}

impl WarningThrottle {
    /// One that has written nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { written_ns: AtomicU64::new(0), held_back: AtomicU64::new(0) }
    }

    /// Whether to write the warning `now`: how often it was held back before. `None`: not now.
    pub fn admit(&self, now: Stamp) -> Option<u64> {
        let last_ns = self.written_ns.load(Relaxed);
        let is_due = Stamp::from_ns(last_ns).is_none_or(|last| now.since(last) >= INTERVAL_NS);
        if is_due && self.written_ns.compare_exchange(last_ns, now.as_ns(), Relaxed, Relaxed).is_ok() {
            return Some(self.held_back.swap(0, Relaxed));
        }
        self.held_back.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_is_written_and_the_others_are_counted() {
        let throttle = WarningThrottle::new();
        let at = |ms: u64| throttle.admit(Stamp::default().plus(1 + ms * 1_000_000));
        assert_eq!([0, 10, 20, 999].map(at), [Some(0), None, None, None]);
        assert_eq!([1000, 1001, 2500].map(at), [Some(3), None, Some(1)]);
    }
}
