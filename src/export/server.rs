//! The admin server: its paths, the headers of its responses, and how it refuses a request.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::pieces::PieceWriter;
use super::surfaces::Surfaces;
use super::{exchanges, hdr, health, prometheus, query, record, shadow, stats};
use crate::metrics::Window;
use crate::net::{self, AcceptLimits, ServerLimits};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Responses made at the same time. Further ones wait, so that many scrapes at once cannot take much memory.
const AT_ONCE: usize = 4;

/// Every path and what it shows.
pub const PATHS: &[(&str, &str)] = &[
    ("/stats", "where the time goes, per route, model and upstream (JSON); ?window=10s|1m|5m|all, default 1m"),
    ("/exchanges", "waterfalls of single requests (JSON); ?order=recent|slowest, default recent; &limit=N, default 20"),
    ("/metrics", "for Prometheus (OpenMetrics text; Prometheus text by Accept: text/plain)"),
    ("/hdr", "every histogram in full (HdrHistogram V2 interval log); ?window=10s|1m|5m|all, default all"),
    (
        "/shadow",
        "what copies of requests say of the shadow targets: faster, slower, the same (text; JSON by Accept: application/json)",
    ),
    ("/record", "POST: streams sampled requests to a process on this machine, for `lapwing record` (JSON lines)"),
    ("/config", "the effective configuration, secrets masked (JSON)"),
    ("/livez", "200 while the process runs"),
    (
        "/readyz",
        "200 while the upstream accepts connections, the engine's models are ready and lapwing is not shutting down, else 503 and why",
    ),
    ("/", "this list"),
];

#[derive(Clone)]
pub(super) struct Admin {
    pub(super) surfaces: Arc<Surfaces>,
    turns: Arc<Semaphore>,
}

impl Admin {
    /// Makes a response on a blocking thread, in pieces.
    async fn make(
        &self,
        kind: &'static str,
        make: impl FnOnce(&Surfaces, &mut PieceWriter) -> Result<(), String> + Send + 'static,
    ) -> Response {
        let surfaces = self.surfaces.clone();
        let Ok(turn) = self.turns.clone().acquire_owned().await else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "shutting down");
        };
        let (mut writer, reader) = PieceWriter::new();
        tokio::task::spawn_blocking(move || {
            let result = make(&surfaces, &mut writer);
            writer.finish(result);
            drop(turn);
        });
        reader.response(kind).await.unwrap_or_else(|reason| text(StatusCode::INTERNAL_SERVER_ERROR, reason))
    }

    /// Makes a response of JSON.
    async fn json<T: serde::Serialize>(&self, make: impl FnOnce(&Surfaces) -> T + Send + 'static) -> Response {
        self.make(JSON, move |surfaces, out| serde_json::to_writer(out, &make(surfaces)).map_err(|e| e.to_string())).await
    }
}

/// How long answers that are being written may take after the stop: a client that never finishes reading must not keep the
/// process alive.
const DRAIN: Duration = Duration::from_secs(2);
/// The pause after a failed accept.
const ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// Serves `listener` until `stop`, then ends when the responses begun are written, at the latest after two seconds.
///
/// # Errors
///
/// When the listener cannot be registered with the runtime.
pub async fn serve(listener: std::net::TcpListener, surfaces: Surfaces, stop: CancellationToken) -> io::Result<()> {
    let accept = AcceptLimits { backoff: ACCEPT_BACKOFF, ..AcceptLimits::default() };
    let limits = ServerLimits { accept, grace: DRAIN, tells_peer: true, ..ServerLimits::new("admin") };
    net::serve(net::registered(listener)?, router(surfaces), limits, stop).await;
    Ok(())
}

