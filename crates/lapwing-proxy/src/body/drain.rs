//! What is left of a request that was answered before its end, and that nobody wants: read and thrown away, so that the client's connection can
//! carry its next request (HTTP/1.1).

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http_body::Body;
use hyper::body::Incoming;

use crate::connection::LazyDeadline;
use lapwing_ledger::Stamp;
use lapwing_net::Tasks;

/// More than so many bytes are not waited for after an answer of Lapwing's own: it says that the connection ends.
pub(crate) const MAX_DRAINED_BYTES: u64 = 256 * 1024;

/// How long the client may send nothing of it.
const IDLE: Duration = Duration::from_secs(2);
/// How long all of it may take.
const LONGEST: Duration = Duration::from_secs(20);

/// A request of which something is left.
pub(crate) trait DrainedRequest: Send + Sync + 'static {
    /// Where it is read on.
    fn tasks(&self) -> &Tasks;

    /// Whether the answer said that the client's connection ends.
    fn is_client_closed(&self) -> bool;

    /// All of it was read.
    fn on_rest_drained(&self);
}

/// Reads `body` to its end in a task of its own. If that takes too long, or the answer said that the connection ends, the body is dropped, and
/// hyper closes the connection.
pub(crate) fn drain<D: DrainedRequest>(body: Incoming, request: &Arc<D>) {
    // a body may be dropped with its runtime
    if tokio::runtime::Handle::try_current().is_ok() {
        request.tasks().spawn(drained(body, request.clone()));
    }
}

async fn drained(mut body: Incoming, request: Arc<impl DrainedRequest>) {
    let (began, mut last) = (Stamp::now(), Stamp::now());
    let (mut idle, mut whole) = <(LazyDeadline, LazyDeadline)>::default();
    let is_over = std::future::poll_fn(|cx| {
        loop {
            if request.is_client_closed() {
                return Poll::Ready(false);
            }
            match Pin::new(&mut body).poll_frame(cx) {
                Poll::Ready(None) => return Poll::Ready(true),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(false),
                Poll::Ready(Some(Ok(_))) => last = Stamp::now(),
                Poll::Pending => break,
            }
        }
        let is_late = idle.has_expired(cx, last, IDLE) || whole.has_expired(cx, began, LONGEST);
        if is_late { Poll::Ready(false) } else { Poll::Pending }
    });
    if is_over.await {
        request.on_rest_drained();
    }
}
