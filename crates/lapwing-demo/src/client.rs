//! The demo's HTTP client for the proxy and the admin address: `net`'s client, one request at a time on a kept connection.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use http_body_util::Full;

use lapwing_net::{Client, ClientLimits, Target};

/// The time limit of one request, including the connection.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A client of one server.
#[derive(Debug)]
pub(crate) struct HttpClient(Client);

impl HttpClient {
    /// Creates a client, which connects at the first request.
    pub(crate) fn new(to: SocketAddr) -> Self {
        let limits = ClientLimits { connect_timeout: TIMEOUT, timeout: TIMEOUT, max_idle: 1, ..ClientLimits::default() };
        Self(Client::new(Target::Tcp(to.to_string()), limits))
    }

    /// `GET path`.
    ///
    /// # Errors
    ///
    /// The server's address and why there is no response.
    pub(crate) async fn get(&self, path: &str) -> Result<(StatusCode, Bytes), String> {
        self.fetch(Request::builder().method(Method::GET).uri(path), Bytes::new()).await
    }

    /// `POST path` with a JSON body.
    ///
    /// # Errors
    ///
    /// The server's address and why there is no response.
    pub(crate) async fn post(&self, path: &str, json: Bytes) -> Result<(StatusCode, Bytes), String> {
        let head = Request::builder().method(Method::POST).uri(path).header(CONTENT_TYPE, "application/json");
        self.fetch(head, json).await
    }

    async fn fetch(&self, head: http::request::Builder, body: Bytes) -> Result<(StatusCode, Bytes), String> {
        let fails = |error: &dyn std::error::Error| format!("{}: {error}", self.0.target());
        let request = head.body(Full::new(body)).map_err(|error| fails(&error))?;
        let response = self.0.fetch(request).await.map_err(|error| fails(&error))?;
        Ok((response.status(), response.into_body()))
    }
}
