//! Creates Lapwing's span of the request and writes `traceparent`: continues the client's trace, or starts one.
//!
//! Stage: validation. The client's sampling decision is kept, unless `trace_sampling: force`. A trace that is started here
//! is sampled and marked as Lapwing's, so that the forwarder knows which of its spans the user's own sampler would have taken.
//!
//! A client may pass its trace in other fields too (B3 and its like). `traceparent` counts first, then the others in the order of
//! [`ContextKind::ALL`]. The upstream may read any of them: each is written with Lapwing's span in the trace that it named, or passed
//! unchanged, and then the ledger has it. So the upstream's spans are joined whichever it continues.

use std::sync::Arc;
use std::task::{Context, Poll};

use arrayvec::ArrayVec;
use http::{HeaderMap, HeaderValue};
use tower::Service;

use crate::body::TrackedRequest;
use crate::config::TraceSampling;
use crate::in_flight::RequestAccount;
use lapwing_ledger::{Ledger, PassedContext, SpanId, TraceContext, TraceId, TraceMark};
use lapwing_protocol::trace_context::{
    self, ContextPolicy, PresentContexts, SentContext, SentContexts, TRACEPARENT, TRACESTATE, WrittenContext,
    is_valid_tracestate, read_w3c,
};
use lapwing_settings::{ContextKind, ContextSet};

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

/// Applies [`Trace`].
#[derive(Clone, Debug)]
pub(crate) struct TraceLayer(Tracing);

/// Returns the layer for `tracing`.
pub(crate) const fn layer(tracing: Tracing) -> TraceLayer {
    TraceLayer(tracing)
}

impl<S> tower::Layer<S> for TraceLayer {
    type Service = Trace<S>;

    fn layer(&self, inner: S) -> Trace<S> {
        Trace { inner, tracing: self.0.clone() }
    }
}

/// Creates a span for each request.
#[derive(Clone, Debug)]
pub(crate) struct Trace<S> {
    inner: S,
    tracing: Tracing,
}

impl<S, B, A> Service<TrackedRequest<B, A>> for Trace<S>
where
    A: AsRef<RequestAccount>,
    S: Service<TrackedRequest<B, A>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut tracked: TrackedRequest<B, A>) -> S::Future {
        if self.tracing.sampling != TraceSampling::Off {
            let TrackedRequest { request, in_flight } = &mut tracked;
            A::as_ref(in_flight).write_ledger(|ledger| trace(&self.tracing, request.headers_mut(), ledger));
        }
        self.inner.call(tracked)
    }
}

/// A client's context, whichever field it came in.
struct ClientContext {
    trace: TraceId,
    span: SpanId,
    /// The flags of `traceparent`, without the sampled bit.
    flags: u8,
    /// The client's decision; `None` if it leaves it to others.
    sampled: Option<bool>,
}

impl From<TraceContext> for ClientContext {
    fn from(sent: TraceContext) -> Self {
        let flags = sent.flags & !TraceContext::SAMPLED;
        Self { trace: sent.trace, span: sent.span, flags, sampled: Some(sent.is_sampled()) }
    }
}

impl From<&SentContext> for ClientContext {
    fn from(sent: &SentContext) -> Self {
        Self { trace: sent.trace, span: sent.span, flags: 0, sampled: sent.sampled }
    }
}

