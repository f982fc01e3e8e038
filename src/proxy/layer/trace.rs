//! Creates Lapwing's span of the request and writes `traceparent`: continues the client's trace, or starts one.
//!
//! Stage: validation. The client's sampling decision is kept, unless `trace_sampling: force`. A trace that is started here
//! is sampled and marked as Lapwing's, so that the forwarder knows which of its spans the user's own sampler would have taken.

use std::task::{Context, Poll};

use http::{HeaderMap, HeaderName, HeaderValue};
use tower::Service;

use crate::ledger::{Ledger, SpanId, TraceContext};
use crate::proxy::config::TraceSampling;
use crate::proxy::exchange::TrackedRequest;
use crate::proxy::settings::{ContinuedTrace, Tracing};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

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

impl<S: Service<TrackedRequest>> Service<TrackedRequest> for Trace<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut tracked: TrackedRequest) -> S::Future {
        if self.tracing.sampling != TraceSampling::Off {
            let TrackedRequest { request, in_flight } = &mut tracked;
            in_flight.with(|ledger| trace(&self.tracing, request.headers_mut(), ledger));
        }
        self.inner.call(tracked)
    }
}

/// Creates the span, and writes it into `traceparent` and the ledger.
fn trace(tracing: &Tracing, headers: &mut HeaderMap, ledger: &mut Ledger) {
    // to pass over a few names costs less than to look two up
    let is_traced = headers.keys().any(|name| *name == TRACEPARENT || *name == TRACESTATE);
    let theirs = if is_traced { headers.get(&TRACEPARENT) } else { None };
    let context = match theirs.and_then(|field| TraceContext::parse(field.as_bytes())) {
        Some(theirs) => {
            ledger.parent = theirs.span;
            let forced = tracing.sampling == TraceSampling::Force && !theirs.is_sampled();
            let span = SpanId::random();
            ledger.ours |= forced;
            if let Some(continued) = &tracing.continued {
                continued(ContinuedTrace { trace: theirs.trace, parent: theirs.span, span, is_forced: forced });
            }
            TraceContext { span, flags: theirs.flags | u8::from(forced), ..theirs }
        }
        None => {
            // a trace state without its parent means nothing (W3C Trace Context, 3.4)
            if is_traced {
                headers.remove(&TRACESTATE);
            }
            ledger.ours = true;
            let trace = tracing.mark.make();
            TraceContext { trace, span: tracing.mark.root_span(trace), flags: TraceContext::SAMPLED }
        }
    };
    (ledger.trace, ledger.span, ledger.traced) = (context.trace, context.span, context.is_sampled());
    if let Ok(mut value) = HeaderValue::from_bytes(&context.to_field()) {
        // no two are the same: HTTP/2 need not remember it for its header compression, at either end
        value.set_sensitive(true);
        headers.insert(TRACEPARENT, value);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::ledger::{Stamp, TraceMark};

    fn apply(sampling: TraceSampling, field: Option<&str>) -> (HeaderMap, Ledger) {
        applied(&Tracing { sampling, mark: TraceMark::random(), continued: None }, field)
    }

    fn applied(tracing: &Tracing, field: Option<&str>) -> (HeaderMap, Ledger) {
        let mut headers = HeaderMap::new();
        if let Some(field) = field {
            headers.insert(TRACEPARENT, field.parse().unwrap());
        }
        let mut ledger = Ledger::open(Stamp::now(), 0);
        trace(tracing, &mut headers, &mut ledger);
        (headers, ledger)
    }

    #[test]
    fn the_forwarder_learns_which_span_stands_for_which_parent() {
        let learnt = Arc::new(Mutex::new(Vec::new()));
        let learns = learnt.clone();
        let tracing = Tracing {
            sampling: TraceSampling::Force,
            mark: TraceMark::random(),
            continued: Some(Arc::new(move |continued| learns.lock().push(continued))),
        };
        let (_, begun) = applied(&tracing, None);
        assert!(learnt.lock().is_empty(), "the span of a trace that begins here follows from the trace id");
        assert_eq!(begun.span, tracing.mark.root_span(begun.trace));
        for (flags, is_forced) in [("00", true), ("01", false)] {
            let field = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
            let (_, ledger) = applied(&tracing, Some(&field));
            let expected = ContinuedTrace { trace: ledger.trace, parent: ledger.parent, span: ledger.span, is_forced };
            assert_eq!(learnt.lock().pop(), Some(expected));
        }
    }

    #[test]
    fn a_trace_is_made_where_there_is_none() {
        let (headers, ledger) = apply(TraceSampling::Auto, None);
        let sent = TraceContext::parse(headers[&TRACEPARENT].as_bytes()).unwrap();
        assert_eq!((sent.trace, sent.span), (ledger.trace, ledger.span));
        assert!(sent.is_sampled() && ledger.traced && ledger.ours);
    }

    #[test]
    fn the_clients_decision_is_kept_unless_forced() {
        let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        let (headers, ledger) = apply(TraceSampling::Auto, Some(unsampled));
        let sent = TraceContext::parse(headers[&TRACEPARENT].as_bytes()).unwrap();
        assert!(!sent.is_sampled() && !ledger.traced && !ledger.ours);
        assert_eq!(sent.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(ledger.parent.to_string(), "00f067aa0ba902b7");
        assert_ne!(sent.span, ledger.parent);
        let (_, ledger) = apply(TraceSampling::Force, Some(unsampled));
        assert!(ledger.traced && ledger.ours);
    }
}
