//! Reads a request's body whole, within limits of size, time and memory, and decompresses it; and the memory that all bodies together may
//! take, from their first byte until the last tensor that shares it is dropped. Sizes are bytes. Nothing waits for room: a body that finds
//! none is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};
use http_body::Body as _;
use http_body_util::BodyExt;

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

/// How much memory bodies may take, and how much they take.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    limit: usize,
    used: AtomicUsize,
}

impl BodyBudget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0) })
    }

    /// What bodies take now.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// A share of nothing yet.
    pub(crate) fn share(self: &Arc<Self>) -> BodyShare {
        BodyShare { budget: Arc::clone(self), bytes: 0 }
    }
}

/// The share of one body, which is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct BodyShare {
    budget: Arc<BodyBudget>,
    bytes: usize,
}

impl BodyShare {
    /// Makes it a share of at least `bytes`.
    ///
    /// # Errors
    ///
    /// [`RequestError::NoRoom`] if all shares would be more than the budget; this one is as it was.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), RequestError> {
        let more = bytes.saturating_sub(self.bytes);
        let limit = self.budget.limit;
        if more == 0 {
            return Ok(());
        }
        let room = |used: usize| used.checked_add(more).filter(|used| *used <= limit);
        self.budget.used.fetch_update(Relaxed, Relaxed, room).map_err(|_| self.no_room())?;
        self.bytes += more;
        Ok(())
    }

    /// The error of a body for which there is no memory.
    pub(crate) fn no_room(&self) -> RequestError {
        RequestError::NoRoom { limit: self.budget.limit }
    }

    /// Gives back what is beyond `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.budget.used.fetch_sub(less, Relaxed);
        self.bytes -= less;
    }

    /// A share of nothing, of the same budget.
    pub(crate) fn another(&self) -> Self {
        self.budget.share()
    }

    /// `body`, which holds the share until the last reference to it is dropped.
    pub(crate) fn held_by(self, body: Bytes) -> Bytes {
        Bytes::from_owner(SharedBody { body, _share: self })
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

struct SharedBody {
    body: Bytes,
    _share: BodyShare,
}

impl AsRef<[u8]> for SharedBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_given_back_with_the_last_reference() {
        let budget = BodyBudget::new(100);
        let (mut one, mut two) = (budget.share(), budget.share());
        one.grow_to(60).unwrap();
        one.grow_to(50).unwrap();
        assert!(matches!(two.grow_to(41), Err(RequestError::NoRoom { limit: 100 })));
        two.grow_to(40).unwrap();
        assert_eq!(budget.used(), 100);
        two.shrink_to(10);
        let body = one.held_by(Bytes::from_static(b"tensor"));
        let part = body.slice(2..4);
        drop((body, two));
        assert_eq!((&part[..], budget.used()), (&b"ns"[..], 60));
        drop(part);
        assert_eq!(budget.used(), 0);
    }
}
