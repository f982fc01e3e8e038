//! OTLP over gRPC: the three collector services, plain, gzip, deflate or Zstandard. Messages stay bytes until their content is needed.

use std::io;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use http_body_util::Full;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::server::Grpc;

use super::decode::Undecodable;
use super::export_handler::{BodyError, ExportHandler, TIME_LIMIT, read_body};
use super::limits;
use super::packing::{ACCEPTED, coding_named};
use super::refusals::{RefusalCause, is_export};
use super::status;
use crate::collector::{Encoding, Signal};
use lapwing_compression::UnpackError;
use lapwing_net::{BoundListener, Peer};
use lapwing_protocol::BytesCodec;

const STATUS: &str = "grpc-status";
const UNAVAILABLE: &str = "14";
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// Bytes before a message: whether it is packed, and its length.
const FRAME: usize = 5;

/// Receives OTLP/gRPC on `listener` until `stop`, then lets open requests end for at most two seconds. Messages larger than
/// `max_body` bytes, decompressed, are refused. Must be polled in a tokio runtime.
///
/// # Errors
///
/// When the listener cannot be registered with the runtime.
pub async fn serve_grpc(
    listener: impl Into<BoundListener>,
    handler: ExportHandler,
    max_body: u64,
    stop: CancellationToken,
) -> io::Result<()> {
    let limits = limits::grpc(handler.counters());
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
        router = router.route(signal.grpc_path(), any(export));
    }
    router.fallback(move |request: Request| {
        if request.method() == Method::POST && is_export(request.uri().path()) {
            handler.refused(RefusalCause::WrongPath, &format!("path {} of the gRPC port", request.uri().path()));
        }
        let is_http1 = request.version() < Version::HTTP_2;
        async move {
            if is_http1 {
                let text = "this port takes OTLP over gRPC; OTLP over HTTP goes to that of otlp_http, at /v1/traces";
                return (StatusCode::NOT_FOUND, text).into_response();
            }
            tonic::Status::unimplemented("this receiver takes OTLP over gRPC only").into_http::<Body>()
        }
    })
}

async fn export(signal: Signal, handler: &ExportHandler, max_body: usize, request: Request) -> Response {
    let had = request.headers().get("grpc-encoding").map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let received = timeout(TIME_LIMIT, receive(signal, handler, max_body, request));
    let mut response = match received.await {
        Ok(Ok(response)) => response,
        Ok(Err(status)) => status.into_http(),
        Err(_) => tonic::Status::deadline_exceeded("the request did not come in time").into_http(),
    };
    // an error is in the head; a success is in the trailers
    if let Some(status) = response.headers_mut().get_mut(STATUS).filter(|status| *status != "0") {
        if *status == UNAVAILABLE {
            handler.busy()
        } else {
            let cause = cause(status.as_bytes());
            let had = had.map_or_else(|| "uncompressed".to_owned(), |encoding| format!("grpc-encoding {encoding}"));
            handler.refused(cause, &had);
        }
        // tonic's OUT_OF_RANGE for a message that is too large is retryable in OTLP: the exporter would send it again and again
        if *status == "11" {
            *status = HeaderValue::from_static("8");
        }
        lapwing_net::cut_grpc_message(response.headers_mut());
    }
    response
}

/// Why a call with this status was refused.
fn cause(status: &[u8]) -> RefusalCause {
    match status {
        b"4" => RefusalCause::TooSlow,
        b"8" | b"11" => RefusalCause::TooLarge,
        // of a known path only a compression that is not read is not implemented
        b"12" => RefusalCause::ContentEncoding,
        _ => RefusalCause::Undecodable,
    }
}

/// Reads the whole request before any of it is unpacked: a client that never ends its stream would keep what it unpacked to.
async fn receive(signal: Signal, handler: &ExportHandler, max_body: usize, request: Request) -> Result<Response, tonic::Status> {
    let (mut head, body) = request.into_parts();
    let held = read_body(body, max_body.saturating_add(FRAME), handler.room()).await.map_err(|error| match error {
        BodyError::TooLarge(_) => tonic::Status::resource_exhausted(error.to_string()),
        BodyError::Busy => tonic::Status::unavailable(error.to_string()),
        BodyError::Unreadable(_) => tonic::Status::cancelled(error.to_string()),
    })?;
    let message = unpacked(&mut head.headers, held.bytes.clone(), max_body)?;
    let request = http::Request::from_parts(head, Full::new(message));
    let handler = handler.clone();
    let take = tower::service_fn(move |message: tonic::Request<Bytes>| {
        let taken = handler.take(signal, Encoding::Protobuf, message.into_inner());
        let response = taken.map(|taken| tonic::Response::new(Bytes::from(status::success(taken, Encoding::Protobuf))));
        std::future::ready(response.map_err(|error| match error {
            Undecodable::TooMany(_) => tonic::Status::resource_exhausted(format!("the message {error}")),
            _ => tonic::Status::invalid_argument(format!("the message {error}")),
        }))
    });
    let response = Grpc::new(BytesCodec).apply_max_message_size_config(Some(max_body), None).unary(take, request).await;
    Ok(response.map(Body::new))
}

/// The frame of a message as it is without compression. What is no packed message, and only one, is left to tonic.
fn unpacked(headers: &mut HeaderMap, framed: Bytes, max_body: usize) -> Result<Bytes, tonic::Status> {
    let Some(encoding) = headers.remove(&ENCODING) else { return Ok(framed) };
    let [1, a, b, c, d, ..] = framed[..] else { return Ok(framed) };
    let message = framed.slice(FRAME..);
    if usize::try_from(u32::from_be_bytes([a, b, c, d])) != Ok(message.len()) {
        return Err(tonic::Status::invalid_argument("the call has not one message"));
    }
    let coding = coding_named(encoding.as_bytes()).ok_or_else(|| {
        let name = String::from_utf8_lossy(encoding.as_bytes());
        let mut status = tonic::Status::unimplemented(format!("the encoding {name} is not read; these are: {ACCEPTED}"));
        status.metadata_mut().insert("grpc-accept-encoding", tonic::metadata::MetadataValue::from_static(ACCEPTED));
        status
    })?;
    let message = coding.unpack(&message, max_body).map_err(|error| match error {
        UnpackError::TooLarge(_) => tonic::Status::resource_exhausted(format!("the message is {error}")),
        UnpackError::Corrupt(_) => tonic::Status::invalid_argument(format!("the message cannot be unpacked: {error}")),
    })?;
    let length = u32::try_from(message.len()).map_err(|_| tonic::Status::resource_exhausted("the message is too large"))?;
    let mut plain = BytesMut::with_capacity(FRAME + message.len());
    plain.put_u8(0);
    plain.put_u32(length);
    plain.extend_from_slice(&message);
    Ok(plain.freeze())
}
