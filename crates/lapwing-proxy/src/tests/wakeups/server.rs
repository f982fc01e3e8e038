//! The server of a case: hyper's, over HTTP/1.1 or HTTP/2.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::bodies::{Broken, Flow, Gate, TRAILER, pause};
use super::case::{Answering, Case, End};
use super::streams::Streams;
use lapwing_net::simulated::{SimulatedStream, draw, spawn};

/// What it got.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// Uploads that came whole.
    pub(crate) whole: AtomicUsize,
    /// What was wrong with others.
    pub(crate) faults: parking_lot::Mutex<Vec<String>>,
}

/// An answer's body.
enum Answer {
    Flow(Flow),
    Echo(Incoming),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Self::Flow(flow) => Pin::new(flow).poll_frame(cx).map_err(|error: Broken| error.into()),
            Self::Echo(incoming) => Pin::new(incoming).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Flow(flow) => flow.is_end_stream(),
            Self::Echo(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Flow(flow) => flow.size_hint(),
            Self::Echo(_) => SizeHint::default(),
        }
    }
}

/// Serves what connects.
pub(crate) async fn serve(mut connections: UnboundedReceiver<SimulatedStream>, case: Arc<Case>, received: Arc<Received>) {
    while let Some(stream) = connections.recv().await {
        spawn(connection(stream, case.clone(), received.clone()));
    }
}

async fn connection(stream: SimulatedStream, case: Arc<Case>, received: Arc<Received>) {
    let leaves = CancellationToken::new();
    let (io, windows, is_h2) = (TokioIo::new(stream), case.windows, case.is_h2_upstream);
    let leaving = leaves.clone();
    let service = service_fn(move |request| answer(request, case.clone(), received.clone(), leaving.clone()));
    if is_h2 {
        let mut builder = http2::Builder::new(Streams { leaves: leaves.clone() });
        builder.initial_stream_window_size(windows.stream).initial_connection_window_size(windows.connection);
        builder.max_frame_size(windows.frame);
        let _ = leaves.run_until_cancelled_owned(builder.serve_connection(io, service)).await;
    } else {
        let _ = leaves.run_until_cancelled_owned(http1::Builder::new().serve_connection(io, service)).await;
    }
}

async fn answer(
    request: Request<Incoming>,
    case: Arc<Case>,
    received: Arc<Received>,
    leaves: CancellationToken,
) -> Result<Response<Answer>, Broken> {
    let at: usize = request.uri().path().rsplit('/').next().and_then(|at| at.parse().ok()).ok_or(Broken)?;
    let exchange = case.exchanges[at].clone();
    if let End::ServerLeaves(turns) = exchange.end {
        spawn(async move {
            pause(turns).await;
            leaves.cancel();
        });
    }
    pause(draw(exchange.reading.turns + 1)).await;
    let (upload, is_read) = (request.into_body(), Arc::<Gate>::default());
    let flow = match exchange.answering {
        Answering::AfterUpload => {
            note(&received, exchange.reading.whole(upload, exchange.upload).await);
            Answer::Flow(Flow::new(exchange.download, None, None))
        }
        Answering::BesideUpload => {
            let read = is_read.clone();
            spawn(async move {
                note(&received, exchange.reading.whole(upload, exchange.upload).await);
                read.open();
            });
            Answer::Flow(Flow::new(exchange.download, Some(is_read), None))
        }
        Answering::Echoes => Answer::Echo(upload),
        Answering::Unread => Answer::Flow(Flow::new(exchange.download, None, None)),
    };
    let mut response = Response::builder();
    if exchange.download.has_trailers || exchange.answering == Answering::Echoes {
        response = response.header("trailer", TRAILER);
    }
    response.body(flow).map_err(|_| Broken)
}

fn note(received: &Received, result: Result<(), String>) {
    match result {
        Ok(()) => drop(received.whole.fetch_add(1, Relaxed)),
        Err(fault) => received.faults.lock().push(format!("request: {fault}")),
    }
}
