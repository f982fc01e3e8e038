//! A response that broke off after its head was sent: what the client is told, and when.
//!
//! A status cannot be told any more. HTTP/1.1 has nothing left to say it with: the connection is closed, so that nobody takes the body for
//! whole. gRPC ends with trailers, which can name the cause.

use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use tonic::Status;

use crate::connection::LazyDeadline;
use crate::error::Error;
use crate::error::response::ERROR_FIELD;
use crate::in_flight::RequestAccount;
use lapwing_ledger::{NameProof, Stamp};
use lapwing_net::error_text;

/// What broke a body off. An [`h2::Error`] stays one, so that the client's stream is reset for the same reason.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a response broke off. The error reaches hyper only after the earlier bytes are written, because hyper would discard them.
#[derive(Debug)]
pub(crate) struct Break {
    cause: Cause,
    /// What a gRPC client is told instead of a reset stream.
    trailers: Option<HeaderMap>,
    pub(crate) at: Stamp,
    /// The connection's flushes until then.
    pub(crate) flushes: u32,
    pub(crate) deadline: LazyDeadline,
}

impl Break {
    /// The upstream broke the response off, or sent what cannot be passed on.
    pub(crate) fn new(cause: impl Into<Cause>) -> Self {
        Self { cause: cause.into(), trailers: None, at: Stamp::now(), flushes: 0, deadline: LazyDeadline::default() }
    }

    /// A time limit ended the response to the request of `account`, over a connection that requests share or do not share.
    pub(crate) fn by_limit(error: Error, account: &RequestAccount, is_multiplexed: bool) -> Self {
        error.report_time_limit(&account.context.counters);
        let is_grpc = is_multiplexed && account.read_ledger(|ledger| ledger.name_proof) == Some(NameProof::WithContent);
        let trailers = is_grpc.then(|| grpc_trailers(&error));
        Self { trailers, ..Self::new(error) }
    }

    /// The last thing that hyper gets of the body.
    pub(crate) fn into_frame<D>(self) -> Result<Frame<D>, Cause> {
        self.trailers.map_or(Err(self.cause), |trailers| Ok(Frame::trailers(trailers)))
    }
}

fn grpc_trailers(error: &Error) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(3);
    // every text can be a gRPC message, which is percent-encoded
    let _ = Status::deadline_exceeded(format!("lapwing: {}", error_text(error))).add_header(&mut trailers);
    trailers.insert(ERROR_FIELD, HeaderValue::from_static(error.response().token));
    trailers
}
