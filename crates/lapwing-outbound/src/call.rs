//! What readers show of a connection: calls that ended, and the times at which somebody waited for an answer.

use crate::name::{CallName, Found};
use crate::unread::Unread;
use lapwing_ledger::{SpanId, Stamp, TraceId};

/// A call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedCall {
    pub(crate) name: CallName,
    /// How long it took; `None` if that says nothing of the store.
    pub(crate) took_ns: Option<u64>,
    pub(crate) end: CallEnd,
    pub(crate) keys: u64,
    pub(crate) lookups: CallLookups,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// With an answer.
    Answered,
    /// With an answer that says that it failed.
    Failed,
    /// Its connection ended first.
    Cut,
}

/// How much of what was asked for was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallLookups {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

impl CallLookups {
    /// What an answer shows of a call whose answers show it so.
    pub(crate) const fn of(found: Found, is_null: bool, elements: u64, nulls: u64) -> Self {
        match (found, is_null) {
            (Found::Unknown, _) => Self { hits: 0, misses: 0 },
            (_, true) => Self { hits: 0, misses: 1 },
            (Found::Value, false) => Self { hits: 1, misses: 0 },
            (Found::Whole, false) => Self { hits: (elements > 0) as u64, misses: (elements == 0) as u64 },
            (Found::Each, false) => Self { hits: elements.saturating_sub(nulls), misses: nulls },
        }
    }
}

/// A time in which a client of the store waited for an answer: from the first byte of what it asked to the last of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) began: Stamp,
    pub(crate) ended: Stamp,
    pub(crate) asked: Asked,
}

/// What is known of who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The trace that the call names, and the span in it.
    Trace(TraceId, SpanId),
    /// Exactly one request was in flight when it asked.
    Alone,
    /// Several were.
    Among,
    /// None was.
    Outside,
}

impl Asked {
    /// What the number of requests in flight says.
    pub(crate) const fn of(in_flight: u64) -> Self {
        match in_flight {
            0 => Self::Outside,
            1 => Self::Alone,
            _ => Self::Among,
        }
    }

    /// What holds where both do.
    pub(crate) fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Among }
    }
}

/// What gets what a reader shows.
pub(crate) trait CallSink {
    /// A call has ended.
    fn ended(&mut self, call: EndedCall);
    /// A time is over in which a client waited.
    fn waited(&mut self, wait: Wait);
}

/// Reads both directions of a connection, after the bytes have gone on.
pub(crate) trait CallReader {
    /// What the client sent was read at `now`, while so many requests were in flight.
    fn client(&mut self, bytes: &[u8], now: Stamp, in_flight: u64, sink: &mut impl CallSink) -> Result<(), Unread>;
    /// What the server sent was handed to the client at `now`.
    fn server(&mut self, bytes: &[u8], now: Stamp, sink: &mut impl CallSink) -> Result<(), Unread>;
    /// The connection has ended.
    fn end(&mut self, now: Stamp, sink: &mut impl CallSink);
    /// Whether an answer is waited for.
    fn is_waiting(&self) -> bool;
}

/// What a reader shows, for the tests of all of them.
#[cfg(test)]
pub(crate) mod shown {
    use super::{CallSink, EndedCall, Wait};
    use lapwing_ledger::Stamp;

    #[derive(Debug, Default, PartialEq)]
    pub(crate) struct Shown {
        pub(crate) calls: Vec<EndedCall>,
        pub(crate) waits: Vec<Wait>,
    }

    impl CallSink for Shown {
        fn ended(&mut self, call: EndedCall) {
            self.calls.push(call);
        }

        fn waited(&mut self, wait: Wait) {
            self.waits.push(wait);
        }
    }

    pub(crate) fn at(ns: u64) -> Stamp {
        Stamp::default().plus(ns)
    }
}
