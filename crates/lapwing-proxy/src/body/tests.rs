//! Captures change nothing: with and without one, a body returns the same frames at the same polls, and the same size hints.
//! Both bodies come from real hyper connections that receive the same bytes in the same portions.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use futures_util::FutureExt;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use proptest::sample::Index;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

use super::capture::{BodyCapture, CaptureBudget, CaptureLimits, CapturedBody, Incomplete};
use super::tracked_request::TrackedRequest;
use super::*;
use crate::connection::QuietWaker;
use crate::in_flight::{AccountGuard, fixtures};
use lapwing_ledger::Stamp;

/// More than any body here, so that everything written fits.
const PIPE_BYTES: usize = 1 << 20;

/// All pieces here are copied. A referenced one keeps hyper from reusing its read buffer, which it may then cut otherwise.
fn budget() -> Arc<CaptureBudget> {
    CaptureBudget::new(CaptureLimits { total: 1 << 20, body: 1 << 20, read_buffer: 1 << 20 })
}

/// The result of a poll, and the body's size hint and end after it.
type Step = (Seen, bool, (u64, Option<u64>));

#[derive(Debug, PartialEq)]
enum Seen {
    Pending,
    Data(Vec<u8>),
    Trailers(HeaderMap),
    End,
    Failed,
}

/// Polls `body` until it has nothing, or nothing more.
async fn steps<B: Body<Error: std::fmt::Debug> + Unpin>(body: &mut B, into: &mut Vec<Step>) {
    poll_fn(|cx| {
        loop {
            if let Some((Seen::End | Seen::Failed, ..)) = into.last() {
                return Poll::Ready(());
            }
            let seen = match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Pending => Seen::Pending,
                Poll::Ready(None) => Seen::End,
                Poll::Ready(Some(Err(_))) => Seen::Failed,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(mut data) => Seen::Data(data.copy_to_bytes(data.remaining()).to_vec()),
                    Err(frame) => frame.into_trailers().map_or(Seen::Failed, Seen::Trailers),
                },
            };
            let is_pending = seen == Seen::Pending;
            let hint = body.size_hint();
            into.push((seen, body.is_end_stream(), (hint.lower(), hint.upper())));
            if is_pending {
                return Poll::Ready(());
            }
        }
    })
    .await;
}

/// How a body is sent.
#[derive(Clone, Debug)]
struct Sent {
    pieces: Vec<Vec<u8>>,
    is_chunked: bool,
    trailer: Option<String>,
    /// Where the bytes are cut into portions.
    cuts: Vec<Index>,
    /// Whether the connection ends before the body.
    is_cut_off: bool,
    /// Whether the body is dropped once it says that it is over, as hyper does, or polled to its end.
    is_dropped_early: bool,
}

impl Sent {
    fn body(&self) -> Vec<u8> {
        self.pieces.concat()
    }

    fn framing(&self) -> String {
        if self.is_chunked {
            "transfer-encoding: chunked\r\ntrailer: t".to_owned()
        } else {
            format!("content-length: {}", self.body().len())
        }
    }

    /// The body's bytes on the wire, in portions.
    fn portions(&self) -> Vec<Vec<u8>> {
        let mut wire = Vec::new();
        for piece in self.pieces.iter().filter(|piece| !piece.is_empty()) {
            if self.is_chunked {
                wire.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            }
            wire.extend_from_slice(piece);
            if self.is_chunked {
                wire.extend_from_slice(b"\r\n");
            }
        }
        if self.is_chunked {
            let trailer = self.trailer.as_ref().map(|value| format!("t: {value}\r\n")).unwrap_or_default();
            wire.extend_from_slice(format!("0\r\n{trailer}\r\n").as_bytes());
        }
        if self.is_cut_off {
            wire.pop();
        }
        let mut at: Vec<usize> = self.cuts.iter().map(|cut| cut.index(wire.len() + 1)).chain([0, wire.len()]).collect();
        at.sort_unstable();
        at.windows(2).map(|ends| wire[ends[0]..ends[1]].to_vec()).collect()
    }

