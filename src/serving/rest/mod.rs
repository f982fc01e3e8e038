//! The protocol's REST half: paths, bodies, errors as `{"error": …}`.

mod data;
mod elements;
mod infer;
mod list;
pub(super) mod pages;
mod request;
mod response;

use axum::Router;
use axum::routing::{get, post};

use super::router::ServerState;

/// Every path of REST, with health and metrics.
pub(super) fn routes() -> Router<ServerState> {
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
