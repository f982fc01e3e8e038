//! Reads a request's body whole, within limits of size, time and memory, and decompresses it. Sizes are bytes.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};
use http_body::Body as _;
use http_body_util::BodyExt;

use super::body_budget::{BodyBudget, BodyShare};
use super::bounds::{expands, expansion};
use super::error::RequestError;
use super::limits::Limits;
use lapwing_compression::{BodyCoding, ContentCoding, UnpackError};

/// The step in which the memory of a body is counted.
const HELD_STEP: usize = 64 << 10;
/// A body of unknown length is copied as it grows up to this size …
const SMALL: usize = 1 << 20;
/// … and beyond it as much is reserved, if it may have as much.
const RESERVED: usize = 64 << 20;
/// The codings of a body that are decoded.
const ACCEPTED: [ContentCoding; 2] = [ContentCoding::Gzip, ContentCoding::Deflate];

/// The coding that the head names.
pub(crate) fn coding(headers: &HeaderMap) -> Result<BodyCoding, RequestError> {
    let name = headers.get(CONTENT_ENCODING).map_or(&b""[..], HeaderValue::as_bytes);
    BodyCoding::named(name, &ACCEPTED).ok_or_else(|| RequestError::Encoding(String::from_utf8_lossy(name).into_owned()))
}

/// A body as it was received, with its share of the budget.
#[derive(Debug)]
pub(crate) struct ReceivedBody {
    pub(crate) bytes: Bytes,
    pub(crate) share: BodyShare,
}

/// Reads a body of at most `limit` bytes, still compressed.
pub(crate) async fn collect(
    body: Body,
    limit: usize,
    limits: &Limits,
    budget: &Arc<BodyBudget>,
) -> Result<ReceivedBody, RequestError> {
    if body.size_hint().lower() > limit as u64 {
        return Err(RequestError::TooLarge { limit });
    }
    let read = tokio::time::timeout(limits.body_timeout.get(), read(body, limit, budget.share())).await;
    read.unwrap_or_else(|_| Err(RequestError::Slow { ms: limits.body_timeout.get().as_millis() }))
}

/// Copies the pieces into one buffer. Kept as they come, small pieces would each hold the read buffer that they lie in.
async fn read(mut body: Body, limit: usize, mut share: BodyShare) -> Result<ReceivedBody, RequestError> {
    let declared = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
    let mut bytes: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| RequestError::Input(format!("the body cannot be read: {error}")))?;
        let Ok(piece) = frame.into_data() else { continue };
        let needed = bytes.len() + piece.len();
        if needed > limit {
            return Err(RequestError::TooLarge { limit });
        }
        if needed > bytes.capacity() {
            grow(&mut bytes, needed, declared.unwrap_or(0), limit, &mut share)?;
        }
        share.grow_to(held(needed).min(bytes.capacity()))?;
        bytes.extend_from_slice(&piece);
    }
    Ok(ReceivedBody { bytes: bytes.into(), share })
}

/// The memory that `length` bytes of a buffer take: the system gives pages when they are written first, not when they are reserved.
const fn held(length: usize) -> usize {
    length.next_multiple_of(HELD_STEP)
}

/// Makes room for `needed` bytes. A large body's buffer is reserved in one piece, so that it is not copied as it grows: until a copy is
/// done both are there, and the allocator keeps the old one's pages for a moment longer.
fn grow(bytes: &mut Vec<u8>, needed: usize, declared: usize, limit: usize, share: &mut BodyShare) -> Result<(), RequestError> {
    let doubled = bytes.capacity().saturating_mul(2);
    let unknown = if needed > SMALL { RESERVED.max(doubled) } else { doubled };
    let capacity = if declared >= needed { declared } else { unknown }.min(limit).max(needed);
    share.grow_to(bytes.capacity().saturating_add(held(needed).min(capacity)))?;
    bytes.try_reserve_exact(capacity - bytes.len()).map_err(|_| share.no_room())?;
    share.shrink_to(held(needed).min(capacity));
    Ok(())
}

/// Decompresses a body. The limits apply to the decompressed size too, so a small body cannot fill the memory. What is returned holds
/// its share of the budget.
pub(crate) fn unpack(received: ReceivedBody, coding: BodyCoding, limits: &Limits) -> Result<Bytes, RequestError> {
    let ReceivedBody { bytes: packed, share } = received;
    let (largest, allowed) = (limits.max_body_bytes(), expansion(packed.len()));
    let limit = largest.min(allowed);
    if coding.is_plain() {
        return Ok(share.held_by(packed));
    }
    let mut unpacked_share = share.another();
    unpacked_share.grow_to(limit.min(coding.max_unpacked(packed.len())))?;
    let unpacked = coding.unpack(&packed, limit).map_err(|error| match error {
        UnpackError::TooLarge(_) if allowed < largest => expands(packed.len()),
        UnpackError::TooLarge(_) => RequestError::TooLarge { limit: largest },
        UnpackError::Corrupt(error) => RequestError::Input(format!("the body cannot be unpacked: {error}")),
    })?;
    unpacked_share.shrink_to(unpacked.len());
    Ok(unpacked_share.held_by(unpacked))
}
