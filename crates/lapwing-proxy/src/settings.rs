//! The settings of a client's connection: loaded when it is accepted, and kept until it is closed.

use std::sync::Arc;

use super::config::{Config, TraceSampling};
use super::exchange::Observer;
use super::layer::shadow::ShadowTap;
use lapwing_ledger::{SpanId, TraceId, TraceMark};
use lapwing_protocol::trace_context::ContextPolicy;

/// The settings of a client's connection, from accept to close.
#[derive(Clone)]
pub struct ConnectionSettings {
    /// Limits and timeouts.
    pub config: Config,
    /// Whether responses carry `Server-Timing`: the top-level key `respond_server_timing`.
    pub respond_server_timing: bool,
    /// How spans are created.
    pub tracing: Tracing,
    /// Whether requests are copied, or are copies themselves.
    pub shadow: ShadowRole,
    /// Sees every request.
    pub observer: Arc<dyn Observer>,
}

/// What a stack has to do with shadow-serving.
#[derive(Clone, Debug, Default)]
pub enum ShadowRole {
    /// Nothing.
    #[default]
    Off,
    /// It carries clients' requests, of which sampled ones are copied.
    Tap(Arc<ShadowTap>),
    /// It carries the copies.
    Copies,
}

/// How spans are created.
#[derive(Clone)]
pub struct Tracing {
    /// Whether spans are created, and whether sampling is forced.
    pub sampling: TraceSampling,
    /// The mark of traces that are started here.
    pub mark: TraceMark,
    /// Is called with every trace of a client that is continued here; `None` if no spans are forwarded.
    pub continued: Option<Arc<dyn Fn(ContinuedTrace) + Send + Sync>>,
    /// Which contexts are written beside `traceparent`.
    pub contexts: ContextPolicy,
}

/// A client's trace in which Lapwing's span has taken the place of the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContinuedTrace {
    /// The trace.
    pub trace: TraceId,
    /// The client's span, or zero.
    pub parent: SpanId,
    /// Lapwing's span, which the upstream takes for its parent.
    pub span: SpanId,
    /// The span that Lapwing sends itself; another one where this is about a context beside `traceparent`.
    pub own: SpanId,
    /// Whether the trace is sampled only because sampling is forced.
    pub is_forced: bool,
}

impl std::fmt::Debug for Tracing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracing").field("sampling", &self.sampling).finish_non_exhaustive()
    }
}
