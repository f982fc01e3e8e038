//! What travels through the stack: the client's request with its open ledger.

use std::sync::Arc;

use http::Request;

use super::request::RequestBody;
use crate::exchange::InFlight;

/// A request with its open ledger.
#[derive(Debug)]
pub(crate) struct TrackedRequest {
    /// The request as the client sent it, or as the layers above changed it. Boxed, for each layer moves it.
    pub(crate) request: Box<Request<RequestBody>>,
    /// Its ledger.
    pub(crate) in_flight: Arc<InFlight>,
}
