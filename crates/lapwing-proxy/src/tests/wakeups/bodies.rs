//! Bodies of the model: what they hold is known from its place, so that whoever reads one can tell that it is whole.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use lapwing_net::simulated::draw;

/// A prime, so that no piece begins where another did.
const PATTERN: usize = 65_521;

static BYTES: LazyLock<Bytes> = LazyLock::new(|| {
    let mut state = 1_u32;
    (0..PATTERN)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .collect()
});

/// The name of the trailer that ends a body with trailers.
pub(crate) const TRAILER: &str = "x-end";

/// Lets up to `turns` others go first.
pub(crate) async fn pause(turns: usize) {
    for _ in 0..turns {
        let mut is_first = true;
        poll_fn(|cx| {
            if !std::mem::take(&mut is_first) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// What somebody waits for.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_open: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Gate {
    pub(crate) fn open(&self) {
        self.is_open.store(true, Relaxed);
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn poll_open(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_open.load(Relaxed) {
            return Poll::Ready(());
        }
        self.waiting.lock().unwrap().push(cx.waker().clone());
        Poll::Pending
    }
}

/// Why a body breaks off.
#[derive(Debug, thiserror::Error)]
#[error("broken off on purpose")]
pub(crate) struct Broken;

/// How a body is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) length: usize,
    pub(crate) is_sized: bool,
    pub(crate) has_trailers: bool,
    /// The largest piece.
    pub(crate) piece: usize,
    /// It breaks off after so many bytes.
    pub(crate) breaks_at: Option<usize>,
}

/// A body that is sent.
#[derive(Debug)]
pub(crate) struct Flow {
    shape: Shape,
    sent: usize,
    has_paused: bool,
    has_ended: bool,
    /// Its last piece waits for this.
    end_after: Option<Arc<Gate>>,
    /// Opened once all was sent.
    on_end: Option<Arc<Gate>>,
}

impl Flow {
    pub(crate) fn new(shape: Shape, end_after: Option<Arc<Gate>>, on_end: Option<Arc<Gate>>) -> Self {
        let mut this = Self { shape, sent: 0, has_paused: false, has_ended: false, end_after, on_end };
        if this.is_end_stream() {
            this.end();
        }
        this
    }

    fn end(&mut self) {
        self.has_ended = true;
        if let Some(gate) = self.on_end.take() {
            gate.open();
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.end();
    }
}

impl Body for Flow {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        if !this.has_paused && draw(8) == 0 {
            this.has_paused = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.has_paused = false;
        let Shape { length, piece, has_trailers, breaks_at, .. } = this.shape;
        if breaks_at.is_some_and(|at| this.sent >= at) {
            this.end();
            return Poll::Ready(Some(Err(Broken)));
        }
        let left = length - this.sent;
        let from = this.sent % PATTERN;
        let n = (1 + draw(piece)).min(left).min(PATTERN - from);
        if n == left
            && let Some(gate) = &this.end_after
        {
            std::task::ready!(gate.poll_open(cx));
        }
        if left > 0 {
            this.sent += n;
            if this.is_end_stream() {
                this.end();
            }
            return Poll::Ready(Some(Ok(Frame::data(BYTES.slice(from..from + n)))));
        }
        if this.has_ended || !has_trailers {
            this.end();
            return Poll::Ready(None);
        }
        this.end();
        let trailers = HeaderMap::from_iter([(http::HeaderName::from_static(TRAILER), HeaderValue::from_static("1"))]);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        let has_all = self.sent == self.shape.length && self.shape.breaks_at.is_none();
        has_all && (self.has_ended || !self.shape.has_trailers)
    }

    fn size_hint(&self) -> SizeHint {
        if self.shape.is_sized { SizeHint::with_exact((self.shape.length - self.sent) as u64) } else { SizeHint::default() }
    }
}

/// Reads a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Up to so many others go first before each piece.
    pub(crate) turns: usize,
}

impl Reading {
    /// Reads `body` to its end.
    ///
    /// # Errors
    ///
    /// What is missing of `shape`, or why it broke off.
    pub(crate) async fn whole(self, mut body: Incoming, shape: Shape) -> Result<(), String> {
        let (mut read, mut has_trailers) = (0, false);
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let frame = frame.map_err(|error| format!("after {read} of {} bytes: {error:?}", shape.length))?;
            has_trailers |= frame.trailers_ref().is_some_and(|trailers| trailers.contains_key(TRAILER));
            let mut data = frame.into_data().unwrap_or_default();
            while !data.is_empty() {
                let from = read % PATTERN;
                let piece = data.split_to(data.len().min(PATTERN - from));
                if piece != BYTES.slice(from..from + piece.len()) {
                    return Err(format!("other bytes within {} from {read}", piece.len()));
                }
                read += piece.len();
            }
            pause(draw(self.turns + 1)).await;
        }
        if read != shape.length || has_trailers != shape.has_trailers {
            return Err(format!("{read} of {} bytes, trailers: {has_trailers} of {}", shape.length, shape.has_trailers));
        }
        Ok(())
    }
}
