//! The errors of the client's exchanges.

use std::error::Error;
use std::time::Duration;

use hyper_util::client::legacy;

use crate::excerpt::error_text;
use crate::target::Target;

/// Why there is no response, or why it is incomplete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No connection was made.
    #[error("cannot connect to {target}: {}", causes(.cause))]
    Connect {
        /// The server.
        target: Target,
        /// The connector's error.
        #[source]
        cause: legacy::Error,
    },
    /// The target's address or the request's path is invalid.
    #[error("cannot be requested: {0}")]
    Request(#[source] http::Error),
    /// The connection broke, or the answer is not HTTP.
    #[error("{}", causes(.0))]
    Exchange(#[source] legacy::Error),
    /// The exchange as a whole took too long.
    #[error("no response within {0:?}")]
    Timeout(Duration),
    /// The response's body broke off.
    #[error("the response's body broke off: {0}")]
    BodyCut(#[source] hyper::Error),
    /// The response's body is larger than the limit, in bytes.
    #[error("the response's body is larger than {0} bytes")]
    BodyTooLarge(usize),
}

impl ClientError {
    pub(crate) fn of(cause: legacy::Error, target: &Target) -> Self {
        if cause.is_connect() { Self::Connect { target: target.clone(), cause } } else { Self::Exchange(cause) }
    }
}

/// The causes of `error` in one line, cut: a server may end HTTP/2 with any text. The error's text only names the step that failed.
fn causes(error: &legacy::Error) -> String {
    let mut texts = Vec::new();
    let mut source = error.source();
    while let Some(cause) = source {
        texts.push(cause.to_string());
        source = cause.source();
    }
    texts.dedup();
    if texts.is_empty() { error.to_string() } else { error_text(&texts.join(": ")) }
}
