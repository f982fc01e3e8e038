//! The bounds of the receivers' connections.

use std::time::Duration;

use crate::net::{AcceptLimits, ServerLimits};

/// Connections at once on one listener; further ones wait in its backlog.
const MAX_CONNECTIONS: usize = 64;
/// A connection from which nothing comes for this long is closed: well above the 60 s between two exports of metrics.
const IDLE: Duration = Duration::from_secs(300);
/// The pause after a failed accept.
const ACCEPT_BACKOFF: Duration = Duration::from_secs(1);
/// How long open requests may take after the stop.
const DRAIN: Duration = Duration::from_secs(2);
/// HTTP/2: requests at once on one gRPC connection.
const MAX_STREAMS: u32 = 32;

/// The HTTP receiver's.
pub(super) fn http() -> ServerLimits {
    ServerLimits {
        accept: AcceptLimits { max_connections: Some(MAX_CONNECTIONS), backoff: ACCEPT_BACKOFF },
        grace: DRAIN,
        idle_timeout: Some(IDLE),
        tells_peer: true,
        ..ServerLimits::new("otlp_http")
    }
}

/// The gRPC receiver's.
pub(super) fn grpc() -> ServerLimits {
    ServerLimits { name: "otlp_grpc", http2_only: true, max_streams: Some(MAX_STREAMS), ..http() }
}