/// The paths as a service, without a listener.
pub fn router(surfaces: Surfaces) -> Router {
    let admin = Admin { surfaces: Arc::new(surfaces), turns: Arc::new(Semaphore::new(AT_ONCE)) };
    Router::new()
        .route("/stats", get(stats))
        .route("/exchanges", get(exchanges))
        .route("/metrics", get(metrics))
        .route("/hdr", get(hdr))
        .route("/shadow", get(shadow_report))
        .route("/record", post(record::record))
        .route("/config", get(config))
        .route("/livez", get(async || text(StatusCode::OK, "alive")))
        .route("/readyz", get(readyz))
        .route("/", get(async || text(StatusCode::OK, list())))
        .fallback(async |uri: Uri| text(StatusCode::NOT_FOUND, format!("no such path: {}; there is\n\n{}", uri.path(), list())))
        .method_not_allowed_fallback(async || {
            text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered, and POST at /record")
        })
        .with_state(admin)
        .layer(map_response(forbid_caching))
}

/// Forbids caches to keep the response, which is out of date at once.
async fn forbid_caching(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Response {
    let mut text = text.into();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    (status, [(header::CONTENT_TYPE, TEXT)], text).into_response()
}

fn list() -> String {
    PATHS.iter().map(|(path, shows)| format!("{path:<12}{shows}\n")).collect()
}

pub(super) fn refuse(error: &query::QueryError) -> Response {
    text(StatusCode::BAD_REQUEST, error.to_string())
}

async fn stats(State(admin): State<Admin>, uri: Uri) -> Response {
    match query::window(&uri, Window::default()) {
        Ok(window) => admin.json(move |surfaces| stats::stats(surfaces, window)).await,
        Err(error) => refuse(&error),
    }
}

async fn exchanges(State(admin): State<Admin>, uri: Uri) -> Response {
    match query::exchanges(&uri) {
        Ok((order, limit)) => admin.json(move |surfaces| exchanges::exchanges(surfaces, order, limit)).await,
        Err(error) => refuse(&error),
    }
}

async fn metrics(State(admin): State<Admin>, head: HeaderMap) -> Response {
    if wants_plain(&head) {
        admin.make(prometheus::PLAIN, |surfaces, out| prometheus::plain(surfaces, out).map_err(|e| e.to_string())).await
    } else {
        admin
            .make(prometheus::OPENMETRICS, |surfaces, out| prometheus::openmetrics(surfaces, out).map_err(|e| e.to_string()))
            .await
    }
}

/// Whether `Accept` names Prometheus text and not OpenMetrics text.
fn wants_plain(head: &HeaderMap) -> bool {
    accepts(head, "text/plain") && !accepts(head, "application/openmetrics-text")
}

/// Whether `Accept` names this type.
fn accepts(head: &HeaderMap, kind: &str) -> bool {
    let fields = head.get_all(header::ACCEPT).iter().filter_map(|field| field.to_str().ok());
    fields.flat_map(|field| field.split(',')).any(|range| range.split(';').next().unwrap_or_default().trim() == kind)
}

async fn shadow_report(State(admin): State<Admin>, head: HeaderMap) -> Response {
    let wants_json = accepts(&head, "application/json");
    let kind = if wants_json { JSON } else { TEXT };
    admin
        .make(kind, move |surfaces, out| match &surfaces.shadow {
            Some(shadow) if wants_json => serde_json::to_writer(out, &shadow::report(shadow)).map_err(|e| e.to_string()),
            Some(shadow) => out.write_all(shadow::text(shadow).as_bytes()).map_err(|e| e.to_string()),
            None if wants_json => out.write_all(b"{\"targets\":[]}").map_err(|e| e.to_string()),
            None => out.write_all(b"there is no shadow target; --shadow URL adds one\n").map_err(|e| e.to_string()),
        })
        .await
}

async fn hdr(State(admin): State<Admin>, uri: Uri) -> Response {
    match query::window(&uri, Window::All) {
        Ok(window) => admin.make(TEXT, move |surfaces, out| hdr::log(surfaces, window, out)).await,
        Err(error) => refuse(&error),
    }
}

async fn config(State(admin): State<Admin>) -> Response {
    admin
        .make(JSON, |surfaces, out| {
            serde_json::to_writer_pretty(&mut *out, &*surfaces.config.load()).map_err(|e| e.to_string())?;
            out.write_all(b"\n").map_err(|e| e.to_string())
        })
        .await
}

async fn readyz(State(admin): State<Admin>) -> Response {
    match health::readiness(&admin.surfaces).await {
        Ok(()) => text(StatusCode::OK, "ready"),
        Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, reason),
    }
}
