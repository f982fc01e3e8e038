//! Graceful shutdown of one connection.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use hyper_util::server::graceful::GracefulConnection;
use tokio_util::sync::CancellationToken;

/// Drives `connection` to its end. Once `stop` is cancelled, the connection takes no further request and ends when those in
/// flight have.
///
/// # Errors
///
/// The connection's own.
pub async fn until_stopped<C: GracefulConnection>(mut connection: Pin<&mut C>, stop: &CancellationToken) -> Result<(), C::Error> {
    let mut stopping = pin!(stop.cancelled());
    let mut is_stopped = false;
    poll_fn(|cx| {
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(ended);
        }
        if !is_stopped && stopping.as_mut().poll(cx).is_ready() {
            is_stopped = true;
            connection.as_mut().graceful_shutdown();
            return connection.as_mut().poll(cx);
        }
        Poll::Pending
    })
    .await
}