    fn assert_captured(&self, captured: Result<CapturedBody, Incomplete>) -> Result<(), TestCaseError> {
        if self.is_cut_off && (self.is_chunked || !self.body().is_empty()) {
            prop_assert_eq!(captured.map(|_| ()), Err(Incomplete::Aborted));
            return Ok(());
        }
        let captured = captured.map_err(|incomplete| TestCaseError::fail(incomplete.to_string()))?;
        prop_assert_eq!(captured.pieces().concat(), self.body());
        let trailer = self.trailer.as_ref().filter(|_| self.is_chunked);
        prop_assert_eq!(captured.trailers().map(|fields| fields["t"].to_str().unwrap()), trailer.map(String::as_str));
        Ok(())
    }
}

fn any_sent() -> impl Strategy<Value = Sent> {
    let pieces = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9_000), 0..5);
    let (cuts, trailer) = (prop::collection::vec(any::<Index>(), 0..8), prop::option::of("[a-z]{1,20}"));
    (pieces, any::<bool>(), trailer, cuts, prop::bool::weighted(0.2), any::<bool>()).prop_map(
        |(pieces, is_chunked, trailer, cuts, is_cut_off, is_dropped_early)| Sent {
            pieces,
            is_chunked,
            trailer,
            cuts,
            is_cut_off,
            is_dropped_early,
        },
    )
}

type Connection = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

struct Driven(Connection, bool, QuietWaker);

impl std::fmt::Debug for Driven {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Driven")
    }
}

impl Drive for Driven {
    fn drive(&mut self, cx: &mut Context<'_>) {
        self.1 = self.1 || self.0.as_mut().poll(cx).is_ready();
    }
    fn waker(&self) -> &QuietWaker {
        &self.2
    }
    fn last_read(&self) -> Option<Stamp> {
        None
    }
    fn can_acknowledge(&self) -> bool {
        false
    }
    fn acknowledge(&mut self, _: &mut Context<'_>) -> bool {
        false
    }
    fn release(self: Box<Self>, _: Stamp) {}
}

/// The upstream's response, its body not sent yet.
async fn response(sent: &Sent) -> (Incoming, Connection, DuplexStream) {
    let (near, mut far) = duplex(PIPE_BYTES);
    let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(near)).await.unwrap();
    let mut connection: Connection = Box::pin(connection);
    let mut answer = pin!(send.send_request(Request::new(Empty::<Bytes>::new())));
    let mut poll = |cx: &mut Context<'_>| {
        let _ = connection.as_mut().poll(cx);
        answer.as_mut().poll(cx)
    };
    let is_pending = poll_fn(|cx| Poll::Ready(poll(cx).is_pending())).await;
    assert!(is_pending, "the request is only written");
    far.write_all(format!("HTTP/1.1 200 OK\r\n{}\r\n\r\n", sent.framing()).as_bytes()).await.unwrap();
    let response = poll_fn(poll).await;
    (response.unwrap().into_body(), connection, far)
}

async fn response_steps(sent: &Sent, budget: Option<&Arc<CaptureBudget>>) -> (Vec<Step>, Option<BodyCapture>) {
    let (incoming, connection, mut far) = response(sent).await;
    let mut body =
        ResponseBody::upstream(incoming, Some(Box::new(Driven(connection, false, QuietWaker::default()))), Stamp::now());
    let copy = budget.map(|budget| body.capture(budget));
    body.guard(AccountGuard::new(fixtures::in_flight()), false);
    let mut seen = Vec::new();
    for portion in sent.portions() {
        far.write_all(&portion).await.unwrap();
        if !(sent.is_dropped_early && body.is_end_stream()) {
            steps(&mut body, &mut seen).await;
        }
    }
    drop(far);
    if !(sent.is_dropped_early && body.is_end_stream()) {
        steps(&mut body, &mut seen).await;
    }
    (seen, copy)
}

