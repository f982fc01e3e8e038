//! The paths of the webhook and of its admin address.

use std::sync::Arc;

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{StatusCode, header};
use lapwing_ledger::Stamp;
use tokio_util::sync::CancellationToken;

use super::metrics::WebhookMetrics;
use super::review::{ReviewResult, review};
use crate::options::InjectOptions;

/// The largest review: the API server takes objects of 3 MiB, and a review has at most two.
pub const MAX_REVIEW_BYTES: usize = 7 << 20;

/// `Content-Type` of OpenMetrics text.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone)]
struct Webhook {
    options: Arc<InjectOptions>,
    metrics: Arc<WebhookMetrics>,
}

/// The paths that the API server calls: `/inject` for pods that ask for Lapwing, `/inject/namespace` for pods of a namespace that does.
pub fn router(options: InjectOptions, metrics: Arc<WebhookMetrics>) -> Router {
    let webhook = Webhook { options: Arc::new(options), metrics };
    Router::new()
        .route("/inject", post(async |State(webhook): State<Webhook>, request: Request| webhook.answer(request, false).await))
        .route(
            "/inject/namespace",
            post(async |State(webhook): State<Webhook>, request: Request| webhook.answer(request, true).await),
        )
        .fallback(async || said(StatusCode::NOT_FOUND, "no such path; there are /inject and /inject/namespace".to_owned()))
        .method_not_allowed_fallback(async || said(StatusCode::METHOD_NOT_ALLOWED, "a review comes by POST".to_owned()))
        .with_state(webhook)
}

/// Whether it is alive and ready, and what it has done. It is no longer ready once `draining` is cancelled.
pub fn admin_router(metrics: Arc<WebhookMetrics>, draining: CancellationToken) -> Router {
    let text = move || {
        let metrics = metrics.clone();
        async move { ([(header::CONTENT_TYPE, OPENMETRICS)], metrics.text()) }
    };
    let ready = move || {
        let is_draining = draining.is_cancelled();
        async move {
            if is_draining {
                said(StatusCode::SERVICE_UNAVAILABLE, "draining".to_owned())
            } else {
                said(StatusCode::OK, "ready".to_owned())
            }
        }
    };
    Router::new().route("/livez", get(async || "alive")).route("/readyz", get(ready)).route("/metrics", get(text))
}

impl Webhook {
    async fn answer(&self, request: Request, by_default: bool) -> Response {
        let Ok(body) = to_bytes(request.into_body(), MAX_REVIEW_BYTES).await else {
            self.metrics.reviewed("malformed", 0.0);
            return said(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the review has more than {MAX_REVIEW_BYTES} bytes, or broke off"),
            );
        };
        let began = Stamp::now();
        let (result, response) = self.reviewed(&body, by_default);
        self.metrics.reviewed(result, began.elapsed() as f64 / 1e9);
        response
    }

    fn reviewed(&self, body: &Bytes, by_default: bool) -> (&'static str, Response) {
        match review(body, by_default, &self.options) {
            Ok((answer, result)) => {
                if result == ReviewResult::Refused {
                    tracing::warn!(reason = %answer["response"]["auditAnnotations"]["reason"], "a pod is made without Lapwing");
                }
                let response = ([(header::CONTENT_TYPE, "application/json")], answer.to_string()).into_response();
                (result.name(), response)
            }
            Err(error) => ("malformed", said(StatusCode::BAD_REQUEST, error.to_string())),
        }
    }
}

fn said(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text + "\n").into_response()
}
