//! The admin server: its paths, the headers of its responses, and how it refuses a request.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::access::{AccessDenied, may_read_payloads};
use super::surfaces::Surfaces;
use super::{exchanges, hdr, health, prometheus, query, record, shadow, stats};
use crate::metrics::{Counter, Window};
use crate::net::{self, AcceptLimits, MAX_ERROR_TEXT, Peer, ServerLimits};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Answers that are made, or wait to be read, at the same time. Further ones wait, so that many scrapes at once cannot take much
/// memory, whether they are read or not.
const AT_ONCE: usize = 4;
/// Answers that are made at the same time: the processors are for the requests.
const MADE_AT_ONCE: usize = 1;
/// How long a request waits to be one of them, before it gets 503.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// Answers are handed to the socket in pieces of this size.
const PIECE: usize = 64 << 10;
/// The time for a connection's first request to come.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// A connection without a request is closed after this time: above the minute between two scrapes.
const IDLE: Duration = Duration::from_secs(120);
/// The time for an answer to be read, longer by what is read meanwhile.
const WRITE: Duration = Duration::from_secs(5);

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
    (
        "/record",
        "POST: streams sampled requests to a process on this machine or with the admin token, for `lapwing record` (JSON lines)",
    ),
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
    making: Arc<Semaphore>,
}

/// A response's content type and body.
type Content = (&'static str, Vec<u8>);

impl Admin {
    /// Makes a response on a blocking thread. It counts as one of [`AT_ONCE`] until its last byte is written.
    async fn make(&self, make: impl FnOnce(&Surfaces) -> Result<Content, String> + Send + 'static) -> Response {
        let surfaces = self.surfaces.clone();
        let Ok(Ok(turn)) = timeout(TURN_TIMEOUT, self.turns.clone().acquire_owned()).await else {
            surfaces.counters.bump(Counter::ScrapesRefused);
            let mut refused = text(StatusCode::SERVICE_UNAVAILABLE, "other answers wait to be read; try again");
            refused.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            return refused;
        };
        let Ok(making) = self.making.clone().acquire_owned().await else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "shutting down");
        };
        // it goes on if the client leaves, and keeps its place until it ends
        let made = tokio::task::spawn_blocking(move || {
            let _making = making;
            make(&surfaces)
        });
        match made.await {
            Ok(Ok((kind, body))) => ([(header::CONTENT_TYPE, kind)], in_pieces(body, turn)).into_response(),
            Ok(Err(reason)) => text(StatusCode::INTERNAL_SERVER_ERROR, reason),
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "making the answer panicked; see the log"),
        }
    }
}

