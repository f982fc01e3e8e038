//! The receivers and the spans that they pass on. This file has the requests that the tests send, and the receivers under test.

mod grpc;
mod http;
mod servers;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use tokio::sync::mpsc;

use super::{ExportHandler, ForwardQueue};
use crate::{IncomingSpan, Rules};
use lapwing_ledger::TraceId;
use lapwing_metrics::{Counter, Counters};

/// The capture of a real Triton.
pub(crate) fn triton() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/otlp/triton_2.51_ensemble_otlp.json");
    std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

pub(crate) fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

/// A span of `trace` with id `id`, from 1000 to 2000 ns.
pub(crate) fn span(trace: TraceId, id: u8, name: &str) -> Span {
    Span {
        trace_id: trace.0.to_vec(),
        span_id: vec![id; 8],
        parent_span_id: vec![99; 8],
        name: name.to_owned(),
        start_time_unix_nano: 1000,
        end_time_unix_nano: 2000,
        ..Span::default()
    }
}

/// One request by the service `svc`, instance `a`.
pub(crate) fn request(spans: Vec<Span>) -> ExportTraceServiceRequest {
    let attributes = vec![text("service.name", "svc"), text("service.instance.id", "a")];
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_spans: vec![ScopeSpans { spans, ..ScopeSpans::default() }],
            ..ResourceSpans::default()
        }],
    }
}

/// An handler over a channel of `capacity`, and what to look at it with.
pub(crate) fn handler(
    capacity: usize,
    forward: Option<ForwardQueue>,
    counters: &Arc<Counters>,
) -> (ExportHandler, mpsc::Receiver<Vec<IncomingSpan>>) {
    let (sender, receiver) = mpsc::channel(capacity);
    (ExportHandler::new(Arc::new(Rules::default()), Arc::clone(counters), sender, forward), receiver)
}

/// A listener on a free port.
pub(crate) fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Forwarded and lost.
pub(crate) fn fates(counters: &Counters) -> (u64, u64) {
    (counters.get(Counter::OtlpForwarded), counters.get(Counter::OtlpForwardLost))
}

pub(crate) fn gzip(body: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}
