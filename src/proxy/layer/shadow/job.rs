//! What the tap hands over: a copied request, and its answer once it is there.

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode, Version};
use tokio::sync::oneshot;

use crate::ledger::{CopyCause, PairId, Stamp, TraceId};
use crate::proxy::body::capture::Capture;

/// A sampled request. Its body, and the answer, may still be on their way.
#[derive(Debug)]
pub(crate) struct ShadowJob {
    /// The number that the request and its copies have in common.
    pub(crate) pair: PairId,
    /// Why it is copied.
    pub(crate) cause: CopyCause,
    /// When its first byte arrived.
    pub(crate) arrived: Stamp,
    pub(crate) method: Method,
    pub(crate) path: PathAndQuery,
    /// The client's HTTP version.
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Capture,
    /// The upstream's answer. Closed without one if the request failed or the client left.
    pub(crate) answer: oneshot::Receiver<PrimaryAnswer>,
}

/// The upstream's answer to a sampled request.
#[derive(Debug)]
pub(crate) struct PrimaryAnswer {
    /// The trace of the request, as the upstream was told it; zero without tracing.
    pub(crate) trace: TraceId,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Capture,
}
