//! OTLP over HTTP: `POST /v1/traces`, `/v1/metrics` and `/v1/logs`, below any path, in protobuf or JSON, plain, gzip, deflate or
//! Zstandard.
//!
//! Responses follow the specification: they have the request's encoding; errors are `google.rpc.Status`, and none is retryable but
//! 503, which says that other bodies fill the room.

use std::io;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::post;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::decode::Undecodable;
use super::export_handler::{BodyError, ExportHandler, TIME_LIMIT, Taken, read_body};
use super::limits;
use super::packing::{ACCEPTED, coding_named};
use super::refusals::{RefusalCause, is_export};
use super::status;
use crate::collector::{Encoding, Signal};
use lapwing_compression::{BodyCoding, UnpackError};
use lapwing_net::{BoundListener, Peer};

/// Receives OTLP/HTTP on `listener` until `stop`, then lets open requests end for at most two seconds. Bodies larger than
/// `max_body` bytes, compressed or not, are refused. Must be polled in a tokio runtime.
///
/// # Errors
///
/// When the listener cannot be registered with the runtime.
pub async fn serve_http(
    listener: impl Into<BoundListener>,
    handler: ExportHandler,
    max_body: u64,
    stop: CancellationToken,
) -> io::Result<()> {
    let limits = limits::http(handler.counters());
    lapwing_net::serve(listener.into().registered()?, router(handler, max_body), limits, stop).await;
    Ok(())
}

fn router(handler: ExportHandler, max_body: u64) -> Router {
    let max_body = usize::try_from(max_body).unwrap_or(usize::MAX);
    let mut router = Router::new();
    for signal in Signal::ALL {
        let handler = handler.clone();
        let export = move |request: Request| {
            let handler = handler.of_connection(request.extensions().get::<Peer>().copied());
            async move { export(signal, &handler, max_body, request).await }
        };
        // some write a slash after it, and some have a base path before it, as their collector's gateway has
        for before in ["", "/{a}", "/{a}/{b}", "/{a}/{b}/{c}"] {
            for after in ["", "/"] {
                router = router.route(&[before, signal.http_path(), after].concat(), post(export.clone()));
            }
        }
    }
    let wrong = move |request: Request| {
        if request.method() == Method::POST && is_export(request.uri().path()) {
            handler.refused(RefusalCause::WrongPath, &format!("path {} of the HTTP port", request.uri().path()));
        }
        async { (StatusCode::NOT_FOUND, "this receiver takes OTLP only, at /v1/traces, /v1/metrics and /v1/logs") }
    };
    router.fallback(wrong)
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
enum OtlpRefusal {
    #[error("the content type must be application/x-protobuf or application/json")]
    ContentType,
    #[error("the content encoding must be gzip, deflate, zstd or none")]
    ContentEncoding,
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("the body {0}")]
    Undecodable(#[from] Undecodable),
    #[error("the body cannot be unpacked: {0}")]
    Packed(#[from] UnpackError),
    #[error("the body did not come in time")]
    TooSlow,
}

async fn export(signal: Signal, handler: &ExportHandler, max_body: usize, request: Request) -> Response {
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let encoding = Encoding::of(content_type.unwrap_or_default());
    // what an export that is refused is said to have had
    let had = match encoding {
        None => request
            .headers()
            .get(CONTENT_TYPE)
            .map_or("no content type".to_owned(), |value| format!("content-type {}", lossy(value))),
        Some(_) => {
            request.headers().get(CONTENT_ENCODING).map_or_else(String::new, |value| format!("content-encoding {}", lossy(value)))
        }
    };
    let taken = match encoding {
        None => Err(OtlpRefusal::ContentType),
        Some(encoding) => match timeout(TIME_LIMIT, take(signal, encoding, handler, max_body, request)).await {
            Ok(taken) => taken,
            Err(_) => Err(OtlpRefusal::TooSlow),
        },
    };
    let encoding = encoding.unwrap_or(Encoding::Json);
    let (status, body) = match taken {
        Ok(taken) => (StatusCode::OK, status::success(taken, encoding)),
        Err(refusal) => {
            let (status, code) = refusal.codes();
            if status == StatusCode::SERVICE_UNAVAILABLE {
                handler.busy()
            } else {
                let detail = if had.is_empty() { lapwing_net::error_text(&refusal) } else { had };
                handler.refused(refusal.cause(), &detail);
            }
            (status, status::body(code, lapwing_net::error_text(&refusal), encoding))
        }
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(encoding.content_type()));
    if status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        response.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED));
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn lossy(value: &HeaderValue) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(value.as_bytes())
}

async fn take(
    signal: Signal,
    encoding: Encoding,
    handler: &ExportHandler,
    max_body: usize,
    request: Request,
) -> Result<Taken, OtlpRefusal> {
    let packing = packing(request.headers())?;
    let body = read_body(request.into_body(), max_body, handler.room()).await?;
    // nothing waits from here on, so that one request at a time is unpacked and decoded
    let bytes = packing.unpack(&body.bytes, max_body)?;
    Ok(handler.take(signal, encoding, bytes)?)
}

fn packing(headers: &HeaderMap) -> Result<BodyCoding, OtlpRefusal> {
    let name = headers.get(CONTENT_ENCODING).map_or(&b""[..], HeaderValue::as_bytes);
    coding_named(name).ok_or(OtlpRefusal::ContentEncoding)
}

impl OtlpRefusal {
    /// Where it is counted.
    const fn cause(&self) -> RefusalCause {
        match self {
            Self::ContentType => RefusalCause::ContentType,
            Self::ContentEncoding => RefusalCause::ContentEncoding,
            Self::Body(BodyError::TooLarge(_))
            | Self::Packed(UnpackError::TooLarge(_))
            | Self::Undecodable(Undecodable::TooMany(_)) => RefusalCause::TooLarge,
            Self::Undecodable(_) | Self::Packed(_) | Self::Body(_) => RefusalCause::Undecodable,
            Self::TooSlow => RefusalCause::TooSlow,
        }
    }

    /// The HTTP status and the gRPC code.
    const fn codes(&self) -> (StatusCode, Code) {
        match self {
            Self::ContentType | Self::ContentEncoding => (StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::Unimplemented),
            Self::Body(BodyError::TooLarge(_))
            | Self::Packed(UnpackError::TooLarge(_))
            | Self::Undecodable(Undecodable::TooMany(_)) => (StatusCode::PAYLOAD_TOO_LARGE, Code::ResourceExhausted),
            Self::Body(BodyError::Busy) => (StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable),
            Self::Undecodable(_) | Self::Packed(_) | Self::Body(BodyError::Unreadable(_)) => {
                (StatusCode::BAD_REQUEST, Code::InvalidArgument)
            }
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, Code::DeadlineExceeded),
        }
    }
}
