//! A small HTTP/1.1 client on one kept-alive connection, for the demo's load and its table.
//!
//! One request at a time; it reconnects where the connection was closed, and never retries.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// For one request, connecting included.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// No connection.
    #[error("{0}: cannot connect: {1}")]
    Connect(SocketAddr, std::io::Error),
    /// The connection broke, or what came is no HTTP.
    #[error("{0}: {1}")]
    Http(SocketAddr, hyper::Error),
    /// The path makes no request.
    #[error("{0}: {1}")]
    Request(SocketAddr, http::Error),
    /// Nothing came in time.
    #[error("{0}: no response within {TIMEOUT:?}")]
    Timeout(SocketAddr),
}

/// A connection, or the wish for one.
#[derive(Debug)]
pub(super) struct Client {
    to: SocketAddr,
    host: HeaderValue,
    sender: Option<SendRequest<Full<Bytes>>>,
    connection: JoinSet<()>,
}

impl Client {
    /// Connects at the first request.
    pub(super) fn new(to: SocketAddr) -> Self {
        let host = HeaderValue::try_from(to.to_string()).unwrap_or(HeaderValue::from_static("localhost"));
        Self { to, host, sender: None, connection: JoinSet::new() }
    }

    /// `GET path`.
    pub(super) async fn get(&mut self, path: &str) -> Result<(StatusCode, Bytes), ClientError> {
        self.send(Request::builder().method(Method::GET).uri(path), Bytes::new()).await
    }

    /// `POST path` with a JSON body.
    pub(super) async fn post(&mut self, path: &str, json: Bytes) -> Result<(StatusCode, Bytes), ClientError> {
        let head = Request::builder().method(Method::POST).uri(path).header(CONTENT_TYPE, "application/json");
        self.send(head, json).await
    }

    async fn send(&mut self, head: http::request::Builder, body: Bytes) -> Result<(StatusCode, Bytes), ClientError> {
        let request = head.header(HOST, &self.host).body(Full::new(body)).map_err(|e| ClientError::Request(self.to, e))?;
        let sender = self.sender.take();
        let answer = tokio::time::timeout(TIMEOUT, self.exchange(sender, request)).await;
        let (status, body, sender) = answer.map_err(|_| ClientError::Timeout(self.to))??;
        self.sender = Some(sender);
        Ok((status, body))
    }

    /// The sender comes back only from a complete exchange, so that a broken connection is never used again.
    async fn exchange(
        &mut self,
        sender: Option<SendRequest<Full<Bytes>>>,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes, SendRequest<Full<Bytes>>), ClientError> {
        let to = self.to;
        let mut sender = match sender {
            Some(mut kept) => match kept.ready().await {
                Ok(()) => kept,
                Err(_) => self.connect().await?,
            },
            None => self.connect().await?,
        };
        let response = sender.send_request(request).await.map_err(|e| ClientError::Http(to, e))?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|e| ClientError::Http(to, e))?;
        Ok((status, body.to_bytes(), sender))
    }

    async fn connect(&mut self) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        let to = self.to;
        let stream = TcpStream::connect(to).await.map_err(|e| ClientError::Connect(to, e))?;
        stream.set_nodelay(true).map_err(|e| ClientError::Connect(to, e))?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| ClientError::Http(to, e))?;
        // Dropping the old set ends the task of a broken connection.
        self.connection = JoinSet::new();
        self.connection.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the demo client's connection ended");
            }
        });
        Ok(sender)
    }
}
