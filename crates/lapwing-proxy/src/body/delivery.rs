//! The response body on its way to the client: passed on frame by frame, and the place where an exchange ends.
//!
//! When the body ends, the ledger is finished, and the connection's next flush closes it. When the body is dropped early,
//! the client has gone, and the guard closes the ledger.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::broken::{Break, Cause};
use super::capture::{AttachedCaptures, BodyCapture, CaptureBudget, capture};
use super::chunk::TrackedChunk;
use super::drive::Drive;
use super::h2_source::H2Source;
use super::own::OwnBody;
use super::rewrite::ResponseRewrite;
use super::upstream::UpstreamBody;
use crate::connection::OnFlush;
use crate::error::Error;
use crate::in_flight::{AccountGuard, InFlight, server_timing};
use lapwing_ledger::{Outcome, Stamp};
use lapwing_net::Tasks;

/// A wait shorter than this between two polls of an HTTP/2 response is scheduling, not a slow client.
const SCHEDULING_NS: u64 = 50_000;

/// How long an answer is read on whose client has left.
const LONGEST_READ_OUT: Duration = Duration::from_secs(60);

/// A response body in flight.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    upstream: UpstreamBody,
    guard: AccountGuard,
    /// When the latest frame was handed to hyper (HTTP/2).
    handed: Option<Stamp>,
    /// The upstream's part has ended, one way or another: it ends once.
    is_ended: bool,
    broken: Option<Box<Break>>,
    /// The connection's flushes until the body was given to it.
    flushes: u32,
    /// The connection's flushes when the pieces that had passed were last read.
    read_at_flush: u32,
    /// Whether a trailer with the stages is still to be sent.
    has_timing_trailer: bool,
    /// Removes what the amended request caused.
    rewrite: Option<Box<ResponseRewrite>>,
    captures: AttachedCaptures,
    /// Where it comes to its end if its client leaves.
    runs_on: Option<Tasks>,
}

/// What came from the upstream.
enum Step {
    Frame(Frame<Bytes>),
    End,
    /// It broke off; [`ResponseBody::poll_broken`] says so.
    Broken,
}

impl ResponseBody {
    /// The upstream's response, its head read at `head`. With `connection`, the body drives it.
    pub(crate) fn upstream(body: Incoming, connection: Option<Box<dyn Drive>>, head: Stamp) -> Self {
        Self::new(UpstreamBody::new(body, connection, head))
    }

    /// The upstream's response over HTTP/2, its head read at `head`.
    pub(crate) fn stream(stream: H2Source, head: Stamp) -> Self {
        Self::new(UpstreamBody::stream(stream, head))
    }

    /// The request is not over: it goes on while the client does not take the answer. A stream of HTTP/2 says by itself whether it is.
    pub(crate) fn go_on_beside(mut self, tasks: &Tasks) -> Self {
        self.upstream.go_on_beside(tasks);
        self
    }

    /// The upstream's body, which nobody wants any more.
    pub(crate) fn unwanted(mut self) -> UpstreamBody {
        std::mem::replace(&mut self.upstream, UpstreamBody::own(OwnBody::default()))
    }

    /// Lapwing's own response.
    pub(crate) fn own(body: Bytes) -> Self {
        Self::new(UpstreamBody::own(body.into()))
    }

    /// An answer that is given again.
    pub(crate) fn again(pieces: [Bytes; 3], trailers: Option<HeaderMap>) -> Self {
        Self::new(UpstreamBody::own(OwnBody::new(pieces, trailers)))
    }

    /// Reads it to its end.
    pub(crate) async fn read_out(mut self) {
        let all = async { while let Some(Ok(_)) = self.frame().await {} };
        // who takes longer is given up
        let _ = timeout(LONGEST_READ_OUT, all).await;
    }

    /// Its client leaves: whoever has copies of it gets the rest too.
    fn run_on_without_client(&mut self) {
        let Some(tasks) = self.runs_on.take() else { return };
        // a body may be dropped with its runtime
        if !self.is_ended && self.broken.is_none() && tokio::runtime::Handle::try_current().is_ok() {
            let mut rest = Self::new(std::mem::replace(&mut self.upstream, UpstreamBody::own(OwnBody::default())));
            rest.captures = std::mem::take(&mut self.captures);
            tasks.spawn(rest.read_out());
        }
    }

