//! The admin server: its paths, the headers of its responses, and how it refuses a request.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::access::{AccessDenied, may_read, may_read_payloads};
use super::endpoints::{ENDPOINTS, list};
use super::surfaces::Surfaces;
use super::{diagnosis, hdr, health, page, prometheus, query, shadow, stats};
use lapwing_ledger::Stamp;
use lapwing_metrics::exposition::ExpositionFormat;
use lapwing_metrics::views::{self, QueryError};
use lapwing_metrics::{Counter, Window};
use lapwing_net::{AcceptLimits, MAX_ERROR_TEXT, Peer, ServerLimits};
use lapwing_settings::AdminTokenFor;

pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
pub(crate) const JSON: &str = "application/json";

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

#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) surfaces: Arc<Surfaces>,
    turns: Arc<Semaphore>,
    making: Arc<Semaphore>,
    pub(crate) streams: Arc<Semaphore>,
    /// The document of `/openapi.json`, once it was asked for.
    pub(crate) openapi: Arc<OnceLock<Bytes>>,
}

/// A response's content type, and its body in pieces.
type Content = (&'static str, Vec<Vec<u8>>);

impl Admin {
    /// Makes something on a blocking thread, when it is its turn; `None` if making it panicked.
    pub(crate) async fn made<T: Send + 'static>(&self, make: impl FnOnce(&Surfaces) -> T + Send + 'static) -> Option<T> {
        let (surfaces, making) = (self.surfaces.clone(), self.making.clone().acquire_owned().await.ok()?);
        // it goes on if the client leaves, and keeps its place until it ends
        let made = tokio::task::spawn_blocking(move || {
            let _making = making;
            make(&surfaces)
        });
        made.await.ok()
    }

    /// Makes a response on a blocking thread. It counts as one of [`AT_ONCE`] until its last byte is written.
    async fn make(&self, make: impl FnOnce(&Surfaces) -> Result<Content, String> + Send + 'static) -> Response {
        let Ok(Ok(turn)) = timeout(TURN_TIMEOUT, self.turns.clone().acquire_owned()).await else {
            self.surfaces.counters.bump(Counter::ScrapesRefused);
            let mut refused = text(StatusCode::SERVICE_UNAVAILABLE, "other answers wait to be read; try again");
            refused.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            return refused;
        };
        match self.made(make).await {
            Some(Ok((kind, body))) => ([(header::CONTENT_TYPE, kind)], in_pieces(body, turn)).into_response(),
            Some(Err(reason)) => text(StatusCode::INTERNAL_SERVER_ERROR, reason),
            None => text(StatusCode::INTERNAL_SERVER_ERROR, "making the answer panicked; see the log"),
        }
    }
}

/// Bytes of an answer, and its turn, which ends when the last of them are written.
struct HeldAnswer {
    bytes: Vec<u8>,
    _turn: Arc<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for HeldAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn in_pieces(body: Vec<Vec<u8>>, turn: OwnedSemaphorePermit) -> Response {
    let (length, turn): (usize, _) = (body.iter().map(Vec::len).sum(), Arc::new(turn));
    let pieces = body.into_iter().flat_map(move |bytes| {
        let mut rest = Bytes::from_owner(HeldAnswer { bytes, _turn: turn.clone() });
        std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| Ok::<_, Infallible>(Frame::data(rest.split_to(PIECE.min(rest.len())))))
        })
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
        accept: AcceptLimits { backoff: ACCEPT_BACKOFF, max_connections: Some(lapwing_net::control_connections()) },
        grace: DRAIN,
        counters: Some(surfaces.counters.clone()),
        first_request_timeout: Some(FIRST_REQUEST),
        idle_timeout: Some(IDLE),
        write_timeout: Some(WRITE),
        tells_peer: true,
        http1_only: true,
        ..ServerLimits::new("admin")
    };
    lapwing_net::serve(lapwing_net::registered(listener)?, router(surfaces), limits, stop).await;
    Ok(())
}

/// The paths as a service, without a listener.
pub fn router(surfaces: Surfaces) -> Router {
    let admin = Admin {
        surfaces: Arc::new(surfaces),
        turns: Arc::new(Semaphore::new(AT_ONCE)),
        making: Arc::new(Semaphore::new(MADE_AT_ONCE)),
        streams: Arc::new(Semaphore::new(page::STREAMS)),
        openapi: Arc::default(),
    };
    let routed = |is_guarded: bool| {
        let endpoints = ENDPOINTS.iter().filter(|endpoint| endpoint.is_guarded == is_guarded);
        endpoints.fold(Router::new(), |router, endpoint| router.route(endpoint.path, (endpoint.handler)()))
    };
    routed(true)
        .route_layer(from_fn_with_state(admin.clone(), ask_for_token))
        .merge(routed(false))
        .merge(page::files())
        .fallback(async |uri: Uri| {
            let path = lapwing_net::excerpt(uri.path().to_owned(), MAX_ERROR_TEXT);
            text(StatusCode::NOT_FOUND, format!("no such path: {path}; there is\n\n{}", list()))
        })
        .method_not_allowed_fallback(async || {
            text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered, and POST at /record")
        })
        .with_state(admin)
        .layer(map_response(forbid_caching))
}

/// Refuses who does not show the token, where it is asked for everything.
async fn ask_for_token(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    match &admin.surfaces.admin_token {
        Some(token) if admin.surfaces.admin_token_for == AdminTokenFor::Everything => match may_read(token, request.headers()) {
            Ok(()) => next.run(request).await,
            Err(denied) => deny(denied),
        },
        _ => next.run(request).await,
    }
}

