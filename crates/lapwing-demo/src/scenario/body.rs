//! A request's body that is written in pieces, each at its time.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use lapwing_ledger::Stamp;

/// A body of known length.
#[derive(Debug)]
pub(crate) struct PacedBody {
    left: Bytes,
    piece: usize,
    pause: Duration,
    /// When the next piece is due; pieces keep to their times, however late one is.
    due: Option<Stamp>,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl PacedBody {
    /// `bytes` in `pieces` pieces of equal length, at least one, so that the last is written after `takes`.
    pub(crate) fn new(bytes: Bytes, pieces: usize, takes: Duration) -> Self {
        let pieces = pieces.clamp(1, bytes.len().max(1));
        let piece = bytes.len().div_ceil(pieces).max(1);
        let pauses = u32::try_from(bytes.len().div_ceil(piece).saturating_sub(1)).unwrap_or(u32::MAX);
        Self { left: bytes, piece, pause: takes.checked_div(pauses).unwrap_or_default(), due: None, waiting: None }
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(waiting) = &mut self.waiting {
            ready!(waiting.as_mut().poll(context));
        }
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        let piece = self.piece.min(self.left.len());
        let piece = self.left.split_to(piece);
        let now = Stamp::now();
        let next = self.due.unwrap_or(now).plus(u64::try_from(self.pause.as_nanos()).unwrap_or(u64::MAX));
        self.due = Some(next);
        self.waiting = (!self.left.is_empty()).then(|| Box::pin(tokio::time::sleep(Duration::from_nanos(next.since(now)))));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn the_last_piece_comes_when_the_time_is_over() {
        let bytes = Bytes::from_static(b"0123456789");
        let began = Stamp::now();
        let body = PacedBody::new(bytes.clone(), 4, Duration::from_millis(30));
        assert_eq!(body.size_hint().exact(), Some(10));
        assert_eq!(body.collect().await.unwrap().to_bytes(), bytes);
        assert!(began.elapsed() >= 30_000_000);
        let at_once = PacedBody::new(bytes.clone(), 1, Duration::from_secs(60));
        assert_eq!(at_once.collect().await.unwrap().to_bytes(), bytes);
        assert!(PacedBody::new(Bytes::new(), 9, Duration::from_secs(60)).collect().await.unwrap().to_bytes().is_empty());
    }
}
