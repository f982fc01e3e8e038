//! The trace contexts in a request's head: W3C's `traceparent` and `tracestate`, and those of B3, Jaeger, X-Ray and Datadog.
//!
//! A context counts if it has a trace and a span, and each of its fields comes once. Ids of 64 bits are trace ids whose left half is
//! zero, as OpenTelemetry reads them. What is no context is left as it is.

mod b3;
mod datadog;
mod fields;
mod jaeger;
mod tracestate;
mod xray;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use arrayvec::ArrayVec;
use http::{HeaderMap, HeaderName};

use lapwing_ledger::{SpanId, TraceContext, TraceId};
use lapwing_settings::{ContextKind, ContextSet, TraceContexts};

pub use fields::WrittenContext;
use fields::one;
pub use tracestate::is_valid_tracestate;

/// The field of W3C's context.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The field of what vendors add to it.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Every field of every context: what is about one request's trace, and means another one in a copy of it.
pub const FIELDS: [HeaderName; 15] = [
    TRACEPARENT,
    TRACESTATE,
    b3::SINGLE,
    b3::TRACE,
    b3::SPAN,
    b3::PARENT,
    b3::SAMPLED,
    b3::FLAGS,
    jaeger::FIELD,
    xray::FIELD,
    datadog::TRACE,
    datadog::PARENT,
    datadog::PRIORITY,
    datadog::ORIGIN,
    datadog::TAGS,
];

/// Those that are replaced where the client sent them. Datadog's is passed: who reads it sends its spans to an agent, not to
/// Lapwing, and there the client's span must stay their parent.
const REPLACED: ContextSet = ContextSet::of(&[ContextKind::B3, ContextKind::B3Multi, ContextKind::Jaeger, ContextKind::XRay]);

/// Which contexts a head may have, by the names of its fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresentContexts {
    /// W3C's.
    pub w3c: bool,
    /// Any other.
    pub others: bool,
}

impl PresentContexts {
    /// Passes once over the names: that costs less than to look one up.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        for name in headers.keys() {
            let name = name.as_str();
            if !matches!(name.as_bytes().first(), Some(b't' | b'b' | b'x' | b'u')) {
                continue;
            }
            match name {
                "traceparent" | "tracestate" => found.w3c = true,
                "b3" | "x-b3-traceid" | "x-b3-sampled" | "uber-trace-id" | "x-amzn-trace-id" | "x-datadog-trace-id" => {
                    found.others = true;
                }
                _ => {}
            }
        }
        found
    }
}

/// A context that a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentContext {
    /// How.
    pub kind: ContextKind,
    /// The trace.
    pub trace: TraceId,
    /// The client's span.
    pub span: SpanId,
    /// Its decision; `None` if it leaves it to others.
    pub sampled: Option<bool>,
}

/// The contexts, other than W3C's, that a client sent.
#[derive(Debug, Default)]
pub struct SentContexts {
    /// At most one of a kind, in the order of [`ContextKind::ALL`].
    pub contexts: ArrayVec<SentContext, 5>,
    /// Whether it decided against sampling without naming a trace: `b3: 0`.
    pub is_denied: bool,
}

impl SentContexts {
    /// Reads those of a head.
    #[must_use]
    pub fn read(headers: &HeaderMap) -> Self {
        let contexts: ArrayVec<SentContext, 5> = ContextKind::ALL.into_iter().filter_map(|kind| read(headers, kind)).collect();
        let is_denied = contexts.is_empty() && b3::is_denied(headers);
        Self { contexts, is_denied }
    }

    /// Their kinds.
    #[must_use]
    pub fn kinds(&self) -> ContextSet {
        self.contexts.iter().fold(ContextSet::NONE, |set, sent| set.or(ContextSet::of(&[sent.kind])))
    }
}

/// Reads W3C's context of a head. What the specification refuses is `None`: then a new trace begins, and `tracestate` means nothing.
#[must_use]
pub fn read_w3c(headers: &HeaderMap) -> Option<TraceContext> {
    TraceContext::parse(one(headers, &TRACEPARENT)?)
}

fn read(headers: &HeaderMap, kind: ContextKind) -> Option<SentContext> {
    let (trace, span, sampled) = match kind {
        ContextKind::B3 => b3::read_single(headers)?,
        ContextKind::B3Multi => b3::read_multi(headers)?,
        ContextKind::Jaeger => jaeger::read(headers)?,
        ContextKind::XRay => xray::read(headers)?,
        ContextKind::Datadog => datadog::read(headers)?,
    };
    Some(SentContext { kind, trace, span, sampled })
}

/// Writes `context` as `kind`, in place of the client's if there is one.
pub fn write(headers: &mut HeaderMap, kind: ContextKind, context: &WrittenContext) {
    match kind {
        ContextKind::B3 => b3::write_single(headers, context),
        ContextKind::B3Multi => b3::write_multi(headers, context),
        ContextKind::Jaeger => jaeger::write(headers, context),
        ContextKind::XRay => xray::write(headers, context),
        ContextKind::Datadog => datadog::write(headers, context),
    }
}

/// Which contexts are written in addition to `traceparent`. Clones share what is learnt.
#[derive(Clone, Debug, Default)]
pub struct ContextPolicy {
    setting: TraceContexts,
    learnt: Arc<LearntContexts>,
}

/// The contexts that the upstream was found to continue, in addition to those that clients send.
#[derive(Debug, Default)]
pub struct LearntContexts(AtomicU8);

impl LearntContexts {
    /// They are these from now on.
    pub fn set(&self, set: ContextSet) {
        self.0.store(set.bits(), Relaxed);
    }

    /// These.
    #[must_use]
    pub fn get(&self) -> ContextSet {
        ContextSet::of_bits(self.0.load(Relaxed))
    }
}

impl ContextPolicy {
    /// The policy of a setting.
    #[must_use]
    pub const fn new(setting: TraceContexts, learnt: Arc<LearntContexts>) -> Self {
        Self { setting, learnt }
    }

    /// Those that are written into a request in which the client sent `sent`.
    #[must_use]
    pub fn written(&self, sent: ContextSet) -> ContextSet {
        match self.setting {
            TraceContexts::Auto => sent.and(REPLACED).or(self.learnt.get()),
            TraceContexts::Only(set) => set,
        }
    }
}

#[cfg(test)]
mod tests;
