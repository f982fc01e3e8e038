//! The listener: HTTP/1.1 and HTTP/2 cleartext on one port, until it is stopped.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::catalogue::Catalogue;
use super::limits::Limits;
use super::router::router;
use lapwing_net::{AcceptLimits, ServerLimits};

/// The pause after a failed accept.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// HTTP/1.1: the time for the next request's head to arrive.
const IDLE: Duration = Duration::from_secs(300);
/// The time for an answer to be read, longer by what is read meanwhile.
const WRITE: Duration = Duration::from_secs(60);
/// HTTP/2: how often a peer is pinged; it must answer within 20 s.
const PING: Duration = Duration::from_secs(60);
/// HTTP/2: bytes of a stream, and of a connection, that may arrive before they are read. Tensors are large.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Serves `catalogue` on `listener` until `stop`; then takes no more, lets requests in flight end, and cuts off what is left
/// after the grace period. Dropping the future ends everything. Must be polled in a tokio runtime.
///
/// # Errors
///
/// None after the start: a failed connection affects no other, and a failed accept is tried again.
pub async fn serve(listener: TcpListener, catalogue: Arc<Catalogue>, limits: Limits, stop: CancellationToken) -> io::Result<()> {
    serve_router(listener, router(catalogue, limits), limits, "engine", stop).await
}

/// As [`serve`], with a router that may have additional layers; `name` is what log lines call the listener.
///
/// # Errors
///
/// As [`serve`].
pub async fn serve_router(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    name: &'static str,
    stop: CancellationToken,
) -> io::Result<()> {
    let server = ServerLimits {
        accept: AcceptLimits { backoff: ACCEPT_BACKOFF, max_connections: Some(lapwing_net::engine_connections()) },
        grace: limits.grace.get(),
        header_timeout: Some(IDLE),
        first_request_timeout: Some(IDLE),
        write_timeout: Some(WRITE),
        keep_alive: Some(PING),
        stream_window: Some(STREAM_WINDOW),
        connection_window: Some(CONNECTION_WINDOW),
        ..ServerLimits::new(name)
    };
    lapwing_net::serve(listener, router, server, stop).await;
    Ok(())
}
