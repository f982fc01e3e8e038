//! What the tap hands over: a copied request, and its answer once it is there.

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode, Version};
use tokio::sync::oneshot;

use crate::body::capture::BodyCapture;
use lapwing_ledger::{CopyCause, PairId, Stamp, TraceId};

/// A sampled request. Its body, and the answer, may still be on their way.
#[derive(Debug)]
pub struct ShadowJob {
    /// The number that the request and its copies have in common.
    pub pair: PairId,
    /// Why it is copied.
    pub cause: CopyCause,
    /// When its first byte arrived.
    pub arrived: Stamp,
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub path: PathAndQuery,
    /// The client's HTTP version.
    pub version: Version,
    /// Its headers, as the client sent them.
    pub headers: HeaderMap,
    /// Its body, as far as it has come.
    pub body: BodyCapture,
    /// The upstream's answer. Closed without one if the request failed or the client left.
    pub answer: oneshot::Receiver<PrimaryAnswer>,
}

/// The upstream's answer to a sampled request.
#[derive(Debug)]
pub struct PrimaryAnswer {
    /// The trace of the request, as the upstream was told it; zero without tracing.
    pub trace: TraceId,
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, as far as it has come.
    pub body: BodyCapture,
}
