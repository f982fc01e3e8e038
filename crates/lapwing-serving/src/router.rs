//! The routes of REST and gRPC, and the answers to unknown paths.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Uri};
use tokio::sync::Semaphore;

use super::body::BodyBudget;
use super::catalogue::Catalogue;
use super::error::{RequestError, cut_message};
use super::limits::Limits;
use super::rest::pages::error_response;
use super::state::ServerState;
use super::{grpc, rest};

/// Every path of the Open Inference Protocol, health and metrics, to be served by [`serve_router`](super::serve_router).
pub fn router(catalogue: Arc<Catalogue>, limits: Limits) -> Router {
    let slots = Arc::new(Semaphore::new(limits.max_in_flight.min(Semaphore::MAX_PERMITS)));
    let bodies = BodyBudget::new(limits.body_budget_bytes());
    rest::routes()
        .merge(grpc::routes())
        .fallback(unknown)
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            error_response(&RequestError::Method(format!("{method}: is not the method of {}", uri.path())))
        })
        .with_state(ServerState { catalogue, limits, slots, bodies })
}

async fn unknown(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path();
    if headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).is_some_and(|kind| kind.starts_with(b"application/grpc")) {
        return tonic::Status::unimplemented(cut_message(format!("{path}: is not served here"))).into_http::<Body>();
    }
    error_response(&RequestError::Unknown(format!("{method} {path}: is not served here")))
}