/// The client's request, its body not sent yet.
async fn request(sent: &Sent) -> (Incoming, Connection, DuplexStream) {
    let (near, mut far) = duplex(PIPE_BYTES);
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let service = service_fn(move |request: Request<Incoming>| {
        sender.send(request.into_body()).unwrap();
        std::future::pending::<hyper::Result<Response<Empty<Bytes>>>>()
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(near), service);
    let mut connection: Connection = Box::pin(connection);
    far.write_all(format!("POST / HTTP/1.1\r\nhost: m\r\n{}\r\n\r\n", sent.framing()).as_bytes()).await.unwrap();
    let incoming = poll_fn(|cx| {
        let _ = connection.as_mut().poll(cx);
        receiver.poll_recv(cx)
    });
    (incoming.await.unwrap(), connection, far)
}

async fn request_steps(sent: &Sent, budget: Option<&Arc<CaptureBudget>>) -> (Vec<Step>, Option<BodyCapture>) {
    let (incoming, mut connection, mut far) = request(sent).await;
    let mut body = RequestBody::new(incoming, fixtures::in_flight());
    let copy = budget.map(|budget| body.capture(budget));
    let (mut seen, mut is_over) = (Vec::new(), false);
    let portions = sent.portions();
    for at in 0..=portions.len() {
        match portions.get(at) {
            Some(portion) => far.write_all(portion).await.unwrap(),
            None => far.shutdown().await.unwrap(),
        }
        for _ in 0..4 {
            is_over = is_over || poll_fn(|cx| Poll::Ready(connection.as_mut().poll(cx).is_ready())).await;
            if !(sent.is_dropped_early && body.is_end_stream()) {
                steps(&mut body, &mut seen).await;
            }
            if is_over {
                break;
            }
        }
        if is_over {
            break;
        }
    }
    (seen, copy)
}

fn run<T>(test: impl Future<Output = T>) -> T {
    // without tokio's budget of polls, which would make every so many polls pending
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(tokio::task::unconstrained(test))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_captured_response_passes_as_any_other(sent in any_sent()) {
        let (plain, captured) = run(async { (response_steps(&sent, None).await, response_steps(&sent, Some(&budget())).await) });
        prop_assert_eq!(plain.0, captured.0);
        sent.assert_captured(captured.1.unwrap().now_or_never().unwrap())?;
    }

    #[test]
    fn a_captured_request_passes_as_any_other(sent in any_sent()) {
        let (plain, captured) = run(async { (request_steps(&sent, None).await, request_steps(&sent, Some(&budget())).await) });
        prop_assert_eq!(plain.0, captured.0);
        sent.assert_captured(captured.1.unwrap().now_or_never().unwrap())?;
    }
}

#[test]
fn a_layer_captures_the_body_as_it_stands_there() {
    let sent = Sent {
        pieces: vec![b"the client's".to_vec()],
        is_chunked: true,
        trailer: None,
        cuts: Vec::new(),
        is_cut_off: false,
        is_dropped_early: false,
    };
    run(async {
        let (incoming, mut connection, mut far) = request(&sent).await;
        far.write_all(&sent.portions().concat()).await.unwrap();
        let in_flight = fixtures::in_flight();
        let request = Request::new(RequestBody::new(incoming, in_flight.clone()));
        let mut tracked = TrackedRequest { request: Box::new(request), in_flight };
        let above = tracked.request.body_mut().capture(&budget());
        let mut holding = pin!(hold(tracked));
        let held = poll_fn(|cx| {
            let _ = connection.as_mut().poll(cx);
            holding.as_mut().poll(cx)
        });
        let mut held = held.await.unwrap();
        assert_eq!(held.body().unwrap(), "the client's");
        held.replace_body(Bytes::from_static(b"another"));
        let mut tracked = held.into_request();
        let below = tracked.request.body_mut().capture(&budget());
        let passed = tracked.request.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(passed, "another");
        assert_eq!(above.await.unwrap().pieces().concat(), b"the client's");
        assert_eq!(below.await.unwrap().pieces().concat(), b"another");
    });
}
