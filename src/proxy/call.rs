//! What travels through the stack: the client's request, and its open ledger.

use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;

use super::live::Live;

/// A request with its open ledger.
#[derive(Debug)]
pub(crate) struct Call {
    /// The request as the client sent it.
    pub(crate) request: Request<Incoming>,
    /// Its ledger.
    pub(crate) live: Arc<Live>,
}
