//! What travels through the stack: the client's request, and its open ledger.

use std::sync::Arc;

use http::Request;

use crate::proxy::body::request::RequestBody;
use crate::proxy::exchange::in_flight::Live;

/// A request with its open ledger.
#[derive(Debug)]
pub(crate) struct Call {
    /// The request as the client sent it.
    pub(crate) request: Request<RequestBody>,
    /// Its ledger.
    pub(crate) live: Arc<Live>,
}
