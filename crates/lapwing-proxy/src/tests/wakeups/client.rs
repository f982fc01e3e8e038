//! The client of a case: hyper's, over HTTP/1.1 or HTTP/2.

use std::sync::Arc;

use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioIo;
use tokio_util::sync::CancellationToken;

use super::bodies::{Flow, Gate, TRAILER, pause};
use super::case::{Answering, Case, End, Exchange, Windows};
use super::queue::{FORMAT, PATH};
use super::streams::Streams;
use lapwing_net::simulated::{SimulatedStream, draw, spawn};

/// What sends requests over one connection.
pub(crate) enum Sender {
    H1(http1::SendRequest<Flow>),
    H2(http2::SendRequest<Flow>),
}

impl Sender {
    /// Begins HTTP on `stream`; its connection ends at once when `leaves` is cancelled.
    pub(crate) async fn open(
        stream: SimulatedStream,
        is_h2: bool,
        windows: Windows,
        leaves: CancellationToken,
    ) -> Result<Self, String> {
        let io = TokioIo::new(stream);
        if !is_h2 {
            let (sender, connection) = http1::handshake(io).await.map_err(|error| format!("{error:?}"))?;
            spawn(leaves.run_until_cancelled_owned(connection));
            return Ok(Self::H1(sender));
        }
        let mut builder = http2::Builder::new(Streams { leaves: leaves.clone() });
        builder.initial_stream_window_size(windows.stream).initial_connection_window_size(windows.connection);
        builder.max_frame_size(windows.frame);
        let (sender, connection) = builder.handshake(io).await.map_err(|error| format!("{error:?}"))?;
        spawn(leaves.run_until_cancelled_owned(connection));
        Ok(Self::H2(sender))
    }

    async fn send(&mut self, request: Request<Flow>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::H1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::H2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    /// Another sender over the same connection, if it carries several requests at once.
    pub(crate) fn another(&self) -> Option<Self> {
        match self {
            Self::H1(_) => None,
            Self::H2(sender) => Some(Self::H2(sender.clone())),
        }
    }

    /// Carries out the exchange with the number `at`.
    ///
    /// # Errors
    ///
    /// What was wrong with the answer, or missing.
    pub(crate) async fn exchange(&mut self, case: &Case, at: usize) -> Result<(), String> {
        let exchange = &case.exchanges[at];
        let sent = Arc::<Gate>::default();
        let path = format!("{}{at}", if case.is_queued { PATH } else { "/" });
        let mut request = Request::builder().method("POST").uri(format!("http://model{path}")).header("te", "trailers");
        if case.is_queued {
            request = request.header("content-type", FORMAT);
        }
        if let Self::H1(_) = self {
            request = request.uri(path).header("host", "model").header("connection", "te");
        } else {
            request = request.version(Version::HTTP_2);
        }
        if exchange.upload.has_trailers {
            request = request.header("trailer", TRAILER);
        }
        let body = Flow::new(exchange.upload, None, Some(sent.clone()));
        let request = request.body(body).map_err(|error| error.to_string())?;
        match exchange.end {
            End::Whole => self.carry(request, exchange, &sent).await,
            End::ClientLeaves(turns) => {
                tokio::select! {
                    biased;
                    () = pause(turns) => Ok(()),
                    _ = self.carry(request, exchange, &sent) => Ok(()),
                }
            }
            // how it ends is not the client's choice
            End::ServerLeaves(_) => {
                let _ = self.carry(request, exchange, &sent).await;
                Ok(())
            }
        }
    }

    async fn carry(&mut self, request: Request<Flow>, exchange: &Exchange, sent: &Gate) -> Result<(), String> {
        let response = self.send(request).await.map_err(|error| format!("no answer: {error:?}"))?;
        if response.status() != 200 {
            return Err(format!("{} {:?}", response.status(), response.headers()));
        }
        if exchange.reads_after_upload {
            std::future::poll_fn(|cx| sent.poll_open(cx)).await;
        }
        pause(draw(exchange.reading.turns + 1)).await;
        let expected = if exchange.answering == Answering::Echoes { exchange.upload } else { exchange.download };
        exchange.reading.whole(response.into_body(), expected).await.map_err(|error| format!("answer: {error}"))
    }
}