/// Forbids caches to keep the response, which is out of date at once.
async fn forbid_caching(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Response {
    let mut text = text.into();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    (status, [(header::CONTENT_TYPE, TEXT)], text).into_response()
}

pub(crate) fn refuse(error: &QueryError) -> Response {
    text(StatusCode::BAD_REQUEST, lapwing_net::excerpt(error.to_string(), MAX_ERROR_TEXT))
}

/// Refuses to show what users sent.
pub(crate) fn deny(denied: AccessDenied) -> Response {
    let mut response = text(denied.status, denied.reason);
    if denied.status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn json(value: &impl serde::Serialize) -> Result<Content, String> {
    serde_json::to_vec(value).map(|body| (JSON, vec![body])).map_err(|e| e.to_string())
}

pub(crate) async fn stats(State(admin): State<Admin>, uri: Uri) -> Response {
    match query::stats(&uri) {
        Ok((window, names)) => admin.make(move |surfaces| json(&stats::stats(surfaces, window, &names))).await,
        Err(error) => refuse(&error),
    }
}

pub(crate) async fn exchanges(State(admin): State<Admin>, uri: Uri) -> Response {
    match query::exchanges(&uri) {
        Ok(asked) => admin.make(move |surfaces| json(&views::exchanges(&surfaces.registry, &asked))).await,
        Err(error) => refuse(&error),
    }
}

/// In words, unless JSON is asked for by name: who types `curl` wants to read.
pub(crate) async fn diagnosis(State(admin): State<Admin>, uri: Uri, head: HeaderMap) -> Response {
    let query::DiagnosisQuery { window, names, format } = match query::diagnosis(&uri) {
        Ok(asked) => asked,
        Err(error) => return refuse(&error),
    };
    let Some(surface) = admin.surfaces.diagnosis.clone() else {
        return text(StatusCode::NOT_FOUND, "nothing is diagnosed: diagnosis.enabled is off");
    };
    let wants_json = format.map_or_else(|| accepts(&head, JSON), |format| format == query::DiagnosisFormat::Json);
    admin
        .make(move |_| {
            let latest = surface.latest(window.unwrap_or(surface.window), Stamp::now());
            let chosen = diagnosis::chosen(&latest, &names);
            if wants_json { json(&chosen) } else { Ok((TEXT, vec![(surface.words)(&chosen).into_bytes()])) }
        })
        .await
}

pub(crate) async fn metrics(State(admin): State<Admin>, head: HeaderMap) -> Response {
    let format = ExpositionFormat::accepted(&head, &ExpositionFormat::ALL);
    let made = move |surfaces: &Surfaces| prometheus::write(surfaces, format).map(|body| (format.content_type(), body));
    admin.make(move |surfaces| made(surfaces).map_err(|e| e.to_string())).await
}

/// Whether `Accept` names this type.
pub(crate) fn accepts(head: &HeaderMap, kind: &str) -> bool {
    let fields = head.get_all(header::ACCEPT).iter().filter_map(|field| field.to_str().ok());
    fields.flat_map(|field| field.split(',')).any(|range| range.split(';').next().unwrap_or_default().trim() == kind)
}

/// Everyone may read what copies say; kept samples are payloads of users, and only shown to those who may read these.
pub(crate) async fn shadow_report(State(admin): State<Admin>, peer: Option<Extension<Peer>>, head: HeaderMap) -> Response {
    let wants_json = accepts(&head, "application/json");
    let access = may_read_payloads(admin.surfaces.admin_token.as_ref(), peer.map(|Extension(peer)| peer), &head);
    let payloads = match access {
        Err(denied) if denied.status == StatusCode::UNAUTHORIZED => return deny(denied),
        access => access.map_err(|denied| denied.reason),
    };
    admin
        .make(move |surfaces| match &surfaces.shadow {
            Some(shadow) if wants_json => json(&shadow::report(surfaces, shadow, payloads)),
            Some(shadow) => Ok((TEXT, vec![shadow::text(surfaces, shadow).into_bytes()])),
            None if wants_json => Ok((JSON, vec![b"{\"targets\":[]}".to_vec()])),
            None => Ok((TEXT, vec![b"there is no shadow target; --shadow URL adds one\n".to_vec()])),
        })
        .await
}

pub(crate) async fn hdr(State(admin): State<Admin>, uri: Uri) -> Response {
    match query::window(&uri, Window::All) {
        Ok(window) => {
            let log = move |surfaces: &Surfaces| {
                let mut log = Vec::new();
                hdr::log(surfaces, window, &mut log).map(|()| (TEXT, vec![log]))
            };
            admin.make(log).await
        }
        Err(error) => refuse(&error),
    }
}

pub(crate) async fn config(State(admin): State<Admin>) -> Response {
    admin
        .make(|surfaces| {
            let mut body = serde_json::to_vec_pretty(&*surfaces.config.load()).map_err(|e| e.to_string())?;
            body.push(b'\n');
            Ok((JSON, vec![body]))
        })
        .await
}

pub(crate) async fn livez() -> Response {
    text(StatusCode::OK, "alive")
}

pub(crate) async fn readyz(State(admin): State<Admin>) -> Response {
    match health::readiness(&admin.surfaces).await {
        Ok(()) => text(StatusCode::OK, "ready"),
        Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, reason),
    }
}
