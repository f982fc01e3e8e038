//! The bounds of the receivers' connections.

use std::sync::Arc;
use std::time::Duration;

use lapwing_metrics::Counters;
use lapwing_net::{AcceptLimits, ServerLimits};

/// The time for a connection's first request. Exporters over HTTP connect when they have something to send.
const FIRST_REQUEST_HTTP: Duration = Duration::from_secs(10);
/// Exporters over gRPC connect when they start, and export metrics once a minute.
const FIRST_REQUEST_GRPC: Duration = Duration::from_secs(90);
/// A connection without a request is closed after this time: well above the 60 s between two exports of metrics.
const IDLE: Duration = Duration::from_secs(300);
/// The time for an answer to be read; answers are small.
const WRITE: Duration = Duration::from_secs(10);
/// The pause after a failed accept.
const ACCEPT_BACKOFF: Duration = Duration::from_secs(1);
/// How long open requests may take after the stop.
const DRAIN: Duration = Duration::from_secs(2);
/// HTTP/2: requests at once on one gRPC connection.
const MAX_STREAMS: u32 = 32;

/// The HTTP receiver's. Connections that it closes are counted in `counters`.
pub(crate) fn http(counters: &Arc<Counters>) -> ServerLimits {
    ServerLimits {
        accept: AcceptLimits { max_connections: Some(lapwing_net::control_connections()), backoff: ACCEPT_BACKOFF },
        grace: DRAIN,
        counters: Some(Arc::clone(counters)),
        first_request_timeout: Some(FIRST_REQUEST_HTTP),
        idle_timeout: Some(IDLE),
        write_timeout: Some(WRITE),
        tells_peer: true,
        max_streams: Some(MAX_STREAMS),
        ..ServerLimits::new("otlp_http")
    }
}

/// The gRPC receiver's. It speaks HTTP/1.1 too, to say to an exporter of OTLP over HTTP that this is the wrong port.
pub(crate) fn grpc(counters: &Arc<Counters>) -> ServerLimits {
    let first_request_timeout = Some(FIRST_REQUEST_GRPC);
    ServerLimits { name: "otlp_grpc", first_request_timeout, ..http(counters) }
}
