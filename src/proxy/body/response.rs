//! The response body on its way to the client: passed on frame by frame, and the place where an exchange ends.
//!
//! It holds the upstream's link while the response streams, drives it, and gives it back. When the body ends the
//! ledger is finished (the connection's next flush closes it); when it is dropped early, the client has gone.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::ledger::{Outcome, Stamp};
use crate::proxy::body::chunk::Chunk;
use crate::proxy::body::rewrite::Undo;
use crate::proxy::connection::lazy_deadline::Watch;
use crate::proxy::error::Error;
use crate::proxy::exchange::grpc::grpc_outcome;
use crate::proxy::exchange::in_flight::{Guard, Live};
use crate::proxy::exchange::server_timing;
use crate::proxy::upstream::{Link, Pool};

/// A wait shorter than this between two polls of an HTTP/2 response is scheduling, not a slow client.
const SCHEDULING_NS: u64 = 50_000;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a response broke off, told when what came before is on its way: hyper would throw that away.
#[derive(Debug)]
struct Break {
    cause: Cause,
    at: Stamp,
    /// The connection's flushes until then.
    flushes: u32,
}

/// A response body in flight.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    inner: Inner,
    link: Option<(Link, Arc<Pool>)>,
    guard: Option<Guard>,
    watch: Watch,
    last: Stamp,
    handed: Option<Stamp>,
    /// The exchange has ended, one way or another: it ends once.
    ended: bool,
    broken: Option<Box<Break>>,
    /// The connection's flushes until the body was given to it.
    flushes: u32,
    /// The connection's flushes when what had passed was last read.
    read_at_flush: u32,
    /// Whether a trailer with the stages is still to be sent.
    timed: bool,
    /// Takes out again what the request was changed for.
    undo: Option<Box<Undo>>,
}

/// What came of the upstream.
enum Step {
    Frame(Frame<Bytes>),
    End,
    /// It broke off, and [`ResponseBody::poll_broken`] will tell.
    Broken,
}

#[derive(Debug)]
enum Inner {
    Upstream(Incoming),
    Own(Full<Bytes>),
}

impl ResponseBody {
    /// What the upstream answers, its head read at `head`. `link` is what it comes over, where the body drives it.
    pub(crate) fn upstream(body: Incoming, link: Option<(Link, Arc<Pool>)>, head: Stamp) -> Self {
        Self::new(Inner::Upstream(body), link, head)
    }

    /// What Lapwing answers.
    pub(crate) fn own(body: Bytes) -> Self {
        Self::new(Inner::Own(Full::new(body)), None, Stamp::now())
    }

    fn new(inner: Inner, link: Option<(Link, Arc<Pool>)>, last: Stamp) -> Self {
        Self {
            inner,
            link,
            guard: None,
            watch: Watch::default(),
            last,
            handed: None,
            ended: false,
            broken: None,
            flushes: 0,
            read_at_flush: 0,
            timed: false,
            undo: None,
        }
    }

    /// Lets the client have what `undo` leaves.
    pub(crate) fn undo(&mut self, undo: Undo) {
        self.undo = Some(Box::new(undo));
    }

    /// Whether the body has to be put together before its head can go.
    pub(crate) fn is_gathering(&self) -> bool {
        self.undo.as_ref().is_some_and(|undo| undo.is_gathering())
    }

    /// The body's length in bytes, where something was cut out of it whole.
    pub(crate) fn cut_length(&self) -> Option<u64> {
        self.undo.as_ref().and_then(|undo| undo.length())
    }

    /// Puts the body together.
    pub(crate) fn poll_gathered(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.is_gathering() {
            let step = ready!(self.poll_step(cx));
            self.pass(step);
        }
        Poll::Ready(())
    }

    /// From here on the body decides when the exchange ends. If `timed`, its trailers tell the stages.
    pub(crate) fn guarded(mut self, guard: Guard, timed: bool) -> Self {
        self.flushes = guard.0.meter.flushes();
        self.read_at_flush = self.flushes;
        self.guard = Some(guard);
        self.timed = timed;
        if self.is_end_stream() {
            self.finish();
        }
        self
    }

    fn live(&self) -> Option<&Arc<Live>> {
        self.guard.as_ref().map(|g| &g.0)
    }

