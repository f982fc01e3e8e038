//! The two ends of a capture that is under way: the writer at the body, among those that are attached to it, and the future of the copy.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame};
use tokio::sync::oneshot;

use super::budget::{CaptureBudget, Incomplete, Reservation};
use super::captured::CapturedBody;

/// The first block that pieces are copied into, in bytes. Each further block is twice as large.
const FIRST_BLOCK: usize = 4 * 1024;
/// The largest block, in bytes, unless one piece needs more.
const MAX_BLOCK: usize = 256 * 1024;
/// What a piece costs besides its bytes: its place in a list that may be half empty.
const PIECE_COST: usize = 2 * size_of::<Bytes>();
/// What a trailer costs besides its name and value: its place in a map that may be half empty.
const FIELD_COST: usize = 256;

/// Starts a capture: the writer for the body, and the future of its copy.
pub(crate) fn capture(budget: &Arc<CaptureBudget>) -> (CaptureWriter, BodyCapture) {
    let (sender, receiver) = oneshot::channel();
    let reservation = Reservation::new(budget.clone());
    let content = Content { pieces: Vec::new(), block: BytesMut::new(), length: 0, trailers: None, reservation };
    (CaptureWriter { open: Some(Box::new(Open { content, sender })) }, BodyCapture(receiver))
}

/// Reads `body` to its end and returns a copy, within `budget`.
///
/// # Errors
///
/// If the budget is exceeded; then the rest is not read. If the body breaks off.
pub async fn capture_whole<B>(body: B, budget: &Arc<CaptureBudget>) -> Result<CapturedBody, Incomplete>
where
    B: Body<Data = Bytes>,
{
    let (mut writer, copy) = capture(budget);
    let mut body = pin!(body);
    while writer.is_open() {
        match std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            Some(Ok(frame)) => writer.push(&frame),
            Some(Err(_)) => break,
            None => {
                writer.finish();
                break;
            }
        }
    }
    drop(writer);
    copy.await
}

/// The future of a copy. It is ready when the body has ended, was aborted, or exceeded its budget.
#[derive(Debug)]
pub struct BodyCapture(oneshot::Receiver<Result<CapturedBody, Incomplete>>);

impl Future for BodyCapture {
    type Output = Result<CapturedBody, Incomplete>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|sent| sent.unwrap_or(Err(Incomplete::Aborted)))
    }
}

/// Copies a body frame by frame. Dropping it before [`Self::finish`] makes the capture incomplete.
#[derive(Debug)]
pub(crate) struct CaptureWriter {
    /// `None` once the capture has ended, one way or another.
    open: Option<Box<Open>>,
}

#[derive(Debug)]
struct Open {
    content: Content,
    sender: oneshot::Sender<Result<CapturedBody, Incomplete>>,
}

impl CaptureWriter {
    /// Copies a frame, or gives the capture up if the budget has no room for it.
    pub(crate) fn push(&mut self, frame: &Frame<Bytes>) {
        let Some(open) = &mut self.open else { return };
        let pushed = match (frame.data_ref(), frame.trailers_ref()) {
            (Some(bytes), _) => open.content.push(bytes),
            (_, Some(trailers)) => open.content.push_trailers(trailers),
            _ => Ok(()),
        };
        if let Err(incomplete) = pushed {
            self.end(|_| Err(incomplete));
        }
    }

    /// The body has come to its end: the copy is complete.
    pub(crate) fn finish(&mut self) {
        self.end(|content| Ok(content.into_captured()));
    }

    /// Returns whether frames are still copied.
    pub(crate) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    fn end(&mut self, outcome: impl FnOnce(Content) -> Result<CapturedBody, Incomplete>) {
        if let Some(open) = self.open.take() {
            let Open { content, sender } = *open;
            drop(sender.send(outcome(content))); // the receiver may have been dropped
        }
    }
}

/// What has been copied so far.
#[derive(Debug)]
struct Content {
    pieces: Vec<Bytes>,
    /// The block that is being filled. It stands behind the pieces.
    block: BytesMut,
    length: usize,
    trailers: Option<HeaderMap>,
    reservation: Reservation,
}

impl Content {
    fn push(&mut self, bytes: &Bytes) -> Result<(), Incomplete> {
        let pinned = self.reservation.pinned(bytes.len());
        if bytes.len() >= pinned / 2 {
            self.reservation.grow(pinned + PIECE_COST)?;
            self.close_block();
            self.pieces.push(bytes.clone());
        } else {
            self.copy(bytes)?;
        }
        self.length += bytes.len();
        Ok(())
    }

    fn copy(&mut self, bytes: &[u8]) -> Result<(), Incomplete> {
        let room = self.block.capacity() - self.block.len();
        let (now, later) = bytes.split_at(room.min(bytes.len()));
        self.block.extend_from_slice(now);
        if later.is_empty() {
            return Ok(());
        }
        let next = (2 * self.block.capacity()).clamp(FIRST_BLOCK, MAX_BLOCK).max(later.len());
        let capacity = match self.reservation.grow(next + PIECE_COST) {
            Ok(()) => next,
            Err(_) => self.reservation.grow(later.len() + PIECE_COST).map(|()| later.len())?,
        };
        self.close_block();
        self.block = BytesMut::with_capacity(capacity);
        self.block.extend_from_slice(later);
        Ok(())
    }

    fn close_block(&mut self) {
        if !self.block.is_empty() {
            self.pieces.push(std::mem::take(&mut self.block).freeze());
        }
    }

    fn push_trailers(&mut self, trailers: &HeaderMap) -> Result<(), Incomplete> {
        let cost = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + FIELD_COST;
        self.reservation.grow(trailers.iter().map(cost).sum())?;
        // names and values are slices of read buffers too
        let copy = |(name, value): (&HeaderName, &HeaderValue)| {
            let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
            Some((name, HeaderValue::from_bytes(value.as_bytes()).ok()?))
        };
        let copies = self.trailers.get_or_insert_default();
        for (name, value) in trailers.iter().filter_map(copy) {
            copies.append(name, value);
        }
        Ok(())
    }

    fn into_captured(mut self) -> CapturedBody {
        self.close_block();
        CapturedBody::new(self.pieces, self.length, self.trailers, self.reservation)
    }
}

/// The captures of one body, oldest first. Without any it costs a null check per frame.
#[derive(Debug, Default)]
#[allow(clippy::box_collection, reason = "one word instead of three in every body, and bodies are moved by value")]
pub(crate) struct AttachedCaptures(Option<Box<Vec<CaptureWriter>>>);

impl AttachedCaptures {
    /// Attaches another.
    pub(crate) fn attach(&mut self, writer: CaptureWriter) {
        self.0.get_or_insert_default().push(writer);
    }

    /// How many are attached.
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |writers| writers.len())
    }

    /// Passes a frame to all except the first `skipped`.
    #[inline]
    pub(crate) fn push(&mut self, frame: &Frame<Bytes>, skipped: usize) {
        if let Some(writers) = &mut self.0 {
            writers.iter_mut().skip(skipped).for_each(|writer| writer.push(frame));
        }
    }

    /// The body has come to its end.
    #[inline]
    pub(crate) fn finish(&mut self) {
        if let Some(writers) = self.0.take() {
            writers.into_iter().for_each(|mut writer| writer.finish());
        }
    }
}
