//! A span as the OTLP receiver passes it on: decoded, mapped to a stage, not yet joined.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use arrayvec::ArrayVec;
use rustc_hash::FxBuildHasher;

use lapwing_ledger::{Phase, SpanId, SpanNote, Stage, TraceId};
use lapwing_protocol::servers::ServerReport;

/// OTLP's span kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpanKind {
    /// Not specified; treated as internal.
    #[default]
    Unspecified,
    /// Inside one service.
    Internal,
    /// Serves a remote request.
    Server,
    /// Makes a remote request.
    Client,
    /// Sends a message.
    Producer,
    /// Receives a message.
    Consumer,
}

/// The process that sent a span: a hash of what identifies it; zero where nothing does. The lowest bit says that only the
/// connection does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessId(u64);

impl ProcessId {
    /// The process with this `identity`.
    #[must_use]
    pub fn of(identity: &impl Hash) -> Self {
        Self((FxBuildHasher.hash_one(identity) & !1).max(2))
    }

    /// The process whose spans come by this connection, which may be another one for its next spans.
    #[must_use]
    pub fn of_connection(peer: &impl Hash) -> Self {
        Self(FxBuildHasher.hash_one(peer) | 1)
    }

    /// A number for the process, if its resource identifies it.
    #[must_use]
    pub const fn told(self) -> Option<u64> {
        if self.0 == 0 || self.0 & 1 == 1 { None } else { Some(self.0) }
    }

    /// This one, else `other` if it is unknown.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        if self.0 == 0 { other } else { self }
    }
}

/// One received span.
#[derive(Clone, Debug)]
pub struct IncomingSpan {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// Its parent; `None` for a root span.
    pub parent: Option<SpanId>,
    /// The name as sent.
    pub name: Box<str>,
    /// The kind as sent.
    pub kind: SpanKind,
    /// The stage that the rules map its name and attributes to.
    pub stage: Option<Stage>,
    /// The phase of the stage, if it has one.
    pub phase: Option<Phase>,
    /// Whether it is a call to a store (`db.system` or `db.system.name` is set).
    pub is_store_call: bool,
    /// Start by the upstream's wall clock, nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// End by the upstream's wall clock.
    pub end_unix_ns: u64,
    /// The resource's `service.name` and `service.instance.id`, joined by a slash: the sender.
    pub service: Arc<str>,
    /// The process that sent it, by the resource's `service.instance.id`, `host.name` and `process.pid`, else by the exporter's
    /// connection.
    pub process: ProcessId,
    /// What it says that a feature cache answered.
    pub cache: CacheLookups,
    /// What else it reports, if a model server sent it.
    pub server: Option<Box<ServerSpan>>,
    /// By how much it was moved, with all spans of its process.
    pub shifted_ns: i64,
    /// That it was for several requests, if it was. Boxed, for few were, and spans are passed on by value.
    pub shared: Option<Box<SharedSpan>>,
}

/// A span that did a stage of several requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedSpan {
    /// How many requests it was for.
    pub by: u32,
    /// The span of which this one is a copy in another request, to which that span links.
    pub copy_of: Option<SpanId>,
}

/// What a model server's span reports in addition to its duration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerSpan {
    /// The server, amounts of work, and token timing.
    pub report: ServerReport,
    /// Pieces of its time.
    pub pieces: ArrayVec<SpanPiece, 6>,
    /// Whether its pieces are durations that were placed without known times. They are dropped if spans below report the same
    /// stage.
    pub is_laid: bool,
    /// The time from which it waits for the first span below it that begins to work.
    pub waits_from_unix_ns: Option<u64>,
    /// The time at which it begins to work, which ends the wait of the nearest waiting span above it.
    pub begins_unix_ns: Option<u64>,
    /// The stage that the forward time of its model counts as, by the model's name or a rule.
    pub role: Option<Stage>,
    /// Whether it ends some time after its answer has gone on, so that its end says nothing of a clock.
    pub outlasts_answer: bool,
}

/// A piece of a span's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanPiece {
    /// Its name.
    pub name: &'static str,
    /// The stage.
    pub stage: Stage,
    /// The phase of the stage, if it has one.
    pub phase: Option<Phase>,
    /// Start.
    pub start_unix_ns: u64,
    /// End.
    pub end_unix_ns: u64,
    /// Whether it takes the role of the span above it, if that span has one.
    pub takes_role: bool,
}

/// How many features a cache had, and how many it had to fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheLookups {
    /// Features that it had.
    pub hits: u32,
    /// Features that it had to fetch.
    pub misses: u32,
}

impl IncomingSpan {
    /// The span as it was sent, if this one is its copy; else this one.
    #[must_use]
    pub fn origin(&self) -> SpanId {
        self.shared.as_ref().and_then(|shared| shared.copy_of).unwrap_or(self.span)
    }

    /// What is reported of it in addition to its time.
    #[must_use]
    pub fn note(&self) -> SpanNote {
        SpanNote { shifted_ns: self.shifted_ns, shared_by: self.shared.as_ref().map_or(0, |shared| shared.by) }
    }
}