    /// If its client leaves, it comes to its end all the same, for those who have copies of it.
    pub(crate) fn run_on(&mut self, tasks: &Tasks) {
        self.runs_on = Some(tasks.clone());
    }

    fn new(upstream: UpstreamBody) -> Self {
        Self {
            upstream,
            guard: AccountGuard::none(),
            handed: None,
            is_ended: false,
            broken: None,
            flushes: 0,
            read_at_flush: 0,
            has_timing_trailer: false,
            rewrite: None,
            captures: AttachedCaptures::default(),
            runs_on: None,
        }
    }

    /// Copies within `budget` what the client is given.
    pub(crate) fn capture(&mut self, budget: &Arc<CaptureBudget>) -> BodyCapture {
        let (writer, copy) = capture(budget);
        self.captures.attach(writer);
        copy
    }

    /// Gives the client what `rewrite` leaves of the body.
    pub(crate) fn rewrite(&mut self, rewrite: ResponseRewrite) {
        self.rewrite = Some(Box::new(rewrite));
    }

    /// Returns whether the whole body has to be gathered before its head can go.
    pub(crate) fn is_gathering(&self) -> bool {
        self.rewrite.as_ref().is_some_and(|rewrite| rewrite.is_gathering())
    }

    /// The body's length in bytes, if it was gathered and rewritten.
    pub(crate) fn rewritten_length(&self) -> Option<u64> {
        self.rewrite.as_ref().and_then(|rewrite| rewrite.length())
    }

    /// Gathers the body.
    pub(crate) fn poll_gathered(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.is_gathering() {
            let step = ready!(self.poll_step(cx));
            self.push_rewrite(step);
        }
        Poll::Ready(())
    }

    /// The body of a response that has none by its status or its request's method. Hyper drops such a body unread; to the guard that
    /// would say that the client left. What comes over a stream of HTTP/2 is passed on to one.
    pub(crate) fn emptied(mut self, is_multiplexed: bool) -> Self {
        let is_passed_on = is_multiplexed && self.upstream.is_upstreams();
        if !self.is_end_stream() && !is_passed_on {
            self.upstream = UpstreamBody::own(OwnBody::default());
            self.rewrite = None;
        }
        self
    }

    /// From here on the body decides when the exchange ends. With `has_timing_trailer`, its trailers tell the stages.
    pub(crate) fn guard(&mut self, guard: AccountGuard, has_timing_trailer: bool) {
        self.flushes = guard.get().map_or(0, |in_flight| in_flight.meter.flushes());
        self.read_at_flush = self.flushes;
        self.guard = guard;
        self.has_timing_trailer = has_timing_trailer;
        if self.is_end_stream() {
            self.on_last_head();
            self.finish();
            self.captures.finish();
        }
    }

    /// Hyper is given a head or trailers that end an HTTP/2 stream.
    fn on_last_head(&self) {
        if let Some(in_flight) = self.in_flight().filter(|in_flight| in_flight.is_multiplexed) {
            in_flight.meter.on_last_head();
        }
    }

    fn in_flight(&self) -> Option<&Arc<InFlight>> {
        self.guard.get()
    }

    /// The last byte was read from the upstream and handed on.
    fn finish(&mut self) {
        let Self { upstream, guard, is_ended, .. } = self;
        if !std::mem::replace(is_ended, true) {
            upstream.end(|end| {
                if let Some(in_flight) = guard.get() {
                    in_flight.account.end_window(end);
                }
            });
        }
        if self.is_handed()
            && let Some(in_flight) = self.in_flight()
        {
            in_flight.finish();
        }
    }

    /// Returns whether everything that came from the upstream has been handed on.
    fn is_handed(&self) -> bool {
        self.rewrite.as_ref().is_none_or(|rewrite| rewrite.is_empty())
    }

