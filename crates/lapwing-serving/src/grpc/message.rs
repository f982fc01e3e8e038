//! Receives a call's message: whole, within the limits that REST has, and decompressed here, because what it may become depends on how
//! many bytes came.

use axum::body::Body;
use axum::extract::Request;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use http::request::Parts;
use http_body::Frame;
use http_body_util::StreamBody;
use std::convert::Infallible;

use crate::body::{ReceivedBody, collect, unpack};
use crate::body_budget::BodyShare;
use crate::error::RequestError;
use crate::state::ServerState;
use lapwing_compression::ContentCoding;

/// The flag and the length before a message.
const PREFIX: usize = 5;
const ENCODING: &str = "grpc-encoding";

/// A call whose message is here.
pub(crate) struct ReceivedMessage {
    /// The request, uncompressed.
    pub(crate) request: Request,
    /// Bytes of the body as it came.
    pub(crate) received: usize,
    pub(crate) share: BodyShare,
}

/// Receives the body of a call. A compressed message that is broken, or not in gzip, is left to tonic, which knows the answer.
pub(crate) async fn receive(mut head: Parts, body: Body, shared: &ServerState) -> Result<ReceivedMessage, RequestError> {
    let limits = &shared.limits;
    let ReceivedBody { bytes, mut share } = collect(body, limits.max_body_bytes().saturating_add(PREFIX), limits, &shared.bodies)
        .await
        .map_err(|error| match error {
            RequestError::TooLarge { .. } => RequestError::TooLarge { limit: limits.max_body_bytes() },
            other => other,
        })?;
    let received = bytes.len();
    let is_gzip = head.headers.get(ENCODING).is_some_and(|name| name == "gzip");
    let packed = (is_gzip && bytes.first() == Some(&1)).then(|| bytes.get(PREFIX..)).flatten();
    let body = match packed {
        None => Body::from(bytes),
        Some(_) => {
            let packed = ReceivedBody { bytes: bytes.slice(PREFIX..), share };
            let (budget, limits) = (packed.share.another(), *limits);
            drop(bytes);
            let unpacked = tokio::task::spawn_blocking(move || unpack(packed, ContentCoding::Gzip.into(), &limits)).await;
            let unpacked = unpacked
                .unwrap_or_else(|error| Err(RequestError::Output(format!("the message could not be unpacked: {error}"))))?;
            share = budget;
            share.grow_to(unpacked.len())?;
            head.headers.remove(ENCODING);
            framed(unpacked)
        }
    };
    Ok(ReceivedMessage { request: Request::from_parts(head, body), received, share })
}

/// A body of one uncompressed message.
fn framed(message: Bytes) -> Body {
    let mut prefix = BytesMut::with_capacity(PREFIX);
    prefix.put_u8(0);
    // longer messages are above any limit
    prefix.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    let frames = [prefix.freeze(), message].map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
    Body::new(StreamBody::new(stream::iter(frames)))
}
