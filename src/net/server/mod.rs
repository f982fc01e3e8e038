//! A server of HTTP/1.1 and HTTP/2 on one listener: the admin surfaces, the OTLP receivers and the model server use it.
//!
//! The data plane does not: its connections meter their sockets and carry upgrades, so it takes them from [`accept`] itself.

mod idle;
mod limits;

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use self::idle::IdleTimeout;
pub use self::limits::{Peer, ServerLimits};
use super::accept::{Accepted, Listener, accept};
use super::drain::until_stopped;
use super::tasks::Tasks;

/// Serves `service` on `listener` until `stop` is cancelled. Then it closes the listener, lets requests in flight end, and closes
/// what is still open after [`ServerLimits::grace`]. Dropping the future closes every connection. A connection that fails is
/// logged. Must be polled in a tokio runtime.
pub async fn serve<S, B>(listener: impl Listener, service: S, limits: ServerLimits, stop: CancellationToken)
where
    S: tower::Service<Request<Incoming>, Response = Response<B>, Error: Into<Box<dyn Error + Send + Sync>>, Future: Send>
        + Clone
        + Send
        + 'static,
    B: http_body::Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let tasks = Tasks::default();
    let builder = Arc::new(limits.builder(tasks.clone()));
    let cut = CancellationToken::new();
    let _cut_when_dropped = cut.clone().drop_guard();
    accept(listener, limits.accept, &tasks, &stop, |accepted| {
        let peer = limits.tells_peer.then_some(Peer(accepted.peer));
        let service = service.clone().map_request(move |mut request: Request<Incoming>| {
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            request
        });
        let (builder, service, stop, cut) = (builder.clone(), TowerToHyperService::new(service), stop.clone(), cut.clone());
        async move {
            let Accepted { socket, peer, permit: _permit } = accepted;
            let io = TokioIo::new(IdleTimeout::new(socket, limits.idle_timeout));
            let connection = pin!(builder.serve_connection(io, service));
            tokio::select! {
                ended = until_stopped(connection, &stop) => if let Err(error) = ended {
                    tracing::debug!(%error, %peer, server = limits.name, "a client's connection failed");
                },
                () = cut.cancelled() => {}
            }
        }
    })
    .await;
    if timeout(limits.grace, tasks.finished()).await.is_err() {
        tracing::warn!(server = limits.name, grace = ?limits.grace, "connections were still open after the grace period and are closed");
        cut.cancel();
        // their streams end with them
        tasks.finished().await;
    }
}

#[cfg(test)]
mod tests;
