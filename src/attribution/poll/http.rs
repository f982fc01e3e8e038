//! One small `GET` of the user's server: a connection of its own, closed afterwards, within a time and a size.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::settings::Upstream;

/// How long one may take, connecting included.
pub(super) const LIMIT: Duration = Duration::from_secs(2);
/// How large an answer may be.
pub(super) const MAX_BYTES: usize = 8 << 20;
/// How the server's own log may tell them from its users' requests.
const AGENT: &str = concat!("lapwing/", env!("CARGO_PKG_VERSION"));

/// Why nothing came.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    /// What came is no HTTP, or the connection broke.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The address or path makes no request.
    #[error("no such address: {0}")]
    Request(#[from] http::Error),
    /// The body broke off, or is too large.
    #[error("the answer could not be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// It took too long.
    #[error("no answer within {LIMIT:?}")]
    Timeout,
    /// The server refuses.
    #[error("the answer is {0}")]
    Status(StatusCode),
}

/// `GET path` of `from`, over HTTP/1.1; the body of a 200.
pub(super) async fn get(from: &Upstream, path: &str) -> Result<Bytes, Error> {
    let exchange = async {
        match from {
            Upstream::Http { authority, .. } => over(TcpStream::connect(authority.as_str()).await?, authority, path).await,
            Upstream::Unix { path: socket } => over(UnixStream::connect(socket).await?, "localhost", path).await,
        }
    };
    timeout(LIMIT, Box::pin(exchange)).await.unwrap_or(Err(Error::Timeout))
}

async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, host: &str, path: &str) -> Result<Bytes, Error> {
    let request = Request::get(path)
        .header(HOST, host)
        .header(USER_AGENT, AGENT)
        .header(ACCEPT, "*/*")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    let answer = async {
        let response = sender.send_request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(Error::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
        body.map(http_body_util::Collected::to_bytes).map_err(Error::Body)
    };
    let carrying = async {
        let _ = connection.await; // what went wrong, the answer tells
        std::future::pending().await
    };
    tokio::select! {
        answer = answer => answer,
        never = carrying => never,
    }
}
