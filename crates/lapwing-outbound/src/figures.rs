//! What is counted of one downstream since the start.

use lapwing_metrics::DurationHistogram;

use crate::call::{CallEnd, EndedCall};
use crate::name::CallName;
use crate::unread::Unread;

/// What becomes of the times in which the server waited for a downstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitJoin {
    /// Joined to the request whose trace the call named.
    Trace,
    /// Joined to the only request that was in flight when it began.
    Alone,
    /// Joined to none: several requests were in flight.
    Among,
    /// Joined to none: no request was in flight.
    Outside,
    /// Joined to none: its request was not found, or had ended.
    Unmatched,
    /// Joined to none: too many waited to be joined.
    Shed,
}

impl WaitJoin {
    /// All of them.
    pub(crate) const ALL: [Self; 6] = [Self::Trace, Self::Alone, Self::Among, Self::Outside, Self::Unmatched, Self::Shed];

    /// The name on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Alone => "alone",
            Self::Among => "among",
            Self::Outside => "outside",
            Self::Unmatched => "unmatched",
            Self::Shed => "shed",
        }
    }
}

/// How often something lasted, and how long all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lasted {
    pub(crate) count: u64,
    pub(crate) ns: u64,
}

/// The calls of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedCalls {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) cut: u64,
}

/// Everything that is counted of one downstream.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) connections: u64,
    pub(crate) connections_open: u64,
    pub(crate) connects_failed: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    /// By the places of names.
    pub(crate) calls: Vec<NamedCalls>,
    pub(crate) keys: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// Of calls whose time says something of the downstream.
    pub(crate) durations: DurationHistogram,
    unread: [u64; Unread::ALL.len()],
    waits: [Lasted; WaitJoin::ALL.len()],
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            connections: 0,
            connections_open: 0,
            connects_failed: 0,
            bytes_sent: 0,
            bytes_received: 0,
            calls: vec![NamedCalls::default(); CallName::count()],
            keys: 0,
            hits: 0,
            misses: 0,
            durations: DurationHistogram::default(),
            unread: [0; Unread::ALL.len()],
            waits: [Lasted::default(); WaitJoin::ALL.len()],
        }
    }
}

impl Figures {
    /// Counts a call that has ended.
    pub(crate) fn count(&mut self, call: &EndedCall) {
        let named = &mut self.calls[call.name.index()];
        named.calls += 1;
        named.failed += u64::from(call.end == CallEnd::Failed);
        named.cut += u64::from(call.end == CallEnd::Cut);
        self.keys += call.keys;
        self.hits += call.lookups.hits;
        self.misses += call.lookups.misses;
        if let Some(ns) = call.took_ns {
            self.durations.record(ns);
        }
    }

    /// Counts a connection that is no longer read.
    pub(crate) fn count_unread(&mut self, why: Unread) {
        self.unread[why as usize] += 1;
    }

    /// Counts a time in which the server waited.
    pub(crate) fn count_wait(&mut self, join: WaitJoin, ns: u64) {
        let lasted = &mut self.waits[join as usize];
        lasted.count += 1;
        lasted.ns = lasted.ns.saturating_add(ns);
    }

    /// The calls of each name that occurred.
    pub(crate) fn named(&self) -> impl Iterator<Item = (CallName, NamedCalls)> {
        CallName::all().zip(self.calls.iter().copied()).filter(|(_, named)| named.calls > 0)
    }

    /// The same, with `always` whether it occurred or not.
    pub(crate) fn named_and(&self, always: CallName) -> impl Iterator<Item = (CallName, NamedCalls)> {
        CallName::all().zip(self.calls.iter().copied()).filter(move |(name, named)| named.calls > 0 || *name == always)
    }

    /// Connections that are no longer read, by reason.
    pub(crate) fn unread(&self) -> impl Iterator<Item = (Unread, u64)> {
        Unread::ALL.into_iter().zip(self.unread)
    }

    /// The times in which the server waited, by what became of them.
    pub(crate) fn waits(&self) -> impl Iterator<Item = (WaitJoin, Lasted)> {
        WaitJoin::ALL.into_iter().zip(self.waits)
    }
}