    /// The response breaks off here.
    fn fail(&mut self, outcome: Outcome, mut broken: Break, cx: &mut Context<'_>) -> Step {
        self.upstream.close();
        self.is_ended = true;
        if let Some(in_flight) = self.in_flight() {
            in_flight.write_ledger(|ledger| ledger.outcome = outcome);
            in_flight.account.end_window(broken.at);
            broken.flushes = in_flight.meter.flushes();
        }
        self.broken = Some(Box::new(broken));
        // hyper may have nothing to write now: then it flushes only if it is polled once more
        cx.waker().wake_by_ref();
        Step::Broken
    }

    /// Reports the break when the client has been given what came before it, or takes nothing for `client_stall_timeout`.
    fn poll_broken(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<TrackedChunk<InFlight>>, Cause>>> {
        let (Some(broken), Some(in_flight)) = (&mut self.broken, self.guard.get()) else {
            return Poll::Ready(self.broken.take().map(|broken| broken.into_frame()));
        };
        let flushed = match in_flight.is_multiplexed {
            true => !in_flight.is_held() && in_flight.meter.flushes() != self.flushes,
            false => in_flight.meter.flushes() != broken.flushes,
        };
        let since = in_flight.meter.last_write().map_or(broken.at, |taken| taken.max(broken.at));
        if !flushed && !broken.deadline.has_expired(cx, since, in_flight.account.context.config.client_stall_timeout.get()) {
            in_flight.meter.wake_at_flush(cx);
            return Poll::Pending;
        }
        in_flight.close(Stamp::now());
        Poll::Ready(self.broken.take().map(|broken| broken.into_frame()))
    }

    /// The upstream's next step.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if self.rewrite.as_ref().is_some_and(|rewrite| rewrite.is_over()) {
            self.finish();
            return Poll::Ready(Step::End);
        }
        let Self { upstream, guard, .. } = self;
        Poll::Ready(match upstream.poll_frame(cx, guard.get().map(|in_flight| &in_flight.account)) {
            Poll::Ready(Some(Ok(frame))) => {
                self.on_frame(&frame, cx);
                Step::Frame(frame)
            }
            Poll::Ready(None) if self.upstream.is_cut() => self.fail(Outcome::Broken, Break::new(Error::StreamCut), cx),
            Poll::Ready(None) => {
                self.end(cx);
                Step::End
            }
            Poll::Ready(Some(Err(error))) => self.fail(Outcome::Broken, Break::new(error), cx),
            Poll::Pending => {
                let Self { upstream, guard, .. } = self;
                let Some(in_flight) = guard.get() else { return Poll::Pending };
                let InFlight { account, meter, is_multiplexed, .. } = &**in_flight;
                let taken = if *is_multiplexed { None } else { meter.last_write() };
                let Some(stalled) = upstream.stalled(cx, account, taken) else { return Poll::Pending };
                let (outcome, broken) = (stalled.response().outcome, Break::by_limit(stalled, account, *is_multiplexed));
                self.fail(outcome, broken, cx)
            }
        })
    }

    /// Gives a step to the rewrite.
    fn push_rewrite(&mut self, step: Step) {
        let last = self.upstream.is_end_stream();
        let Some(rewrite) = &mut self.rewrite else { return };
        match step {
            Step::Frame(frame) => rewrite.push(frame, last),
            Step::End => rewrite.end(true),
            Step::Broken => rewrite.end(false),
        }
    }

    /// Hands a frame to the client.
    fn hand(&mut self, mut frame: Frame<Bytes>) -> Frame<TrackedChunk<InFlight>> {
        self.captures.push(&frame, 0);
        if let Some(trailers) = frame.trailers_mut() {
            self.add_timing(trailers);
            if let Some(in_flight) = self.in_flight() {
                in_flight.add_load_report(trailers);
            }
            self.on_last_head();
        }
        if let Some(in_flight) = self.in_flight() {
            let n = frame.data_ref().map_or(0, Buf::remaining);
            in_flight.account.stamps.on_response_bytes(n);
            // after trailers, nothing more is asked for
            self.handed = (in_flight.is_multiplexed && !frame.is_trailers()).then(Stamp::now);
        }
        if self.is_ended && self.broken.is_none() {
            self.finish();
            if self.is_handed() {
                self.captures.finish();
            }
        }
        let owner = self.in_flight().filter(|in_flight| in_flight.is_multiplexed);
        frame.map_data(|bytes| TrackedChunk::new(bytes, owner))
    }

    /// A frame came from the upstream.
    fn on_frame(&mut self, frame: &Frame<Bytes>, cx: &mut Context<'_>) {
        let read = self.upstream.stamp_frame();
        if let Some(in_flight) = self.in_flight() {
            if let Some(trailers) = frame.trailers_ref() {
                in_flight.account.record_trailers(trailers);
            }
            if let Some(bytes) = frame.data_ref() {
                in_flight.account.on_response_piece(bytes, read);
            }
        }
        if frame.is_trailers() || self.upstream.is_end_stream() {
            self.end(cx);
        }
    }

    /// Lets the reader read the pieces that have passed, once the client has been sent them.
    fn read_passed(&mut self) {
        let Some(in_flight) = self.in_flight() else { return };
        let flushes = in_flight.meter.flushes();
        if flushes != self.read_at_flush {
            in_flight.account.read_passed();
            self.read_at_flush = flushes;
        }
    }

    /// Adds the stages to the trailers, once, if they are wanted.
    fn add_timing(&mut self, trailers: &mut HeaderMap) -> bool {
        let is_wanted = std::mem::take(&mut self.has_timing_trailer);
        if let Some(in_flight) = self.in_flight().filter(|_| is_wanted) {
            server_timing::append(trailers, &in_flight.account);
        }
        is_wanted
    }

    /// The upstream's body is over.
    fn end(&mut self, cx: &mut Context<'_>) {
        self.upstream.rest(cx);
        self.finish();
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<TrackedChunk<InFlight>>, Cause>>> {
        loop {
            if let Some(frame) = self.rewrite.as_mut().and_then(|rewrite| rewrite.pop()) {
                return Poll::Ready(Some(Ok(self.hand(frame))));
            }
            if self.broken.is_some() {
                return self.poll_broken(cx);
            }
            if let Some(handed) = self.handed.take() {
                let now = Stamp::now();
                if now.since(handed) > SCHEDULING_NS {
                    if let Some(in_flight) = self.in_flight() {
                        in_flight.account.on_client_wait(handed, now);
                        in_flight.note_flow_control(handed, now);
                    }
                    self.upstream.on_client_wait(now);
                }
            }
            self.read_passed();
            match ready!(self.poll_step(cx)) {
                Step::Frame(frame) if self.rewrite.is_none() => return Poll::Ready(Some(Ok(self.hand(frame)))),
                Step::End if self.is_handed() => {
                    self.captures.finish();
                    let mut trailers = HeaderMap::new();
                    return Poll::Ready(self.add_timing(&mut trailers).then(|| {
                        self.on_last_head();
                        Ok(Frame::trailers(trailers))
                    }));
                }
                step => self.push_rewrite(step),
            }
        }
    }
}

impl Body for ResponseBody {
    type Data = TrackedChunk<InFlight>;
    type Error = Cause;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<TrackedChunk<InFlight>>, Cause>>> {
        let polled = self.poll_next(cx);
        if polled.is_ready() {
            self.upstream.leave();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.upstream.is_end_stream() && !self.has_timing_trailer && self.is_handed()
    }

    fn size_hint(&self) -> SizeHint {
        // over HTTP/2 hyper would look for a `Content-Length` to add, and the upstream's head has what the upstream said
        let is_said = self.rewrite.is_some() || self.in_flight().is_some_and(|in_flight| in_flight.is_multiplexed);
        if self.upstream.is_upstreams() && is_said { SizeHint::default() } else { self.upstream.size_hint() }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.run_on_without_client();
        if let (Some(_), Some(in_flight)) = (&self.broken, self.in_flight()) {
            in_flight.close(Stamp::now()); // the client left, or its connection ended: the response was broken before
        }
        // hyper drops a body that it needs no more of: then all of it has been handed over
        if self.guard.get().is_some() && self.is_end_stream() {
            self.finish();
            self.captures.finish();
        }
    }
}
