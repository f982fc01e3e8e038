//! The listener: HTTP/1.1 and HTTP/2 cleartext on one port, until it is stopped.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::catalogue::Catalogue;
use super::limits::Limits;
use super::router::router;
use super::tasks::{Owner, Tasks};

/// After a failed accept, for want of file descriptors as a rule.
const PAUSE: Duration = Duration::from_millis(50);
/// HTTP/1.1: the next request's head must have come within this.
const IDLE: Duration = Duration::from_secs(300);
/// HTTP/2: a peer is asked this often whether it is there, and must answer within 20 s.
const PING: Duration = Duration::from_secs(60);
/// HTTP/2: bytes of a stream, and of a connection, that may come before they are read. Tensors are large.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Serves `catalogue` on `listener` until `stop`; then takes no more, lets requests in flight end, and cuts off what is left
/// after the grace period. Dropping the future ends everything at once. Must be polled in a tokio runtime.
///
/// # Errors
///
/// None after the start: a connection's failure is its own, and one that cannot be accepted is waited for.
pub async fn serve(listener: TcpListener, catalogue: Arc<Catalogue>, limits: Limits, stop: CancellationToken) -> io::Result<()> {
    serve_router(listener, router(catalogue, limits), limits, stop).await
}

/// As [`serve`], with a router that may have layers of the caller's own.
///
/// # Errors
///
/// As [`serve`].
pub async fn serve_router(listener: TcpListener, router: Router, limits: Limits, stop: CancellationToken) -> io::Result<()> {
    let owner = Owner::new();
    let tasks = owner.tasks();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => tasks.spawn(connection(stream, router.clone(), tasks.clone(), stop.clone())),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    if tokio::time::timeout(limits.grace.get(), owner.idle()).await.is_err() {
        tracing::warn!(grace = %limits.grace, "requests were still in flight after the grace period and are cut off");
    }
    Ok(())
}

async fn connection(stream: TcpStream, router: Router, tasks: Tasks, stop: CancellationToken) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let mut builder = auto::Builder::new(tasks);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let service = service_fn(move |request: Request<Incoming>| router.clone().call(request.map(Body::new)));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a client's connection failed");
    }
}
