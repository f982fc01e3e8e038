//! The innermost service: carries a request to the upstream over HTTP/1.1 or HTTP/2 and brings the response back.

mod carry;
mod client_upstreams;
mod context;
mod convert;
mod h1;
mod h2;
mod h2_connection;
mod h2_open;
mod h2_pool;
mod h2_upload;
mod head_copy;
mod hedged;
mod interim;
mod pool;
mod traits;
mod trust;
mod upgrade;

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};

pub(crate) use self::client_upstreams::{ClientUpstreams, ConnectionUpstreams};
pub(crate) use self::context::UpstreamContext;
pub(crate) use self::h2_pool::{CONNECTION_WINDOW, H2Pool, STREAM_WINDOW};
pub(crate) use pool::ConnectionPool;
pub(crate) use traits::{KnowsTraits, UpstreamTraits};

use self::carry::{Answered, carry};
use crate::body::{ResponseBody, TrackedRequest};
use crate::error::Error;
use crate::in_flight::InFlight;
use lapwing_metrics::Counter;

impl KnowsTraits for ClientUpstreams {
    fn traits<B>(&self, request: &Request<B>) -> &Arc<UpstreamTraits> {
        &self.of(request).context.traits
    }
}

impl tower::Service<TrackedRequest> for ClientUpstreams {
    type Response = Response<ResponseBody>;
    type Error = Error;
    type Future = Answered;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut tracked: TrackedRequest) -> Self::Future {
        if let Some(turn) = self.second_turn(&mut tracked.request) {
            return Box::pin(hedged::hedged(self.clone(), turn, tracked));
        }
        let upstream = self.of(&tracked.request);
        let elsewhere = self.elsewhere(&mut tracked.request);
        carry(upstream, elsewhere, tracked)
    }
}

impl interim::InterimReceiver for InFlight {
    fn is_multiplexed(&self) -> bool {
        self.is_multiplexed
    }

    fn interject(&self, response: &[u8]) {
        if !self.is_silent() && !self.meter.interject(response) {
            self.account.context.counters.bump(Counter::InterimDropped);
        }
    }
}
