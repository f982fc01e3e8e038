//! The response body on its way to the client: passed on frame by frame, and the place where an exchange ends.
//!
//! It holds the upstream's link while the response streams, drives it, and gives it back. When the body ends the
//! ledger is finished (the connection's next flush closes it); when it is dropped early, the client has gone.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;

use super::chunk::Chunk;
use super::error::Error;
use super::live::{Guard, Live};
use super::timing;
use super::upstream::{Link, Pool};
use super::watch::Watch;
use crate::ledger::{Outcome, Stamp};

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
        }
    }

    /// From here on the body decides when the exchange ends. If `timed`, its trailers tell the stages.
    pub(crate) fn guarded(mut self, guard: Guard, timed: bool) -> Self {
        self.flushes = guard.0.meter.flushes();
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
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let end = self.read_at();
        if let Some(live) = self.live() {
            live.end_window(end);
            live.finish();
        }
        if let Some((link, pool)) = self.link.take() {
            pool.put(link, end);
        }
    }

    /// The response breaks off here.
    fn fail(
        &mut self,
        outcome: Outcome,
        cause: impl Into<Cause>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, Cause>>> {
        let (at, cause) = (Stamp::now(), cause.into());
        (self.link, self.ended) = (None, true);
        let Some(live) = self.live() else { return Poll::Ready(Some(Err(cause))) };
        live.with(|ledger| ledger.outcome = outcome);
        live.end_window(at);
        let flushes = live.meter.flushes();
        self.broken = Some(Box::new(Break { cause, at, flushes }));
        // hyper may have nothing to write just now: then it flushes only if it looks once more
        cx.waker().wake_by_ref();
        self.watch = Watch::default();
        self.poll_broken(cx)
    }

    /// Tells the break when the client has been given what came before, or takes nothing for too long.
    fn poll_broken(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Chunk>, Cause>>> {
        let (Some(broken), Some(Guard(live))) = (&self.broken, &self.guard) else { return Poll::Ready(None) };
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

    fn on_frame(&mut self, frame: &Frame<Bytes>, cx: &mut Context<'_>) {
        let multiplexed = self.live().is_some_and(|live| live.multiplexed);
        self.last = self.read_at();
        self.handed = multiplexed.then(Stamp::now);
        if let Some(live) = self.live() {
            if let Some(trailers) = frame.trailers_ref() {
                on_trailers(live, trailers);
            }
            let n = frame.data_ref().map_or(0, Buf::remaining);
            live.with(|ledger| ledger.response_bytes += n as u64);
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
            timing::append(trailers, live);
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

/// How a gRPC call ended by its `grpc-status`: 0 is OK; the codes that blame the caller are its errors.
pub(crate) fn grpc_outcome(fields: &HeaderMap) -> Option<Outcome> {
    let code: u32 = fields.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    Some(match code {
        0 => Outcome::Ok,
        1 | 3 | 5 | 6 | 7 | 9 | 11 | 16 => Outcome::ClientError,
        _ => Outcome::ServerError,
    })
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
        match self.poll_inner(cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                self.on_frame(&frame, cx);
                if let Some(trailers) = frame.trailers_mut() {
                    self.add_timing(trailers);
                }
                Poll::Ready(Some(Ok(frame.map_data(|bytes| Chunk::new(bytes, self.live())))))
            }
            Poll::Ready(None) => {
                self.settle(cx);
                let mut trailers = HeaderMap::new();
                Poll::Ready(self.add_timing(&mut trailers).then(|| Ok(Frame::trailers(trailers))))
            }
            Poll::Ready(Some(Err(error))) => self.fail(Outcome::Broken, error, cx),
            Poll::Pending => match self.is_stalled(cx) {
                Some(stalled) => self.fail(stalled.verdict().outcome, stalled, cx),
                None => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream() && !self.timed
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_codes_are_told_apart() {
        let outcome = |code: &str| grpc_outcome(&HeaderMap::from_iter([("grpc-status".parse().unwrap(), code.parse().unwrap())]));
        assert_eq!(outcome("0"), Some(Outcome::Ok));
        assert_eq!(outcome("5"), Some(Outcome::ClientError));
        assert_eq!(outcome("14"), Some(Outcome::ServerError));
        assert_eq!(outcome("x"), None);
    }
}
