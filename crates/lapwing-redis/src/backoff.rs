//! How long the background waits before it tries again.

use std::time::Duration;

use rand::RngExt;

const FIRST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(10);

/// Waits that double up to a bound, each of them somewhere in its second half, so that pods do not come back all at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// The next wait.
    pub(crate) fn next(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(MOST);
        whole.mul_f64(rand::rng().random_range(0.5..=1.0))
    }

    /// All is well again.
    pub(crate) fn reset(&mut self) {
        self.next = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound() {
        let mut backoff = Backoff::default();
        let mut whole = FIRST;
        for _ in 0..20 {
            let wait = backoff.next();
            assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
            whole = (whole * 2).min(MOST);
        }
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }
}
