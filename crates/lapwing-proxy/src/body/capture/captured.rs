//! The complete copy of a body, and a body that replays it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::budget::Reservation;
use lapwing_tower::outcome::grpc_status;

/// The complete copy of a body. Its memory is in the budget until it, and every body that replays it, is dropped.
#[derive(Debug)]
pub struct CapturedBody {
    pieces: Vec<Bytes>,
    length: usize,
    trailers: Option<HeaderMap>,
    /// Held until the copy is dropped.
    _reservation: Reservation,
}

impl CapturedBody {
    pub(crate) const fn new(pieces: Vec<Bytes>, length: usize, trailers: Option<HeaderMap>, reservation: Reservation) -> Self {
        Self { pieces, length, trailers, _reservation: reservation }
    }

    /// The same body with other trailers, if it has any.
    pub fn map_trailers(mut self, change: impl FnOnce(&HeaderMap) -> HeaderMap) -> Self {
        self.trailers = self.trailers.as_ref().map(change);
        self
    }

    /// Whether reading the whole of it takes more than a moment.
    pub const fn is_large(&self) -> bool {
        self.length > 64 << 10
    }

    /// The body's length in bytes.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    /// The body's trailers, if it has any.
    pub const fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// The `grpc-status` of the answer whose body this is: in its trailers, else in its `head`, where a call without messages has it.
    #[must_use]
    pub fn grpc_status(&self, head: &HeaderMap) -> Option<u32> {
        self.trailers().and_then(grpc_status).or_else(|| grpc_status(head))
    }

    /// How many bytes of memory the copy keeps alive at most.
    #[cfg(test)]
    pub(crate) const fn reserved(&self) -> usize {
        self._reservation.bytes()
    }

    /// The body's bytes, piece by piece. The pieces are not those of the original.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// Returns whether both bodies have the same bytes, however they are cut into pieces.
    #[cfg(test)]
    pub(crate) fn has_same_bytes(&self, other: &Self) -> bool {
        let (mut left, mut right) = (self.pieces.iter(), other.pieces.iter());
        let (mut a, mut b): (&[u8], &[u8]) = (&[], &[]);
        loop {
            if a.is_empty() {
                a = left.next().map_or(&[], |piece| piece);
            }
            if b.is_empty() {
                b = right.next().map_or(&[], |piece| piece);
            }
            let n = a.len().min(b.len());
            if n == 0 {
                return a.is_empty() && b.is_empty(); // no piece is empty
            }
            if a[..n] != b[..n] {
                return false;
            }
            (a, b) = (&a[n..], &b[n..]);
        }
    }

    /// A body that sends the copy. It may be called more than once.
    pub fn replay(self: &Arc<Self>) -> ReplayBody {
        ReplayBody { captured: self.clone(), next: 0, sent: 0 }
    }
}

/// Sends a copy of a body. It copies nothing and is always ready.
#[derive(Debug)]
pub struct ReplayBody {
    captured: Arc<CapturedBody>,
    /// The next piece; the trailers stand behind the last.
    next: usize,
    /// How many bytes have been sent.
    sent: usize,
}

impl Body for ReplayBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let pieces = this.captured.pieces.len();
        let frame = match this.captured.pieces.get(this.next) {
            Some(piece) => Some(Frame::data(piece.clone())),
            None if this.next == pieces => this.captured.trailers.clone().map(Frame::trailers),
            None => None,
        };
        this.next += 1;
        this.sent += frame.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len);
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        let frames = self.captured.pieces.len() + usize::from(self.captured.trailers.is_some());
        self.next >= frames
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.captured.length - self.sent) as u64)
    }
}
