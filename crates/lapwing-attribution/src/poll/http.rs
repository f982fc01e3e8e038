//! One small `GET` to the user's server, on its own connection, with limits on time and size. The connection is closed afterwards.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::Empty;

use lapwing_net::{Client, ClientError, ClientLimits, Target};

/// For one request, connecting included.
pub(crate) const LIMIT: Duration = Duration::from_secs(2);
/// The largest response's body, in bytes.
pub(crate) const MAX_BYTES: usize = 8 << 20;
/// Lets the server's log distinguish the poller's requests from its users'.
const AGENT: &str = concat!("lapwing/", env!("CARGO_PKG_VERSION"));

/// Why there are no statistics.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The path makes no request.
    #[error("no such address: {0}")]
    Request(#[from] http::Error),
    /// There is no response, or no more of it.
    #[error(transparent)]
    Exchange(#[from] ClientError),
    /// The server refuses.
    #[error("the response is {0}")]
    Status(StatusCode),
}

impl Error {
    /// Whether the server answered that it has no such thing, rather than not at all.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(self, Self::Status(_) | Self::Exchange(ClientError::BodyTooLarge(_)))
    }

    /// Whether nobody took the connection.
    pub(crate) const fn is_unreached(&self) -> bool {
        matches!(self, Self::Exchange(ClientError::Connect { .. }))
    }
}

/// Asks `from` for `path` over HTTP/1.1; returns the body of a 200.
pub(crate) async fn get(from: &Target, path: &str) -> Result<Bytes, Error> {
    let request = Request::get(path)
        .header(USER_AGENT, AGENT)
        .header(ACCEPT, "*/*")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let limits =
        ClientLimits { connect_timeout: LIMIT, timeout: LIMIT, max_body: MAX_BYTES, max_idle: 0, ..ClientLimits::default() };
    let response = Box::pin(Client::new(from.clone(), limits).send(request)).await?;
    if response.status() != StatusCode::OK {
        return Err(Error::Status(response.status()));
    }
    Ok(http_body_util::BodyExt::collect(response.into_body()).await?.to_bytes())
}
