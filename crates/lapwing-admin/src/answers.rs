//! How an answer is made: in turn and on a blocking thread, handed out in pieces, or refused. Every handler has [`Admin`] and these forms.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::access::AccessDenied;
use super::surfaces::Surfaces;
use lapwing_metrics::Counter;
use lapwing_metrics::views::QueryError;
use lapwing_net::MAX_ERROR_TEXT;

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

/// What every handler has: the surfaces, and whose turn it is.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) surfaces: Arc<Surfaces>,
    turns: Arc<Semaphore>,
    making: Arc<Semaphore>,
    pub(crate) streams: Arc<Semaphore>,
    /// Makes the document of `/openapi.json` of the schema of the configuration.
    make_openapi: fn(&serde_json::Value) -> serde_json::Value,
    /// That document, once it was asked for.
    openapi: Arc<OnceLock<Bytes>>,
}

/// A response's content type, and its body in pieces.
pub(crate) type Content = (&'static str, Vec<Vec<u8>>);

impl Admin {
    /// Answers from `surfaces`, with at most `streams` streams at the same time.
    pub(crate) fn new(surfaces: Surfaces, streams: usize, make_openapi: fn(&serde_json::Value) -> serde_json::Value) -> Self {
        Self {
            surfaces: Arc::new(surfaces),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            making: Arc::new(Semaphore::new(MADE_AT_ONCE)),
            streams: Arc::new(Semaphore::new(streams)),
            make_openapi,
            openapi: Arc::default(),
        }
    }

    /// The document of `/openapi.json`, which is made at the first request.
    pub(crate) fn openapi(&self) -> Bytes {
        self.openapi.get_or_init(|| (self.make_openapi)(&self.surfaces.config_schema).to_string().into()).clone()
    }

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
    pub(crate) async fn make(&self, make: impl FnOnce(&Surfaces) -> Result<Content, String> + Send + 'static) -> Response {
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

/// Hands a body to the socket by pieces, and holds the turn until the last one is written.
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

/// An answer in words, which end their line.
pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Response {
    let mut text = text.into();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    (status, [(header::CONTENT_TYPE, TEXT)], text).into_response()
}

/// Refuses a bad query.
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

/// A value as JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<Content, String> {
    serde_json::to_vec(value).map(|body| (JSON, vec![body])).map_err(|e| e.to_string())
}

/// Whether `Accept` names this type.
pub(crate) fn accepts(head: &HeaderMap, kind: &str) -> bool {
    let fields = head.get_all(header::ACCEPT).iter().filter_map(|field| field.to_str().ok());
    fields.flat_map(|field| field.split(',')).any(|range| range.split(';').next().unwrap_or_default().trim() == kind)
}
