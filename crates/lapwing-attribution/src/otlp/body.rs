//! Reads a request's body within the bytes that all bodies together may hold.

use std::sync::Arc;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A body, and its share of the room until it is dropped.
#[derive(Debug)]
pub(crate) struct HeldBody {
    pub(crate) bytes: Bytes,
    _room: Option<OwnedSemaphorePermit>,
}

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// It is larger than this many bytes.
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    /// Other bodies fill the room.
    #[error("too many bytes are being received; try again")]
    Busy,
    /// The connection failed.
    #[error("the body cannot be read: {0}")]
    Unreadable(axum::Error),
}

/// Reads `body`, at most `limit` bytes of it. Pieces are copied: a piece by reference would keep the whole buffer that it was read
/// into, however small it is.
pub(crate) async fn read(mut body: Body, limit: usize, room: &Arc<Semaphore>) -> Result<HeldBody, BodyError> {
    let (mut bytes, mut held) = (BytesMut::new(), None::<OwnedSemaphorePermit>);
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(BodyError::Unreadable)?.into_data() else { continue };
        if piece.len() > limit - bytes.len() {
            return Err(BodyError::TooLarge(limit));
        }
        let size = u32::try_from(piece.len()).unwrap_or(u32::MAX);
        let more = Arc::clone(room).try_acquire_many_owned(size).map_err(|_| BodyError::Busy)?;
        match &mut held {
            Some(held) => held.merge(more),
            None => held = Some(more),
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(HeldBody { bytes: bytes.freeze(), _room: held })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_share_the_room_and_give_it_back() {
        let room = Arc::new(Semaphore::new(10));
        let body = |length: usize| Body::from(vec![1; length]);
        let first = read(body(6), 8, &room).await.unwrap();
        assert!(matches!(read(body(9), 8, &room).await, Err(BodyError::TooLarge(8))));
        assert!(matches!(read(body(5), 8, &room).await, Err(BodyError::Busy)));
        let second = read(body(4), 8, &room).await.unwrap();
        assert_eq!((first.bytes.len(), second.bytes.len(), room.available_permits()), (6, 4, 0));
        drop((first, second));
        assert_eq!(room.available_permits(), 10);
    }
}
