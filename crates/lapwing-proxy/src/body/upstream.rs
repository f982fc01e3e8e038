//! The response's body as it comes from the upstream, or from Lapwing itself.
//!
//! It drives what its bytes come over, for no task does: whenever the body is polled and has nothing, and once more at its
//! end, so that the connection comes to rest and can carry the next request.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::beside::Beside;
use super::broken::Cause;
use super::drive::Drive;
use super::h2_source::H2Source;
use super::own::OwnBody;
use super::split_write::{FirstPiece, on_split_write};
use crate::connection::LazyDeadline;
use crate::error::Error;
use crate::in_flight::RequestAccount;
use lapwing_ledger::Stamp;
use lapwing_net::Tasks;

type PolledFrame = Poll<Option<Result<Frame<Bytes>, Cause>>>;

/// A response's body before it is changed or handed to the client.
#[derive(Debug)]
pub(crate) struct UpstreamBody {
    source: Source,
    connection: Option<Box<dyn Drive>>,
    /// Has the connection while nobody asks for the answer of a request that is not over.
    beside: Option<Beside<Box<dyn Drive>>>,
    /// When the upstream last gave something, or the client last took it.
    last: Stamp,
    first: FirstPiece,
    deadline: LazyDeadline,
}

#[derive(Debug)]
enum Source {
    /// Over HTTP/1.1.
    Upstream(Incoming),
    /// Over an HTTP/2 stream, which says by itself when it ends.
    Stream(H2Source),
    /// Boxed: every body is as large as the largest.
    Own(Box<OwnBody>),
}

impl UpstreamBody {
    /// The upstream's body, its head read at `head`. With `connection`, the body drives it.
    pub(crate) fn new(body: Incoming, connection: Option<Box<dyn Drive>>, head: Stamp) -> Self {
        let first = if connection.is_none() { FirstPiece::Read } else { FirstPiece::Unread };
        Self { source: Source::Upstream(body), connection, beside: None, last: head, first, deadline: LazyDeadline::default() }
    }

    /// The body of an answer over HTTP/2, its head read at `head`.
    pub(crate) fn stream(stream: H2Source, head: Stamp) -> Self {
        let (source, first) = (Source::Stream(stream), FirstPiece::Read);
        Self { source, connection: None, beside: None, last: head, first, deadline: LazyDeadline::default() }
    }

    /// Lapwing's own body.
    pub(crate) fn own(body: OwnBody) -> Self {
        let source = Source::Own(Box::new(body));
        let (last, first) = (Stamp::now(), FirstPiece::Read);
        Self { source, connection: None, beside: None, last, first, deadline: LazyDeadline::default() }
    }

    /// The request is not over: it goes on while nobody asks for the answer.
    pub(crate) fn go_on_beside(&mut self, tasks: &Tasks) {
        if let Some(connection) = self.connection.take() {
            let beside = Beside::new(Some(connection), tasks.clone());
            // who drove it until now is not there to be woken
            beside.waker().wake_by_ref();
            self.beside = Some(beside);
        }
    }

    /// Nobody asks for more until what was given is taken.
    pub(crate) fn leave(&mut self) {
        if let Source::Stream(stream) = &self.source {
            stream.leave();
        }
        if let Some(beside) = &self.beside {
            if let Some(connection) = self.connection.take() {
                beside.put(connection);
            }
            beside.leave();
        }
    }

