//! A server of HTTP/1.1 and HTTP/2 on one listener: the admin surfaces, the OTLP receivers and the model server use it.
//!
//! The data plane does not: its connections meter their sockets and carry upgrades, so it takes them from [`accept`] itself.

mod connections;
mod limits;
mod write_timeout;

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::connections::{AnswerBody, ConnectionTable};
pub use self::limits::{Peer, ServerLimits};
use self::write_timeout::WriteTimeout;
use super::accept::{Accepted, accept};
use super::drain::until_stopped;
use super::listener::Listener;
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
    let table = Arc::new(ConnectionTable::new(limits.counters.clone()));
    let limits = Arc::new(limits);
    accept(listener, limits.accept, &tasks, &stop, &*table, |accepted| {
        let Accepted { socket, peer, permit } = accepted;
        let entry = Arc::new(table.enter());
        let (builder, stop, cut, limits, table) = (builder.clone(), stop.clone(), cut.clone(), limits.clone(), table.clone());
        let (inner, tells_peer, of) = (TowerToHyperService::new(service.clone()), limits.tells_peer, entry.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            if tells_peer {
                request.extensions_mut().insert(Peer(peer));
            }
            let (open, answer) = (of.request(), inner.call(request));
            async move { answer.await.map(|answer| answer.map(|body| AnswerBody { body, request: open })) }
        });
        let io = TokioIo::new(WriteTimeout::new(socket, limits.write_timeout, limits.counters.clone()));
        async move {
            let _permit = permit;
            let connection = pin!(builder.serve_connection(io, service));
            tokio::select! {
                ended = until_stopped(connection, &stop) => if let Err(error) = ended {
                    tracing::debug!(%error, %peer, server = limits.name, "a client's connection failed");
                },
                reason = entry.expired(&limits) => table.count(reason),
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