/// Creates the span, and writes it into `traceparent`, the other contexts and the ledger.
fn trace(tracing: &Tracing, headers: &mut HeaderMap, ledger: &mut Ledger) {
    let present = PresentContexts::of(headers);
    let w3c = if present.w3c { take_w3c(headers) } else { None };
    let sent = if present.others { SentContexts::read(headers) } else { SentContexts::default() };
    let context = match w3c.map(ClientContext::from).or_else(|| sent.contexts.first().map(ClientContext::from)) {
        Some(theirs) => {
            ledger.parent = theirs.span;
            let (sampled, forced) = decide(tracing, theirs.sampled);
            ledger.ours |= forced;
            let span = SpanId::random();
            tell_forwarder(
                tracing,
                ContinuedTrace { trace: theirs.trace, parent: theirs.span, span, own: span, is_forced: forced },
            );
            TraceContext { trace: theirs.trace, span, flags: theirs.flags | u8::from(sampled) }
        }
        None => {
            let is_denied = sent.is_denied && tracing.sampling != TraceSampling::Force;
            ledger.ours = true;
            let trace = tracing.mark.make();
            TraceContext { trace, span: tracing.mark.root_span(trace), flags: if is_denied { 0 } else { TraceContext::SAMPLED } }
        }
    };
    (ledger.trace, ledger.span, ledger.traced) = (context.trace, context.span, context.is_sampled());
    if let Ok(mut value) = HeaderValue::from_bytes(&context.to_field()) {
        // no two are the same: HTTP/2 need not remember it for its header compression, at either end
        value.set_sensitive(true);
        headers.insert(TRACEPARENT, value);
    }
    let written = tracing.contexts.written(sent.kinds());
    if !written.is_empty() || !sent.contexts.is_empty() {
        pass_others(tracing, headers, ledger, &sent, written);
    }
}

/// Reads the client's `traceparent`. A trace state that is not valid, or that is without its parent, is removed: it means nothing
/// (W3C Trace Context, 3.3 and 3.4).
fn take_w3c(headers: &mut HeaderMap) -> Option<TraceContext> {
    let sent = read_w3c(headers);
    if headers.contains_key(&TRACESTATE) && (sent.is_none() || !is_valid_tracestate(headers)) {
        headers.remove(&TRACESTATE);
    }
    sent
}

/// Whether a trace is sampled of which the client decided `theirs`, and whether it is only because Lapwing wants it.
fn decide(tracing: &Tracing, theirs: Option<bool>) -> (bool, bool) {
    let is_wanted = theirs.is_none() || tracing.sampling == TraceSampling::Force;
    let forced = is_wanted && theirs != Some(true);
    (forced || theirs == Some(true), forced)
}

fn tell_forwarder(tracing: &Tracing, trace: ContinuedTrace) {
    if let Some(continued) = &tracing.continued {
        continued(trace);
    }
}

/// Writes the contexts of the kinds `written`, and notes in the ledger what else the upstream may continue. Each has a span id of its
/// own, which tells which of them was continued.
#[cold]
fn pass_others(tracing: &Tracing, headers: &mut HeaderMap, ledger: &mut Ledger, sent: &SentContexts, written: ContextSet) {
    let own_parent = Some(ledger.parent).filter(|parent| *parent != SpanId::default());
    let (own_trace, is_sampled) = (ledger.trace, ledger.traced);
    let mut passed = ArrayVec::new();
    for kind in ContextKind::ALL {
        let bits = ContextSet::of(&[kind]).bits();
        let came = sent.contexts.iter().find(|sent| sent.kind == kind);
        if !written.has(kind) {
            if let Some(came) = came {
                ledger.traced |= came.sampled != Some(false);
                passed.push(PassedContext { trace: came.trace, span: came.span, is_clients: true, kind: bits });
            }
            continue;
        }
        let span = SpanId::random();
        // where it names another trace or another span, who reads it continues that one, as without Lapwing
        let other = came.filter(|came| (came.trace, Some(came.span)) != (own_trace, own_parent));
        let (context, own, is_forced) = match other {
            Some(other) => {
                let (sampled, forced) = decide(tracing, other.sampled);
                (WrittenContext { trace: other.trace, span, parent: Some(other.span), sampled }, span, forced)
            }
            None => (WrittenContext { trace: own_trace, span, parent: own_parent, sampled: is_sampled }, ledger.span, false),
        };
        ledger.traced |= context.sampled;
        let parent = context.parent.unwrap_or_default();
        tell_forwarder(tracing, ContinuedTrace { trace: context.trace, parent, span, own, is_forced });
        passed.push(PassedContext { trace: context.trace, span, is_clients: false, kind: bits });
        trace_context::write(headers, kind, &context);
    }
    ledger.passed_contexts = (!passed.is_empty()).then(|| Box::new(passed));
}

#[cfg(test)]
mod tests;