/// The bytes of an answer, and its turn: both are held until the last piece is written.
struct HeldAnswer {
    bytes: Vec<u8>,
    _turn: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for HeldAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn in_pieces(bytes: Vec<u8>, turn: OwnedSemaphorePermit) -> Response {
    let length = bytes.len();
    let mut rest = Bytes::from_owner(HeldAnswer { bytes, _turn: turn });
    let pieces = std::iter::from_fn(move || {
        (!rest.is_empty()).then(|| Ok::<_, Infallible>(Frame::data(rest.split_to(PIECE.min(rest.len())))))
    });
    let body = Body::new(StreamBody::new(futures_util::stream::iter(pieces)));
    ([(header::CONTENT_LENGTH, length)], body).into_response()
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
    let limits = ServerLimits {
        accept: AcceptLimits { backoff: ACCEPT_BACKOFF, max_connections: Some(net::control_connections()) },
        grace: DRAIN,
        counters: Some(surfaces.counters.clone()),
        first_request_timeout: Some(FIRST_REQUEST),
        idle_timeout: Some(IDLE),
        write_timeout: Some(WRITE),
        tells_peer: true,
        http1_only: true,
        ..ServerLimits::new("admin")
    };
    net::serve(net::registered(listener)?, router(surfaces), limits, stop).await;
    Ok(())
}

/// The paths as a service, without a listener.
pub fn router(surfaces: Surfaces) -> Router {
    let admin = Admin {
        surfaces: Arc::new(surfaces),
        turns: Arc::new(Semaphore::new(AT_ONCE)),
        making: Arc::new(Semaphore::new(MADE_AT_ONCE)),
    };
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
        .fallback(async |uri: Uri| {
            let path = net::excerpt(uri.path().to_owned(), MAX_ERROR_TEXT);
            text(StatusCode::NOT_FOUND, format!("no such path: {path}; there is\n\n{}", list()))
        })
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
    text(StatusCode::BAD_REQUEST, net::excerpt(error.to_string(), MAX_ERROR_TEXT))
}

/// Refuses to show what users sent.
pub(super) fn deny(denied: AccessDenied) -> Response {
    let mut response = text(denied.status, denied.reason);
    if denied.status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn json(value: &impl serde::Serialize) -> Result<Content, String> {
    serde_json::to_vec(value).map(|body| (JSON, body)).map_err(|e| e.to_string())
}

async fn stats(State(admin): State<Admin>, uri: Uri) -> Response {
    match query::window(&uri, Window::default()) {
        Ok(window) => admin.make(move |surfaces| json(&stats::stats(surfaces, window))).await,
        Err(error) => refuse(&error),
    }
}

async fn exchanges(State(admin): State<Admin>, uri: Uri) -> Response {
    match query::exchanges(&uri) {
        Ok((order, limit)) => admin.make(move |surfaces| json(&exchanges::exchanges(surfaces, order, limit))).await,
        Err(error) => refuse(&error),
    }
}

async fn metrics(State(admin): State<Admin>, head: HeaderMap) -> Response {
    let is_plain = wants_plain(&head);
    admin
        .make(move |surfaces| {
            let mut text = String::new();
            let (kind, made) = match is_plain {
                true => (prometheus::PLAIN, prometheus::plain(surfaces, &mut text)),
                false => (prometheus::OPENMETRICS, prometheus::openmetrics(surfaces, &mut text)),
            };
            made.map(|()| (kind, text.into_bytes())).map_err(|e| e.to_string())
        })
        .await
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

/// Everyone may read what copies say; kept samples are payloads of users, and only shown to those who may read these.
async fn shadow_report(State(admin): State<Admin>, peer: Option<Extension<Peer>>, head: HeaderMap) -> Response {
    let wants_json = accepts(&head, "application/json");
    let access = may_read_payloads(admin.surfaces.admin_token.as_ref(), peer.map(|Extension(peer)| peer), &head);
    let payloads = match access {
        Err(denied) if denied.status == StatusCode::UNAUTHORIZED => return deny(denied),
        access => access.map_err(|denied| denied.reason),
    };
    admin
        .make(move |surfaces| match &surfaces.shadow {
            Some(shadow) if wants_json => json(&shadow::report(surfaces, shadow, payloads)),
            Some(shadow) => Ok((TEXT, shadow::text(surfaces, shadow).into_bytes())),
            None if wants_json => Ok((JSON, b"{\"targets\":[]}".to_vec())),
            None => Ok((TEXT, b"there is no shadow target; --shadow URL adds one\n".to_vec())),
        })
        .await
}

async fn hdr(State(admin): State<Admin>, uri: Uri) -> Response {
    match query::window(&uri, Window::All) {
        Ok(window) => {
            let log = move |surfaces: &Surfaces| {
                let mut log = Vec::new();
                hdr::log(surfaces, window, &mut log).map(|()| (TEXT, log))
            };
            admin.make(log).await
        }
        Err(error) => refuse(&error),
    }
}

async fn config(State(admin): State<Admin>) -> Response {
    admin
        .make(|surfaces| {
            let mut body = serde_json::to_vec_pretty(&*surfaces.config.load()).map_err(|e| e.to_string())?;
            body.push(b'\n');
            Ok((JSON, body))
        })
        .await
}

async fn readyz(State(admin): State<Admin>) -> Response {
    match health::readiness(&admin.surfaces).await {
        Ok(()) => text(StatusCode::OK, "ready"),
        Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, reason),
    }
}
