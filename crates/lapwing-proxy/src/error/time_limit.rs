//! The time limit that ended a request: which one it was, counted and logged, so that nobody has to guess who cut a request short.

use super::Error;
use lapwing_ledger::Stamp;
use lapwing_metrics::{Counter, Counters};
use lapwing_net::WarningThrottle;

static WARNINGS: WarningThrottle = WarningThrottle::new();

impl Error {
    /// The counter of the time limit that was reached, if that is the error.
    const fn time_limit(&self) -> Option<Counter> {
        Some(match self {
            Self::ConnectTimeout { .. } => Counter::TimeLimitConnect,
            Self::HeaderTimeout { .. } => Counter::TimeLimitHeader,
            Self::ResponseStalled { .. } | Self::RequestUnread { .. } | Self::UpgradeStalled { .. } => Counter::TimeLimitIdle,
            Self::RequestStalled { .. } | Self::ResponseUnread { .. } => Counter::TimeLimitClientStall,
            _ => return None,
        })
    }

    /// If a time limit ended the request: counts it, and logs it at most once a second.
    pub(crate) fn report_time_limit(&self, counters: &Counters) {
        let Some(limit) = self.time_limit() else { return };
        counters.bump(limit);
        if let Some(held_back) = WARNINGS.admit(Stamp::now()) {
            tracing::warn!(reason = %self, held_back, "a time limit of the section proxy ended a request");
        }
    }
}
