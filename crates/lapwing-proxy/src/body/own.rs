//! A body of Lapwing's own: an error's text, or an answer that is given again.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

/// Pieces that are there already, and what follows them.
#[derive(Debug, Default)]
pub(crate) struct OwnBody {
    /// The next first; those that were given are empty.
    pieces: [Bytes; 3],
    trailers: Option<HeaderMap>,
}

impl OwnBody {
    /// These pieces, one after the other, and then `trailers`.
    pub(crate) const fn new(pieces: [Bytes; 3], trailers: Option<HeaderMap>) -> Self {
        Self { pieces, trailers }
    }
}

impl From<Bytes> for OwnBody {
    fn from(bytes: Bytes) -> Self {
        Self { pieces: [bytes, Bytes::new(), Bytes::new()], trailers: None }
    }
}

impl Body for OwnBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.iter_mut().find(|piece| !piece.is_empty()).map(std::mem::take);
        let frame = piece.map(Frame::data).or_else(|| self.trailers.take().map(Frame::trailers));
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.trailers.is_none() && self.pieces.iter().all(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.pieces.iter().map(|piece| piece.len() as u64).sum())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn its_pieces_come_in_order_and_its_trailers_last() {
        let trailers: HeaderMap =
            [(http::HeaderName::from_static("grpc-status"), http::HeaderValue::from_static("0"))].into_iter().collect();
        let pieces = ["ab", "", "cd"].map(|piece| Bytes::from_static(piece.as_bytes()));
        let mut body = OwnBody::new(pieces, Some(trailers.clone()));
        let mut next = || body.frame().now_or_never().unwrap().map(Result::unwrap);
        assert_eq!(next().unwrap().into_data().unwrap(), "ab");
        assert_eq!(next().unwrap().into_data().unwrap(), "cd");
        assert_eq!(next().unwrap().into_trailers().unwrap(), trailers);
        assert!(next().is_none() && body.is_end_stream());
        assert!(OwnBody::from(Bytes::new()).is_end_stream());
        assert_eq!(OwnBody::from(Bytes::from_static(b"abc")).size_hint().exact(), Some(3));
    }
}
