//! The bounds of the pending join, in nanoseconds and counts.

use super::expect::SpanExpectation;

/// How spans are joined to exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinSettings {
    /// How long a closed ledger waits for spans at most; default 6 s, slightly more than the usual 5 s delay of exporters.
    pub grace_ns: u64,
    /// How long no span may have arrived, once the upstream's server span is there (or any span with others below it); default
    /// 250 ms.
    pub quiet_ns: u64,
    /// How many closed ledgers may wait; beyond that the oldest is merged with the spans it has. About 1 KB each, and 0.1 KB
    /// per span; default 8192.
    pub max_pending: usize,
    /// How many spans one exchange keeps; further spans are dropped and counted. Default 128.
    pub max_spans_per_exchange: usize,
    /// How many spans without an exchange are held; beyond that the oldest trace is dropped. About 700 bytes each; default 8192.
    pub max_orphan_spans: usize,
    /// How long a span without an exchange is held. It may arrive long before a slow request ends. Default 60 s.
    pub orphan_ns: u64,
    /// Whether ledgers wait at all.
    pub expect: SpanExpectation,
}

impl Default for JoinSettings {
    fn default() -> Self {
        Self {
            grace_ns: 6_000_000_000,
            quiet_ns: 250_000_000,
            max_pending: 8192,
            max_spans_per_exchange: 128,
            max_orphan_spans: 8192,
            orphan_ns: 60_000_000_000,
            expect: SpanExpectation::Auto,
        }
    }
}
