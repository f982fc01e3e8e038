//! The pages: `/stats`, `/exchanges` and `/metrics`, made by the code that makes the sidecar's.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body::{Body, Frame, SizeHint};
use percent_encoding::percent_decode_str;
use tower_service::Service;

use crate::recording::Recording;
use lapwing_metrics::exposition::{ExpositionFormat, Scrape, ScrapeScope};
use lapwing_metrics::views::{QueryFields, StatsView, exchanges};

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// Answers GET and HEAD of `/stats`, `/exchanges` and `/metrics`, below any path. It makes a page in the thread that asks: some
/// milliseconds for hundreds of series.
#[derive(Clone, Debug)]
pub struct StatsService {
    recording: Arc<Recording>,
}

impl StatsService {
    pub(crate) const fn new(recording: Arc<Recording>) -> Self {
        Self { recording }
    }

    /// The page: its content type and its text.
    fn page(&self, uri: &Uri, head: &HeaderMap) -> Result<(&'static str, Vec<u8>), (StatusCode, String)> {
        let refused = |error: lapwing_metrics::views::QueryError| (StatusCode::BAD_REQUEST, error.to_string());
        let of = &*self.recording;
        of.flush();
        match uri.path().rsplit('/').next().unwrap_or_default() {
            "stats" => {
                let (window, names) = fields(uri).stats().map_err(refused)?;
                let limits = Recording::limits();
                json(&StatsView::of_registry(&of.registry, &of.counters, limits, of.started, window, &names))
            }
            "exchanges" => json(&exchanges(&of.registry, &fields(uri).exchanges().map_err(refused)?)),
            "metrics" => {
                let format = ExpositionFormat::accepted(head);
                let native = {
                    let registry = of.registry.lock();
                    (registry.config().native_schema, registry.config().classic_buckets)
                };
                let page = format.page(native, of.started_unix_ns, |native_schema, encoder| {
                    let scope = ScrapeScope { started: of.started, started_unix_ns: of.started_unix_ns, native_schema };
                    Scrape::of(&of.registry, &of.counters, &scope).encode(&(), encoder)
                });
                let pieces = page.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
                Ok((format.content_type(), pieces.concat()))
            }
            _ => Err((StatusCode::NOT_FOUND, "no such path; there is /stats, /exchanges, /metrics".to_owned())),
        }
    }
}

fn json(value: &impl serde::Serialize) -> Result<(&'static str, Vec<u8>), (StatusCode, String)> {
    let text = serde_json::to_vec(value).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok((JSON, text))
}

/// The fields of a form-encoded query.
fn fields(uri: &Uri) -> QueryFields {
    let decoded = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    QueryFields(pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(n, v)| (decoded(n), decoded(v))).collect())
}

impl<B> Service<Request<B>> for StatsService {
    type Response = Response<StatsBody>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let page = match *request.method() {
            Method::GET | Method::HEAD => self.page(request.uri(), request.headers()),
            _ => Err((StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered".to_owned())),
        };
        let (status, kind, text) = match page {
            Ok((kind, text)) => (StatusCode::OK, kind, text),
            Err((status, reason)) => (status, TEXT, (reason + "\n").into_bytes()),
        };
        let mut response = Response::new(StatsBody(Some(Bytes::from(text))));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        ready(Ok(response))
    }
}

/// The text of a page.
#[derive(Debug)]
pub struct StatsBody(Option<Bytes>);

impl Body for StatsBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|text| Ok(Frame::data(text))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |text| text.len() as u64))
    }
}
