//! OTLP over HTTP: `POST /v1/traces`, `/v1/metrics` and `/v1/logs`, in protobuf or JSON, plain or gzip.
//!
//! Responses follow the specification: they have the request's encoding; errors are `google.rpc.Status`, and none is retryable.

use std::io;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::decode::Malformed;
use super::export_handler::{ExportHandler, TIME_LIMIT};
use super::limits;
use super::signal::{Encoding, Signal};
use super::status;
use crate::net::{self, GunzipError, Peer, gunzip};

/// Receives OTLP/HTTP on `listener` until `stop`, then lets open requests end for at most two seconds. Bodies larger than
/// `max_body` bytes, compressed or not, are refused. Must be polled in a tokio runtime.
///
/// # Errors
///
/// When the listener cannot be registered with the runtime.
pub async fn serve_http(
    listener: std::net::TcpListener,
    handler: ExportHandler,
    max_body: u64,
    stop: CancellationToken,
) -> io::Result<()> {
    net::serve(net::registered(listener)?, router(handler, max_body), limits::http(), stop).await;
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
        router = router.route(signal.http_path(), post(export));
    }
    router
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
enum OtlpRefusal {
    #[error("the content type must be application/x-protobuf or application/json")]
    ContentType,
    #[error("the content encoding must be gzip or none")]
    ContentEncoding,
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the body {0}")]
    Malformed(#[from] Malformed),
    #[error("the body cannot be read: {0}")]
    Unreadable(String),
    #[error("the body did not come in time")]
    TooSlow,
}

async fn export(signal: Signal, handler: &ExportHandler, max_body: usize, request: Request) -> Response {
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let encoding = Encoding::of(content_type.unwrap_or_default());
    let taken = match encoding {
        None => Err(OtlpRefusal::ContentType),
        Some(encoding) => match timeout(TIME_LIMIT, take(signal, encoding, handler, max_body, request)).await {
            Ok(taken) => taken,
            Err(_) => Err(OtlpRefusal::TooSlow),
        },
    };
    let encoding = encoding.unwrap_or(Encoding::Json);
    let (status, body) = match taken {
        Ok(()) => (StatusCode::OK, if encoding == Encoding::Json { Bytes::from_static(b"{}") } else { Bytes::new() }),
        Err(refusal) => {
            handler.refused();
            let (status, code) = refusal.codes();
            (status, status::body(code, refusal.to_string(), encoding).into())
        }
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(encoding.content_type()));
    response
}

async fn take(
    signal: Signal,
    encoding: Encoding,
    handler: &ExportHandler,
    max_body: usize,
    request: Request,
) -> Result<(), OtlpRefusal> {
    let packed = is_packed(request.headers())?;
    let _permit = handler.admit().await;
    let body = Limited::new(request.into_body(), max_body).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() { OtlpRefusal::TooLarge(max_body) } else { OtlpRefusal::Unreadable(error.to_string()) }
    })?;
    let body = body.to_bytes();
    let body = if packed { unpack(&body, max_body)? } else { body };
    Ok(handler.take(signal, encoding, body)?)
}

fn is_packed(headers: &HeaderMap) -> Result<bool, OtlpRefusal> {
    match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"" | b"identity") => Ok(false),
        Some(name) if name.eq_ignore_ascii_case(b"gzip") => Ok(true),
        Some(_) => Err(OtlpRefusal::ContentEncoding),
    }
}

fn unpack(packed: &[u8], max_body: usize) -> Result<Bytes, OtlpRefusal> {
    gunzip(packed, max_body).map_err(|error| match error {
        GunzipError::TooLarge(limit) => OtlpRefusal::TooLarge(limit),
        GunzipError::Corrupt(error) => OtlpRefusal::Unreadable(error.to_string()),
    })
}

impl OtlpRefusal {
    /// The HTTP status and the gRPC code.
    const fn codes(&self) -> (StatusCode, Code) {
        match self {
            Self::ContentType | Self::ContentEncoding => (StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::Unimplemented),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, Code::ResourceExhausted),
            Self::Malformed(_) | Self::Unreadable(_) => (StatusCode::BAD_REQUEST, Code::InvalidArgument),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, Code::DeadlineExceeded),
        }
    }
}
