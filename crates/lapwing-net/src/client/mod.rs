//! The client for Lapwing's own requests to other servers: statistics, forwarded telemetry, copies of requests.
//!
//! One client sends to one [`Target`] over HTTP/1.1, or over HTTP/2 without TLS, on connections that it keeps for the next request.
//! The time to connect, the total time and the size of the response's body are bounded. It keeps no
//! ledger; clients' requests to the upstream go through `proxy/upstream`.

mod body;
mod connect;
mod error;
mod limits;

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::HOST;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, Uri, Version};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::sleep;

pub use self::body::Body;
use self::connect::Connector;
pub use self::error::ClientError;
pub use self::limits::ClientLimits;
use super::target::Target;

/// A client of one server. Clones share its connections; the last one that is dropped closes those that are idle.
///
/// It is a [`tower::Service`] too, so that `tonic`'s client runs on it.
///
/// ```
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use lapwing_net::{Client, ClientLimits, Target};
///
/// # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::new(Target::Tcp("127.0.0.1:8000".to_owned()), ClientLimits::default());
/// let request = http::Request::post("/v2/models/digits/infer").body(Full::new(Bytes::from_static(b"{}")))?;
/// let response = client.fetch(request).await?;
/// println!("{}: {} bytes", response.status(), response.body().len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Client<B = Full<Bytes>> {
    inner: legacy::Client<Connector, B>,
    target: Target,
    version: Version,
    limits: ClientLimits,
}

impl<B> Client<B>
where
    B: http_body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
{
    /// A client that speaks HTTP/1.1. Connects with the first request, which must be sent in a tokio runtime.
    #[must_use]
    pub fn new(target: Target, limits: ClientLimits) -> Self {
        Self::speaking(Version::HTTP_11, target, limits)
    }

    /// A client that speaks HTTP/2 without TLS, many requests on one connection. Connects with the first request, which must be
    /// sent in a tokio runtime.
    #[must_use]
    pub fn http2(target: Target, limits: ClientLimits) -> Self {
        Self::speaking(Version::HTTP_2, target, limits)
    }

    fn speaking(version: Version, target: Target, limits: ClientLimits) -> Self {
        let connector = Connector { target: target.clone(), version, limit: limits.connect_timeout };
        let inner = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(limits.idle_timeout)
            .pool_max_idle_per_host(limits.max_idle)
            .http2_only(version == Version::HTTP_2)
            .http2_keep_alive_interval(limits.keep_alive)
            .build(connector);
        Self { inner, target, version, limits }
    }

    /// The server that it sends to.
    #[must_use]
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// Sends `request` and waits for the response's head. Of the request's URI only path and query are used; over HTTP/1.1 a
    /// `Host` that it has is kept. A request that a kept connection did not take, because the server had closed it, is sent once
    /// more on another.
    ///
    /// # Errors
    ///
    /// Every [`ClientError`] except [`ClientError::BodyTooLarge`] and [`ClientError::BodyCut`], which reading the body may end with.
    pub async fn send(&self, mut request: Request<B>) -> Result<Response<Body>, ClientError> {
        self.address(&mut request).map_err(ClientError::Request)?;
        let mut deadline = Box::pin(sleep(self.limits.timeout));
        let response = tokio::select! {
            biased;
            response = self.inner.request(request) => response.map_err(|error| ClientError::of(error, &self.target))?,
            () = &mut deadline => return Err(ClientError::Timeout(self.limits.timeout)),
        };
        Ok(response.map(|body| Body::new(body, &self.limits, deadline)))
    }

    /// Sends `request` and reads the whole response. Trailers are dropped.
    ///
    /// # Errors
    ///
    /// Every [`ClientError`].
    pub async fn fetch(&self, request: Request<B>) -> Result<Response<Bytes>, ClientError> {
        let (head, body) = self.send(request).await?.into_parts();
        Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
    }

    /// Directs `request` to the target.
    fn address(&self, request: &mut Request<B>) -> Result<(), http::Error> {
        let authority = self.target.authority();
        if self.version == Version::HTTP_11 && !request.headers().contains_key(HOST) {
            request.headers_mut().insert(HOST, HeaderValue::try_from(authority)?);
        }
        let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(Scheme::HTTP);
        uri.authority = Some(Authority::try_from(authority)?);
        uri.path_and_query = Some(path);
        *request.uri_mut() = Uri::from_parts(uri)?;
        *request.version_mut() = self.version;
        Ok(())
    }
}

impl<B> Clone for Client<B> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), target: self.target.clone(), version: self.version, limits: self.limits }
    }
}

impl<B> tower::Service<Request<B>> for Client<B>
where
    B: http_body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static,
{
    type Response = Response<Body>;
    type Error = ClientError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, ClientError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ClientError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let client = self.clone();
        Box::pin(async move { client.send(request).await })
    }
}

#[cfg(test)]
mod tests;
