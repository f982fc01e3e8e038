//! What became of the requests of a class that asked the queue, and how long those waited that it did not send at once.

use lapwing_metrics::REQUEST_BOUNDS_NS;

/// What became of the requests of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Sent at once.
    pub sent: u64,
    /// Waited.
    pub queued: u64,
    /// Refused, for they would have missed their deadline.
    pub refused: u64,
    /// Of those that waited: no longer able to meet their deadline, and never sent.
    pub expired: u64,
    /// How long those waited that wait no longer, whatever became of them.
    pub waits: WaitTimes,
}

/// Times of waiting, by [`REQUEST_BOUNDS_NS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitTimes {
    buckets: [u64; REQUEST_BOUNDS_NS.len() + 1],
    sum_ns: u64,
}

impl Default for WaitTimes {
    fn default() -> Self {
        Self { buckets: [0; REQUEST_BOUNDS_NS.len() + 1], sum_ns: 0 }
    }
}

impl WaitTimes {
    pub(crate) fn note(&mut self, ns: u64) {
        let bucket = REQUEST_BOUNDS_NS.partition_point(|bound| *bound < ns);
        self.buckets[bucket] += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their sum, in nanoseconds.
    #[must_use]
    pub const fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// How many are in each bucket, not cumulative: at most each of [`REQUEST_BOUNDS_NS`], and more than the last.
    #[must_use]
    pub const fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// The mean, in nanoseconds; `None` without any.
    #[must_use]
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_bucket_of_its_bound() {
        let mut waits = WaitTimes::default();
        assert_eq!((waits.count(), waits.mean_ns()), (0, None));
        for ns in [0, 10_000, 10_001, 3_600_000_000_000, u64::MAX] {
            waits.note(ns);
        }
        assert_eq!((waits.buckets()[..2].to_vec(), *waits.buckets().last().unwrap()), (vec![2, 1], 2));
        assert_eq!((waits.count(), waits.sum_ns()), (5, u64::MAX));
    }
}
