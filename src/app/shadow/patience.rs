//! How long a copy may take: a fixed time, or a multiple of what the upstream took for the same request, whichever is longer. So a target
//! that is as slow as the upstream has not failed.

use std::time::Duration;

use tokio::sync::watch;

use lapwing_ledger::Stamp;
use lapwing_settings::Period;

/// The limit of the stacks and clients that carry copies: longer than any copy may take.
pub(crate) const LONGEST: Period = Period::from_secs(7 * 24 * 3600);

/// How long copies may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// At least.
    pub(crate) floor: Duration,
    /// So many times the upstream's time, if that is longer.
    pub(crate) factor: u32,
}

impl Patience {
    /// How long a copy may take of a request for which the upstream took `primary`.
    fn limit(self, primary: Duration) -> Duration {
        self.floor.max(primary.saturating_mul(self.factor))
    }

    /// Waits until a copy that is sent now has taken too long. `primary` says how long the upstream took, as soon as it is known; while it is
    /// not, there is no limit. An upstream that gave no answer sets none.
    pub(crate) async fn runs_out(self, mut primary: watch::Receiver<Option<Duration>>) {
        let began = Stamp::now();
        let took = primary.wait_for(Option::is_some).await.ok().and_then(|took| *took).unwrap_or_default();
        let gone = Duration::from_nanos(began.elapsed());
        tokio::time::sleep(self.limit(took).saturating_sub(gone)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { floor: Duration::from_millis(20), factor: 3 };

    #[test]
    fn the_upstreams_own_time_lengthens_the_limit_and_never_shortens_it() {
        for (primary_ms, limit_ms) in [(0, 20), (6, 20), (7, 21), (40_000, 120_000)] {
            assert_eq!(PATIENCE.limit(Duration::from_millis(primary_ms)), Duration::from_millis(limit_ms));
        }
        assert_eq!(PATIENCE.limit(Duration::MAX), Duration::MAX);
    }

    #[tokio::test]
    async fn a_copy_waits_at_least_as_long_as_the_upstream_takes() {
        let (tell, primary) = watch::channel(None);
        let began = Stamp::now();
        let upstream = async {
            tokio::time::sleep(Duration::from_millis(60)).await;
            tell.send(Some(Duration::from_millis(60))).unwrap();
        };
        tokio::join!(upstream, PATIENCE.runs_out(primary));
        assert!(began.elapsed() >= 170_000_000, "{} ns", began.elapsed());
        let (tell, primary) = watch::channel(None);
        drop(tell);
        PATIENCE.runs_out(primary).await; // the upstream gave no answer
    }
}
