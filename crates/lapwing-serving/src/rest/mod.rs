//! The protocol's REST half: paths, bodies, errors as `{"error": …}`.

mod elements;
mod infer;
mod list;
mod message;
pub(crate) mod pages;

use axum::Router;
use axum::routing::{get, post};

#[cfg(any(test, feature = "testing"))]
use super::error::RequestError;
#[cfg(any(test, feature = "testing"))]
use super::in_flight::InferenceRequest;
use super::state::ServerState;

/// Every path of REST, with health and metrics.
pub(crate) fn routes() -> Router<ServerState> {
    let mut router = Router::new()
        .route("/v2", get(pages::server))
        .route("/v2/", get(pages::server))
        .route("/v2/health/live", get(pages::live))
        .route("/v2/health/ready", get(pages::server_ready))
        .route("/v2/repository/index", post(pages::index))
        .route("/metrics", get(pages::metrics))
        .route("/livez", get(pages::livez))
        .route("/readyz", get(pages::readyz));
    for base in ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"] {
        router = router
            .route(base, get(pages::model))
            .route(&format!("{base}/ready"), get(pages::model_ready))
            .route(&format!("{base}/infer"), post(infer::infer));
    }
    router
}

/// What `body` asks of the model `about`; for tests only.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn decoded(
    body: &bytes::Bytes,
    json_length: Option<usize>,
    about: &lapwing_model::service::About,
) -> Result<InferenceRequest, RequestError> {
    message::decode_request(body, json_length, body.len(), about).map(|read| read.asked)
}
