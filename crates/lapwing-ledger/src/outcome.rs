//! How a request ended, and what kind of exchange it was.

use schemars::JsonSchema;
use serde::Serialize;

/// How one request ended. Every request ends in exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The upstream answered below 400 (gRPC: status 0), its body does not say that it failed, and the client took all of it.
    Ok,
    /// The upstream answered 4xx, or a gRPC status that blames the caller.
    ClientError,
    /// The upstream answered 5xx, or another non-zero gRPC status.
    ServerError,
    /// The upstream answered below 400 (gRPC: status 0) and its body says that it failed.
    BodyError,
    /// Lapwing refused the client's request because it was malformed, too large or stalled (400, 408, 413, 431).
    Rejected,
    /// Lapwing shed the request (503).
    Shed,
    /// The upstream could not be reached (502).
    Unreachable,
    /// The upstream broke the connection or sent an invalid response (502, or a response cut short), or the code that served the
    /// request panicked.
    Broken,
    /// The upstream was too slow (504, or a response that stalled).
    TimedOut,
    /// The client closed the connection first.
    Cancelled,
}

impl Outcome {
    /// How many outcomes there are.
    pub const COUNT: usize = 10;

    /// Every outcome.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Ok,
        Self::ClientError,
        Self::ServerError,
        Self::BodyError,
        Self::Rejected,
        Self::Shed,
        Self::Unreachable,
        Self::Broken,
        Self::TimedOut,
        Self::Cancelled,
    ];

    /// The name on every surface, in snake case.
    #[must_use]
    #[inline]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ClientError => "client_error",
            Self::ServerError => "server_error",
            Self::BodyError => "body_error",
            Self::Rejected => "rejected",
            Self::Shed => "shed",
            Self::Unreachable => "unreachable",
            Self::Broken => "broken",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
        }
    }

    /// The outcome of a call by its gRPC status: 0 is OK; codes that blame the caller are client errors; all others are server errors.
    #[must_use]
    #[inline]
    pub const fn of_grpc(code: u32) -> Self {
        match code {
            0 => Self::Ok,
            1 | 3 | 5 | 6 | 7 | 9 | 11 | 16 => Self::ClientError,
            _ => Self::ServerError,
        }
    }

    /// The place in arrays by outcome, `0..Outcome::COUNT`.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether it counts in `errors`: everything but [`Self::Ok`] and [`Self::Cancelled`].
    #[must_use]
    #[inline]
    pub const fn is_error(self) -> bool {
        !matches!(self, Self::Ok | Self::Cancelled)
    }

    /// Whether the upstream answered in full, so that the duration counts as a latency. An answer whose body says that it failed
    /// does not count: an error line is short, however long a good answer takes.
    #[must_use]
    #[inline]
    pub const fn is_answered(self) -> bool {
        matches!(self, Self::Ok | Self::ClientError | Self::ServerError)
    }
}

/// The kind of an exchange. The two kinds are never mixed in one histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExchangeKind {
    /// A request and its response.
    #[default]
    Request,
    /// A long-lived stream: an upgraded connection, or a gRPC call that was answered before its request ended.
    Stream,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_agree_with_the_list() {
        for (i, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome.index(), i);
        }
    }
}
