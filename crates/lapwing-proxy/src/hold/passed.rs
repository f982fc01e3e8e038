//! Why a request that was to be held passed as it came.

use lapwing_metrics::Counter;

/// Why a request that was to be held passed as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldPassed {
    /// Its body is larger than `hold.max_body`.
    Body,
    /// Held bodies took `hold.budget`.
    Budget,
    /// Its body did not come whole within `hold.max_time`.
    Time,
    /// Its client waits for "100 Continue", which only the upstream can say: it may refuse the request before its body is sent.
    Expect,
    /// It asks for another protocol, or for a tunnel.
    Upgrade,
    /// Nobody can read its body.
    Unread,
}

impl HoldPassed {
    /// Where it is counted.
    pub(crate) const fn counter(self) -> Counter {
        match self {
            Self::Body => Counter::HoldPassedBody,
            Self::Budget => Counter::HoldPassedBudget,
            Self::Time => Counter::HoldPassedTime,
            Self::Expect => Counter::HoldPassedExpect,
            Self::Upgrade => Counter::HoldPassedUpgrade,
            Self::Unread => Counter::HoldPassedUnread,
        }
    }
}
