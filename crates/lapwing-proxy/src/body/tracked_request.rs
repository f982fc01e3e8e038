//! What travels through the stack: the client's request with its open ledger.

use std::sync::Arc;

use http::Request;

use super::request::RequestBody;
use crate::connection::SocketMeter;
use crate::in_flight::InFlight;

/// A request with its open ledger.
#[derive(Debug)]
pub(crate) struct TrackedRequest<B = RequestBody, M = SocketMeter> {
    /// The request as the client sent it, or as the layers above changed it. Boxed, for each layer moves it.
    pub(crate) request: Box<Request<B>>,
    /// Its ledger.
    pub(crate) in_flight: Arc<InFlight<M>>,
}