    /// When the bytes came that are being looked at: the link's latest read, or now.
    fn read_at(&self) -> Stamp {
        let read = self.link.as_ref().and_then(|(link, _)| link.meter.last_read());
        read.map_or_else(Stamp::now, |read| read.max(self.last))
    }

    /// The last byte was read and handed on.
    fn finish(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            let end = self.read_at();
            if let Some(live) = self.live() {
                live.end_window(end);
            }
            if let Some((link, pool)) = self.link.take() {
                pool.put(link, end);
            }
        }
        if self.is_handed()
            && let Some(live) = self.live()
        {
            live.finish();
        }
    }

    /// Whether all that came has been handed on.
    fn is_handed(&self) -> bool {
        self.undo.as_ref().is_none_or(|undo| undo.is_empty())
    }

    /// The response breaks off here.
    fn fail(&mut self, outcome: Outcome, cause: impl Into<Cause>, cx: &mut Context<'_>) -> Step {
        let (at, cause) = (Stamp::now(), cause.into());
        (self.link, self.ended) = (None, true);
        let flushes = self.live().map_or(0, |live| {
            live.with(|ledger| ledger.outcome = outcome);
            live.end_window(at);
            live.meter.flushes()
        });
        self.broken = Some(Box::new(Break { cause, at, flushes }));
        // hyper may have nothing to write just now: then it flushes only if it looks once more
        cx.waker().wake_by_ref();
        self.watch = Watch::default();
        Step::Broken
    }

    /// Tells the break when the client has been given what came before, or takes nothing for too long.
    fn poll_broken(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Chunk>, Cause>>> {
        let (Some(broken), Some(Guard(live))) = (&self.broken, &self.guard) else {
            return Poll::Ready(self.broken.take().map(|broken| Err(broken.cause)));
        };
        let flushed = match live.multiplexed {
            true => !live.is_held() && live.meter.flushes() != self.flushes,
            false => live.meter.flushes() != broken.flushes,
        };
        let since = live.meter.last_write().map_or(broken.at, |taken| taken.max(broken.at));
        if !flushed && !self.watch.expired(cx, since, live.recorder.config.idle_timeout.get()) {
            live.meter.wake_at_flush(cx);
            return Poll::Pending;
        }
        live.close(Stamp::now());
        Poll::Ready(self.broken.take().map(|broken| Err(broken.cause)))
    }

    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let incoming = match &mut self.inner {
            Inner::Own(full) => return Pin::new(full).poll_frame(cx).map_err(|never| match never {}),
            Inner::Upstream(incoming) => incoming,
        };
        let polled = Pin::new(&mut *incoming).poll_frame(cx);
        match (&mut self.link, polled) {
            (Some((link, _)), Poll::Pending) => {
                link.drive(cx);
                Pin::new(incoming).poll_frame(cx)
            }
            (_, polled) => polled,
        }
    }

    fn is_stalled(&mut self, cx: &mut Context<'_>) -> Option<Error> {
        let live = self.live()?;
        let limit = live.recorder.config.idle_timeout.get();
        // the time that a slow client took is not the upstream's
        let taken = if live.multiplexed { None } else { live.meter.last_write() };
        // nor is the upstream silent while it is still being asked: it may answer when it has heard all
        let asked = live.request_end().is_none().then(|| live.request_last());
        let since = self.last.max(taken.unwrap_or(self.last)).max(asked.unwrap_or(self.last));
        self.watch.expired(cx, since, limit).then_some(Error::ResponseStalled { limit })
    }

    /// What comes next of the upstream.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if self.undo.as_ref().is_some_and(|undo| undo.is_over()) {
            self.finish();
            return Poll::Ready(Step::End);
        }
        Poll::Ready(match self.poll_inner(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.on_frame(&frame, cx);
                Step::Frame(frame)
            }
            Poll::Ready(None) => {
                self.settle(cx);
                Step::End
            }
            Poll::Ready(Some(Err(error))) => self.fail(Outcome::Broken, error, cx),
            Poll::Pending => match self.is_stalled(cx) {
                Some(stalled) => self.fail(stalled.verdict().outcome, stalled, cx),
                None => return Poll::Pending,
            },
        })
    }

    /// Gives what came to whoever takes something out of it.
    fn pass(&mut self, step: Step) {
        let last = self.inner.is_end_stream();
        let Some(undo) = &mut self.undo else { return };
        match step {
            Step::Frame(frame) => undo.push(frame, last),
            Step::End => undo.end(true),
            Step::Broken => undo.end(false),
        }
    }

    /// Hands a frame to the client.
    fn hand(&mut self, mut frame: Frame<Bytes>) -> Frame<Chunk> {
        if let Some(trailers) = frame.trailers_mut() {
            self.add_timing(trailers);
        }
        if let Some(live) = self.live() {
            let n = frame.data_ref().map_or(0, Buf::remaining);
            live.with(|ledger| ledger.response_bytes += n as u64);
            self.handed = live.multiplexed.then(Stamp::now);
        }
        if self.ended && self.broken.is_none() {
            self.finish();
        }
        frame.map_data(|bytes| Chunk::new(bytes, self.live()))
    }

    fn on_frame(&mut self, frame: &Frame<Bytes>, cx: &mut Context<'_>) {
        self.last = self.read_at();
        if let Some(live) = self.live() {
            if let Some(trailers) = frame.trailers_ref() {
                on_trailers(live, trailers);
            }
            if let Some(bytes) = frame.data_ref() {
                live.on_response_piece(bytes, self.last);
            }
        }
        if self.inner.is_end_stream() || frame.is_trailers() {
            self.settle(cx);
        }
    }

    /// Reads what has passed, once the client has been sent it.
    fn read_passed(&mut self) {
        let Some(live) = self.live() else { return };
        let flushes = live.meter.flushes();
        if flushes != self.read_at_flush {
            live.read();
            self.read_at_flush = flushes;
        }
    }

    /// Adds the stages to the trailers, once, if they are wanted.
    fn add_timing(&mut self, trailers: &mut HeaderMap) -> bool {
        let timed = std::mem::take(&mut self.timed);
        if let Some(live) = self.live().filter(|_| timed) {
            server_timing::append(trailers, live);
        }
        timed
    }

    /// The body is over: lets the link come to rest, so that it can carry the next request.
    fn settle(&mut self, cx: &mut Context<'_>) {
        if let Some((link, _)) = &mut self.link {
            link.drive(cx);
        }
        self.finish();
    }
}