    /// Takes the connection back.
    fn take_back(&mut self) {
        if let (None, Some(beside)) = (&self.connection, &self.beside) {
            self.connection = beside.take();
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Upstream(body) => body.is_end_stream(),
            Source::Stream(body) => body.is_end_stream(),
            Source::Own(body) => body.is_end_stream(),
        }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Upstream(body) => body.size_hint(),
            Source::Stream(body) => body.size_hint(),
            Source::Own(body) => body.size_hint(),
        }
    }

    /// Returns whether the body comes from the upstream.
    pub(crate) const fn is_upstreams(&self) -> bool {
        !matches!(self.source, Source::Own(_))
    }

    /// The next frame of the response to the request of `account`.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>, account: Option<&RequestAccount>) -> PolledFrame {
        let Some(beside) = &self.beside else { return self.poll_next(cx, account) };
        beside.ask(cx);
        let waker = beside.waker().clone();
        self.take_back();
        self.poll_next(&mut Context::from_waker(&waker), account)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, account: Option<&RequestAccount>) -> PolledFrame {
        let polled = self.poll_source(cx);
        if self.first == FirstPiece::Read {
            return polled;
        }
        self.on_first_polled(polled, cx, account)
    }

    /// The first piece was asked for. Notes whether the upstream wrote it apart from the head, and how much later it came.
    fn on_first_polled(
        &mut self,
        mut polled: PolledFrame,
        cx: &mut Context<'_>,
        account: Option<&RequestAccount>,
    ) -> PolledFrame {
        let Some(account) = account else { return polled };
        if polled.is_pending()
            && self.first == FirstPiece::Unread
            && let Some(connection) = &mut self.connection
        {
            self.first = FirstPiece::Awaited;
            on_split_write(&mut **connection, account, cx);
            polled = self.poll_source(cx);
        }
        if let Poll::Ready(piece) = &polled {
            if let (FirstPiece::Awaited, Some(Ok(frame))) = (self.first, piece)
                && frame.is_data()
            {
                let gap_ns = self.read_at().since(self.last);
                account.write_ledger(|ledger| ledger.circumstances.body_gap_ns = gap_ns);
            }
            self.first = FirstPiece::Read;
        }
        polled
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let incoming = match &mut self.source {
            Source::Own(own) => return Pin::new(&mut **own).poll_frame(cx).map_err(|never| match never {}),
            Source::Stream(stream) => return stream.poll_frame(cx).map_err(Cause::from),
            Source::Upstream(incoming) => incoming,
        };
        let Some(connection) = &mut self.connection else { return Pin::new(incoming).poll_frame(cx).map_err(Cause::from) };
        // only driving the connection adds frames, and it is driven whenever there is none: nobody has to be woken for either
        let mut next = |connection: &dyn Drive| {
            let cx = &mut Context::from_waker(Waker::noop());
            connection.waker().quietly(|| Pin::new(&mut *incoming).poll_frame(cx)).0
        };
        let mut polled = next(&**connection);
        if polled.is_pending() {
            connection.drive(cx);
            polled = next(&**connection);
        }
        polled.map_err(Cause::from)
    }

    /// Whether a body that gives nothing more was reset before its end: only END_STREAM is one (RFC 9113, 8.1).
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self.source, Source::Stream(_)) && !self.is_end_stream()
    }

    /// Stamps a frame: returns when its bytes were read.
    pub(crate) fn stamp_frame(&mut self) -> Stamp {
        self.last = self.read_at();
        self.last
    }

    /// When the latest bytes were read: at the connection's latest read, or now.
    fn read_at(&self) -> Stamp {
        let read = match &self.source {
            Source::Stream(stream) => Some(stream.last_read()),
            _ => self.connection.as_ref().and_then(|connection| connection.last_read()),
        };
        read.map_or_else(Stamp::now, |read| read.max(self.last))
    }

    /// The client took until `at` to take a frame, which is not the upstream's time.
    pub(crate) fn on_client_wait(&mut self, at: Stamp) {
        self.last = at;
    }

    /// Returns the error if the upstream has stood still for longer than `idle_timeout`. The client took bytes last when they were `taken`:
    /// the time that a slow client took is not the upstream's.
    pub(crate) fn stalled(&mut self, cx: &mut Context<'_>, account: &RequestAccount, taken: Option<Stamp>) -> Option<Error> {
        let limit = account.context.config.idle_limit();
        // nor is the upstream silent while the request still comes: it may answer once it has all of it, and has its time from then
        let since = self.last.max(taken.unwrap_or(self.last)).max(account.stamps.request_last());
        self.deadline.has_expired(cx, since, limit).then_some(Error::ResponseStalled { limit })
    }

    /// The body is over: lets the connection come to rest.
    pub(crate) fn rest(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection {
            connection.drive(cx);
        }
    }

    /// Tells `on_end` when the last byte was read, and gives the connection back.
    pub(crate) fn end(&mut self, on_end: impl FnOnce(Stamp)) {
        self.take_back();
        self.beside = None;
        let end = self.read_at();
        on_end(end);
        if let Some(connection) = self.connection.take() {
            connection.release(end);
        }
        if let Source::Stream(stream) = &mut self.source {
            stream.end();
        }
    }

    /// Reads it to its end and throws it away, at most so many bytes. Returns whether that was all; else the connection is closed.
    pub(crate) async fn discard(mut self, limit: usize) -> bool {
        let mut left = limit;
        while !self.is_end_stream() {
            match poll_fn(|cx| self.poll_frame(cx, None)).await {
                Some(Ok(frame)) => match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                    Some(rest) => left = rest,
                    None => return false,
                },
                Some(Err(_)) => return false,
                None if self.is_cut() => return false,
                None => break,
            }
        }
        poll_fn(|cx| {
            self.rest(cx);
            Poll::Ready(())
        })
        .await;
        self.end(|_| ());
        true
    }

    /// Closes the connection.
    pub(crate) fn close(&mut self) {
        self.beside = None;
        self.connection = None;
    }
}
