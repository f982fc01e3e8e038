//! Bytes of one connection on their way between a client and its store, unchanged. They are handed on first and read afterwards; no
//! more than one read waits in each direction.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::call::CallReader;
use crate::reader::Reader;
use crate::state::{DownstreamState, Downstreams, Recording};
use crate::unread::Unread;
use lapwing_ledger::Stamp;
use lapwing_net::Socket;

/// The most bytes of one read.
pub(crate) const READ: usize = 64 << 10;
/// How long one side may send nothing after the other has ended.
pub(crate) const HALF_CLOSED: Duration = Duration::from_secs(60);

thread_local! {
    /// What was read last on this thread: connections that stand still need no buffer.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into());
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Flow {
    /// What was read and not written, from `at` on.
    rest: Vec<u8>,
    at: usize,
    needs_flush: bool,
    has_ended: bool,
}

impl Flow {
    /// Moves what can be moved; calls `seen` with what was read, once it is on its way: when its first byte came, and just before it was
    /// handed on. Ready when the end was handed on.
    fn poll(
        &mut self,
        (from, to): (&mut Socket, &mut Socket),
        scratch: &mut [u8],
        cx: &mut Context<'_>,
        mut seen: impl FnMut(&[u8], Stamp, Stamp),
    ) -> Poll<io::Result<()>> {
        loop {
            while self.at < self.rest.len() {
                let written = ready!(Pin::new(&mut *to).poll_write(cx, &self.rest[self.at..]))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.at += written;
            }
            (self.rest, self.at) = (Vec::new(), 0);
            if self.needs_flush {
                ready!(Pin::new(&mut *to).poll_flush(cx))?;
                self.needs_flush = false;
            }
            if self.has_ended {
                return Pin::new(&mut *to).poll_shutdown(cx);
            }
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut *from).poll_read(cx, &mut buffer))?;
            let read = buffer.filled();
            if read.is_empty() {
                self.has_ended = true;
                continue;
            }
            // not after it was: this thread may have to wait for a processor then, while the peer goes on
            let handed_on = Stamp::now();
            let came = from.came().map_or(handed_on, |(first, _)| first);
            let written = match Pin::new(&mut *to).poll_write(cx, read) {
                Poll::Ready(written) => written?,
                Poll::Pending => 0,
            };
            self.rest.extend_from_slice(&read[written..]);
            self.needs_flush = to.holds_writes();
            if self.needs_flush && self.rest.is_empty() {
                self.needs_flush = Pin::new(&mut *to).poll_flush(cx)?.is_pending();
            }
            seen(read, came, handed_on);
        }
    }
}

/// A connection that is passed on and read.
pub(crate) struct Splice {
    pub(crate) client: Socket,
    pub(crate) store: Socket,
    pub(crate) of: Arc<DownstreamState>,
    pub(crate) all: Downstreams,
    sent: Flow,
    received: Flow,
    /// `None` once it can no longer be read.
    reader: Option<Reader>,
    has_sent_all: bool,
    has_received_all: bool,
    half_closed: Option<Pin<Box<Sleep>>>,
}

impl Splice {
    pub(crate) fn new(client: Socket, store: Socket, of: Arc<DownstreamState>, all: Downstreams) -> Self {
        let reader = Some(Reader::of(of.kind));
        let (sent, received) = (Flow::default(), Flow::default());
        let (has_sent_all, has_received_all) = (false, false);
        Self { client, store, of, all, sent, received, reader, has_sent_all, has_received_all, half_closed: None }
    }

    /// Passes bytes until both sides have ended, one has failed, or one is silent for too long after the other has ended.
    pub(crate) async fn run(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Whether the client waits for an answer.
    pub(crate) fn is_waiting(&self) -> bool {
        self.reader.as_ref().is_some_and(CallReader::is_waiting)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = self.all.progress.clone();
        progress.enter();
        let polled = SCRATCH.with_borrow_mut(|scratch| self.poll_both(scratch, cx));
        progress.leave();
        polled
    }

    fn poll_both(&mut self, scratch: &mut [u8], cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { client, store, of, all, reader, .. } = self;
        if !self.has_sent_all {
            let flow = self.sent.poll((client, store), scratch, cx, |bytes, came, _| {
                let in_flight = all.in_flight();
                note(of, all, reader, |reader, recording| {
                    recording.figures.bytes_sent += bytes.len() as u64;
                    reader.as_mut().map_or(Ok(()), |reader| reader.client(bytes, came, in_flight, recording))
                });
            });
            if let Poll::Ready(ended) = flow {
                ended?;
                self.has_sent_all = true;
                // a client that gave up waits for nothing
                end_reading(of, all, reader);
            }
        }
        if !self.has_received_all {
            let flow = self.received.poll((store, client), scratch, cx, |bytes, _, handed_on| {
                note(of, all, reader, |reader, recording| {
                    recording.figures.bytes_received += bytes.len() as u64;
                    reader.as_mut().map_or(Ok(()), |reader| reader.server(bytes, handed_on, recording))
                });
            });
            if let Poll::Ready(ended) = flow {
                ended?;
                self.has_received_all = true;
                end_reading(of, all, reader);
            }
        }
        if self.has_sent_all && self.has_received_all {
            return Poll::Ready(Ok(()));
        }
        if self.has_sent_all || self.has_received_all {
            let timer = self.half_closed.get_or_insert_with(|| Box::pin(sleep(HALF_CLOSED)));
            ready!(timer.as_mut().poll(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

/// Lets the reader look at bytes that are on their way, and counts why it cannot any more.
pub(crate) fn note(
    of: &Arc<DownstreamState>,
    all: &Downstreams,
    reader: &mut Option<Reader>,
    look: impl FnOnce(&mut Option<Reader>, &mut Recording<'_>) -> Result<(), Unread>,
) {
    let mut figures = of.figures.lock();
    let mut recording = Recording { figures: &mut figures, of, waits: &all.waits };
    if let Err(why) = look(reader, &mut recording) {
        *reader = None;
        figures.count_unread(why);
        tracing::debug!(downstream = %of.name, reason = why.name(), "a connection is passed on and no longer read");
    }
}

/// Lets the reader note that its connection has ended.
pub(crate) fn end_reading(of: &Arc<DownstreamState>, all: &Downstreams, reader: &mut Option<Reader>) {
    if let Some(mut ended) = reader.take() {
        let mut figures = of.figures.lock();
        ended.end(Stamp::now(), &mut Recording { figures: &mut figures, of, waits: &all.waits });
    }
}

impl Drop for Splice {
    fn drop(&mut self) {
        end_reading(&self.of, &self.all, &mut self.reader);
    }
}
