//! The layer without a socket, a client or an upstream: other bodies, and stamps that a test gives.

use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};

use super::*;
use crate::in_flight::fixtures::{GivenStamps, context};
use crate::in_flight::{FencedObserver, Observer};
use lapwing_ledger::{Ledger, Outcome, Stamp};
use lapwing_protocol::ExchangeReader;
use lapwing_tower::RecordLedger;

/// A request's body that is not looked at.
struct Unread;

impl AccountedRequest<Full<Bytes>, GivenStamps> for Unread {
    fn wrap(_: Full<Bytes>, in_flight: Arc<InFlight<GivenStamps>>) -> Self {
        in_flight.on_request_bytes(3);
        in_flight.on_request_end(None);
        Self
    }
}

/// A response's body that ends its exchange when it has been read.
struct Answer(Full<Bytes>, AccountGuard<GivenStamps>);

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let polled = Pin::new(&mut self.0).poll_frame(cx);
        if let (Poll::Ready(None), Some(in_flight)) = (&polled, self.1.get()) {
            in_flight.finish();
        }
        polled
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl AccountedResponse<GivenStamps> for Answer {
    fn guard(&mut self, guard: AccountGuard<GivenStamps>, _: bool) {
        self.1 = guard;
    }
    fn emptied(self, _: bool) -> Self {
        Self(Full::default(), self.1)
    }
}

/// Takes closed ledgers.
#[derive(Default)]
struct Closed(Mutex<Vec<Ledger>>);

impl Observer for Arc<Closed> {
    fn request(&self, _: &Method, _: &str, _: &HeaderMap, _: &mut Ledger) -> Option<ExchangeReader> {
        None
    }
    fn response(&self, _: &HeaderMap, _: bool, _: &mut Ledger) {}
    fn model(&self, _: &str, _: &mut Ledger) {}
}

impl RecordLedger for Closed {
    fn record(&self, ledger: Box<Ledger>) {
        self.0.lock().unwrap().push(*ledger);
    }
}

/// What one request to the layer leaves: it is read to its end, or dropped, and then flushed at the stamp, or lost.
async fn ledger(method: Method, is_read: bool, flushed: Option<Stamp>) -> Ledger {
    let closed = Arc::<Closed>::default();
    let context = context();
    let observer = FencedObserver::new(Arc::new(closed.clone()), context.counters.clone());
    let meter = Arc::new(GivenStamps::beginning(at(1_000)));
    let inner = service_fn(|tracked: TrackedRequest<Unread, InFlight<GivenStamps>>| {
        tracked.in_flight.account.stamps.dispatch();
        tracked.in_flight.account.record_response_head(StatusCode::OK, &HeaderMap::new());
        ready(Ok::<_, Infallible>(Response::new(Answer(Full::from("answer"), AccountGuard::none()))))
    });
    let stack = layer::<Unread, _>(Arc::new(RequestContext { observer, ..context }), Arc::default(), meter.clone()).layer(inner);
    let request = Request::builder().method(method).body(Full::<Bytes>::from("ask")).unwrap();
    let Ok(response) = stack.oneshot(request).await;
    if is_read {
        http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
    } else {
        drop(response);
    }
    meter.flush(flushed);
    closed.0.lock().unwrap().pop().unwrap()
}

fn at(after_ns: u64) -> Stamp {
    Stamp::from_ns(after_ns).unwrap()
}

#[tokio::test]
async fn an_account_goes_from_the_first_byte_of_the_head_to_the_flush_of_the_answer() {
    let ledger = ledger(Method::POST, true, Some(at(90_000))).await;
    assert_eq!((ledger.started, ledger.total_ns), (at(1_000), 89_000));
    assert_eq!((ledger.request_bytes, ledger.outcome), (3, Outcome::Ok));
}

#[tokio::test]
async fn an_answer_that_is_dropped_or_lost_is_cancelled() {
    assert_eq!(ledger(Method::POST, false, None).await.outcome, Outcome::Cancelled, "dropped");
    assert_eq!(ledger(Method::POST, true, None).await.outcome, Outcome::Cancelled, "not flushed");
    assert_eq!(ledger(Method::HEAD, true, Some(at(5_000))).await.total_ns, 4_000);
}