fn on_trailers(live: &Arc<Live>, trailers: &HeaderMap) {
    live.observe(|observer, ledger| observer.response(trailers, true, ledger));
    if let Some(outcome) = grpc_outcome(trailers) {
        live.with(|ledger| ledger.outcome = outcome);
    }
}

impl Inner {
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Upstream(body) => body.is_end_stream(),
            Self::Own(body) => body.is_end_stream(),
        }
    }
}

impl Body for ResponseBody {
    type Data = Chunk;
    type Error = Cause;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Chunk>, Cause>>> {
        loop {
            if let Some(frame) = self.undo.as_mut().and_then(|undo| undo.pop()) {
                return Poll::Ready(Some(Ok(self.hand(frame))));
            }
            if self.broken.is_some() {
                return self.poll_broken(cx);
            }
            if let Some(handed) = self.handed.take() {
                let now = Stamp::now();
                if now.since(handed) > SCHEDULING_NS {
                    if let Some(live) = self.live() {
                        live.on_wait(handed, now);
                    }
                    self.last = now;
                }
            }
            self.read_passed();
            match ready!(self.poll_step(cx)) {
                Step::Frame(frame) if self.undo.is_none() => return Poll::Ready(Some(Ok(self.hand(frame)))),
                Step::End if self.is_handed() => {
                    let mut trailers = HeaderMap::new();
                    return Poll::Ready(self.add_timing(&mut trailers).then(|| Ok(Frame::trailers(trailers))));
                }
                step => self.pass(step),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream() && !self.timed && self.is_handed()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Upstream(_) if self.undo.is_some() => SizeHint::default(),
            Inner::Upstream(body) => body.size_hint(),
            Inner::Own(body) => body.size_hint(),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if let (Some(_), Some(live)) = (&self.broken, self.live()) {
            live.close(Stamp::now()); // the client left, or its connection ended: the response was broken before
        }
        // hyper drops a body that it needs no more of: then all of it has been handed over
        if self.is_end_stream() && self.guard.is_some() {
            self.finish();
        }
    }
}
