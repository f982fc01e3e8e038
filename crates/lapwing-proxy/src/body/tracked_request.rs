//! What travels through the stack: the client's request with its open ledger; and what the ledger's layer asks of bodies: a request's keeps
//! the account, a response's ends it. The layer knows no other body.

use std::sync::Arc;

use http::Request;
use http_body::Body;
use hyper::body::Incoming;

use super::chunk::PieceOwner;
use super::delivery::ResponseBody;
use super::drain::DrainedRequest;
use super::request::RequestBody;
use crate::connection::{ConnectionStamps, SocketMeter};
use crate::in_flight::{AccountGuard, InFlight};
use lapwing_net::Tasks;

/// A request with its open ledger.
#[derive(Debug)]
pub(crate) struct TrackedRequest<B = RequestBody, A = InFlight> {
    /// The request as the client sent it, or as the layers above changed it. Boxed, for each layer moves it.
    pub(crate) request: Box<Request<B>>,
    /// Its ledger, and what carries it. A layer asks of it what it needs: by a trait, or as a part by [`AsRef`].
    pub(crate) in_flight: Arc<A>,
}

/// A request's body around the client's own, `B`, that keeps the account.
pub(crate) trait AccountedRequest<B, M: ConnectionStamps>: Sized {
    /// Wraps the body that the client sends.
    fn wrap(body: B, in_flight: Arc<InFlight<M>>) -> Self;
}

/// A response's body that decides when the exchange ends.
pub(crate) trait AccountedResponse<M: ConnectionStamps>: Body + Sized {
    /// From here on the body decides when the exchange ends. With `has_timing_trailer`, its trailers tell the stages.
    fn guard(&mut self, guard: AccountGuard<M>, has_timing_trailer: bool);

    /// The body of a response that has none by its status or its request's method.
    fn emptied(self, is_multiplexed: bool) -> Self;
}

impl AccountedRequest<Incoming, SocketMeter> for RequestBody {
    fn wrap(body: Incoming, in_flight: Arc<InFlight>) -> Self {
        Self::new(body, in_flight)
    }
}

impl AccountedResponse<SocketMeter> for ResponseBody {
    fn guard(&mut self, guard: AccountGuard, has_timing_trailer: bool) {
        Self::guard(self, guard, has_timing_trailer);
    }

    fn emptied(self, is_multiplexed: bool) -> Self {
        Self::emptied(self, is_multiplexed)
    }
}

impl PieceOwner for InFlight {
    fn hold_piece(self: &Arc<Self>) -> Arc<Self> {
        Self::hold_piece(self)
    }

    fn release_piece(&self, whole: bool, written: bool) {
        Self::release_piece(self, whole, written);
    }

    fn is_writing(&self) -> bool {
        self.meter.is_writing()
    }
}

impl DrainedRequest for InFlight {
    fn tasks(&self) -> &Tasks {
        &self.worker.tasks
    }

    fn is_client_closed(&self) -> bool {
        self.client.is_closed()
    }

    fn on_rest_drained(&self) {
        Self::on_rest_drained(self);
    }
}
