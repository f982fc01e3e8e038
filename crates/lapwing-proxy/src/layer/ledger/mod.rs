//! The ledger of a proxied request: [`lapwing_tower`]'s layer, with accounts that are opened by a connection's stamps.
//!
//! Stage: ingress begins here, at the first byte of the request's head. It never reads a body, and knows neither the client's body nor the
//! connection: only where stamps come from ([`ConnectionStamps`]), and that bodies keep the account ([`AccountedRequest`],
//! [`AccountedResponse`]).

use std::marker::PhantomData;
use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::Body;

use super::failure_responses::FailedRequest;
use crate::body::{AccountedRequest, AccountedResponse, MAX_DRAINED_BYTES, TrackedRequest};
use crate::connection::ConnectionStamps;
use crate::in_flight::load_report::LoadReportFormat;
use crate::in_flight::{AccountGuard, InFlight, RequestContext, WorkerParts, server_timing};
use lapwing_ledger::{ExchangeKind, ObservedEvent, Stage};
use lapwing_tower::LedgerLayer;
use lapwing_tower::account::{AnswerAccount, OpenAccount, OpenedRequest, ResponseTerms};
use lapwing_tower::outcome::is_grpc;

/// Opens the accounts of one client connection's requests. The layers below take requests with the body `T`.
#[derive(Debug)]
pub(crate) struct ConnectionAccounts<T, M> {
    context: Arc<RequestContext>,
    worker: Arc<WorkerParts>,
    meter: Arc<M>,
    body: PhantomData<fn() -> T>,
}

impl<T, M> Clone for ConnectionAccounts<T, M> {
    fn clone(&self) -> Self {
        Self { context: self.context.clone(), worker: self.worker.clone(), meter: self.meter.clone(), body: PhantomData }
    }
}

/// Returns the layer for one client connection, with stamps by `meter`.
pub(crate) const fn layer<T, M>(
    context: Arc<RequestContext>,
    worker: Arc<WorkerParts>,
    meter: Arc<M>,
) -> LedgerLayer<ConnectionAccounts<T, M>> {
    LedgerLayer::with_accounts(ConnectionAccounts { context, worker, meter, body: PhantomData })
}

impl<B, T, M> OpenAccount<B> for ConnectionAccounts<T, M>
where
    B: Body,
    T: AccountedRequest<B, M>,
    M: ConnectionStamps,
{
    type Account = InFlight<M>;
    type Request = TrackedRequest<T, InFlight<M>>;

    fn open(&self, request: Request<B>) -> OpenedRequest<Self::Request, InFlight<M>> {
        let is_multiplexed = request.version() == Version::HTTP_2;
        let began = self.meter.head_began(is_multiplexed);
        let in_flight = InFlight::open(self.context.clone(), self.worker.clone(), self.meter.clone(), began, is_multiplexed);
        if request.body().is_end_stream() {
            in_flight.on_request_end(None);
        } else if request.headers().contains_key(header::EXPECT) {
            in_flight.client.await_continue();
        }
        if !is_multiplexed && let Some(before) = self.meter.last_closed().filter(|closed| *closed > began) {
            // pipelined: it came while the request before it was still being answered
            in_flight.write_ledger(|ledger| ledger.observe(Stage::Queue, ObservedEvent::Pipelined, began, before));
        }
        if self.context.config.respond_orca.is_on()
            && let Some(format) = LoadReportFormat::asked(request.headers())
        {
            in_flight.client.ask_load_report(format);
        }
        let is_head = request.method() == Method::HEAD;
        let has_server_timing = self.context.respond_server_timing && server_timing::accepts_trailers(&request);
        let request = Box::new(request.map(|body| T::wrap(body, in_flight.clone())));
        OpenedRequest {
            request: TrackedRequest { request, in_flight: in_flight.clone() },
            account: in_flight,
            terms: ResponseTerms { is_head, has_server_timing },
        }
    }
}

impl<R, M> AnswerAccount<R> for InFlight<M>
where
    R: AccountedResponse<M>,
    M: ConnectionStamps,
{
    type Body = R;

    fn on_answered(guard: AccountGuard<M>, mut response: Response<R>, terms: ResponseTerms) -> Response<R> {
        let Some(in_flight) = guard.get() else { return response };
        let status = response.status();
        if status == StatusCode::SWITCHING_PROTOCOLS && in_flight.read_ledger(|ledger| ledger.kind) == Some(ExchangeKind::Stream)
        {
            in_flight.detach(); // the splice has its own guard
            return response;
        }
        if terms.has_no_body(status) {
            response = response.map(|body| body.emptied(in_flight.is_multiplexed));
        }
        if in_flight.account.context.config.respond_orca.is_on() && !awaits_trailers(&response) {
            in_flight.add_load_report(response.headers_mut());
        }
        let has_timing_trailer = in_flight.account.context.respond_server_timing
            && server_timing::announce(&mut response, &in_flight.account, terms.has_server_timing);
        response.body_mut().guard(guard, has_timing_trailer);
        response
    }

    fn on_failed(_: AccountGuard<M>) {
        // no layer below fails; one that did would leave a client without an answer, which the guard counts as cancelled
    }
}

/// Whether a load report belongs in the trailers: in those of a gRPC call, unless its head is all there is, or has one.
fn awaits_trailers<R: Body>(response: &Response<R>) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    is_grpc(kind) && !response.body().is_end_stream() && !LoadReportFormat::is_in(response.headers())
}

impl FailedRequest for InFlight {
    fn is_upstream_away(&self) -> bool {
        self.worker.health.is_away()
    }

    fn leaves_rest(&self) -> bool {
        let is_left =
            || self.meter.known_body_left().is_none_or(|left| left > MAX_DRAINED_BYTES) || self.client.awaits_continue();
        self.account.stamps.request_end().is_none() && !self.is_multiplexed && is_left()
    }

    fn close_client(&self) {
        Self::close_client(self);
    }
}

#[cfg(test)]
mod tests;
