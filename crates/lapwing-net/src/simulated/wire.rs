//! Sockets of a simulation. To the task they are the runtime's own: each operation takes a unit of the task's turn, readiness is what the
//! system reported last (edges, as with epoll), a short read or write clears it, and there is one waker for each direction.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::coop::poll_proceed;

use super::random::draw;
use crate::peer_closed::PeerClosed;

thread_local! {
    /// The wires of this thread's simulation.
    static WIRES: RefCell<Wires> = RefCell::default();
}

/// What the runtime knows about one direction of a socket.
#[derive(Debug, Default)]
struct Readiness {
    is_ready: bool,
    /// The system has an event, and the runtime has not asked since.
    has_event: bool,
    waker: Option<Waker>,
}

impl Readiness {
    /// The runtime hears of the event.
    fn hear(&mut self) -> Option<Waker> {
        if !std::mem::take(&mut self.has_event) {
            return None;
        }
        self.is_ready = true;
        self.waker.take()
    }
}

/// One direction.
#[derive(Debug)]
struct Lane {
    bytes: BytesMut,
    /// How many of them have arrived.
    arrived: usize,
    capacity: usize,
    /// The writer writes no more.
    is_shut: bool,
    /// The reader has heard that.
    is_end_heard: bool,
    /// The reader is gone.
    is_deaf: bool,
    /// What is not read is lost.
    is_reset: bool,
    /// A write found too little room.
    is_awaited: bool,
    reader: Readiness,
    writer: Readiness,
}

impl Lane {
    fn new(capacity: usize) -> Self {
        let writer = Readiness { has_event: true, ..Readiness::default() };
        Self {
            bytes: BytesMut::new(),
            arrived: 0,
            capacity,
            is_shut: false,
            is_end_heard: false,
            is_deaf: false,
            is_reset: false,
            is_awaited: false,
            reader: Readiness::default(),
            writer,
        }
    }

    /// Whether something is on its way to the reader.
    fn is_flying(&self) -> bool {
        self.arrived < self.bytes.len() || (self.is_shut && !self.is_end_heard)
    }

    fn arrive(&mut self) {
        let flying = self.bytes.len() - self.arrived;
        self.arrived += if draw(3) == 0 { flying } else { draw(flying + 1) };
        if self.arrived == self.bytes.len() && self.is_shut {
            self.is_end_heard = true;
        }
        self.reader.has_event = true;
    }

    /// Reads what has arrived; `None` if there is nothing.
    fn read(&mut self, buf: &mut ReadBuf<'_>) -> Option<io::Result<()>> {
        if self.is_reset {
            return Some(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let n = self.arrived.min(buf.remaining());
        if n == 0 {
            return (self.is_end_heard || buf.remaining() == 0).then_some(Ok(()));
        }
        // a short read takes readiness back, for there is nothing left; the end is not forgotten
        self.reader.is_ready = n == buf.remaining() || self.is_end_heard;
        buf.put_slice(&self.bytes.split_to(n));
        self.arrived -= n;
        if std::mem::take(&mut self.is_awaited) {
            self.writer.has_event = true;
        }
        Some(Ok(()))
    }

    /// Takes what there is room for; `None` if there is none.
    fn write(&mut self, bufs: &[io::IoSlice<'_>]) -> Option<io::Result<usize>> {
        if self.is_deaf || self.is_shut {
            return Some(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let length: usize = bufs.iter().map(|buf| buf.len()).sum();
        let room = self.capacity.saturating_sub(self.bytes.len());
        let room = if room > 1 && draw(8) == 0 { 1 + draw(room) } else { room };
        let mut left = room.min(length);
        let taken = left;
        for buf in bufs {
            let n = left.min(buf.len());
            self.bytes.extend_from_slice(&buf[..n]);
            left -= n;
        }
        if taken < length {
            self.writer.is_ready = false;
            // it took less than it might have: there is room again at once
            self.writer.has_event |= self.bytes.len() < self.capacity;
            self.is_awaited = true;
        }
        (taken > 0 || length == 0).then_some(Ok(taken))
    }
}

type Lanes = Arc<Mutex<[Lane; 2]>>;

/// One end of a connection.
#[derive(Debug)]
pub struct SimulatedStream {
    lanes: Lanes,
    /// Which lane it writes; it reads the other.
    side: usize,
}

/// Makes a connection. Its buffers are drawn.
#[must_use]
pub fn pair() -> (SimulatedStream, SimulatedStream) {
    let capacity = || (1 + draw(4)) << (10 + draw(8));
    let lanes: Lanes = Arc::new(Mutex::new([Lane::new(capacity()), Lane::new(capacity())]));
    WIRES.with_borrow_mut(|wires| wires.0.push(Arc::downgrade(&lanes)));
    (SimulatedStream { lanes: lanes.clone(), side: 0 }, SimulatedStream { lanes, side: 1 })
}

impl SimulatedStream {
    fn poll_reading<T>(&self, cx: &mut Context<'_>, mut read: impl FnMut(&mut Lane) -> Option<T>) -> Poll<T> {
        self.poll_lane(cx, 1 - self.side, |lane| &mut lane.reader, &mut read)
    }

    /// An operation as the runtime does it: while the socket is ready, the system is asked; if that had nothing, it is not ready any more.
    fn poll_lane<T>(
        &self,
        cx: &mut Context<'_>,
        lane: usize,
        readiness: impl Fn(&mut Lane) -> &mut Readiness,
        act: &mut impl FnMut(&mut Lane) -> Option<T>,
    ) -> Poll<T> {
        loop {
            let unit = ready!(poll_proceed(cx));
            let lane = &mut self.lanes.lock()[lane];
            if !readiness(lane).is_ready {
                readiness(lane).waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            unit.made_progress();
            if let Some(done) = act(lane) {
                return Poll::Ready(done);
            }
            readiness(lane).is_ready = false;
        }
    }

    /// Waits until there is something to read.
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_reading(cx, |_| Some(Ok(())))
    }

    /// Whether the runtime holds that there is something to read.
    pub(crate) fn may_be_read(&self) -> bool {
        self.lanes.lock()[1 - self.side].reader.is_ready
    }

    /// What the peer has closed.
    pub(crate) fn peer_closed(&self) -> PeerClosed {
        let lanes = self.lanes.lock();
        PeerClosed { sends: lanes[1 - self.side].is_end_heard, takes: lanes[self.side].is_deaf }
    }
}

impl AsyncRead for SimulatedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_reading(cx, |lane| lane.read(buf))
    }
}

impl AsyncWrite for SimulatedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll_lane(cx, self.side, |lane| &mut lane.writer, &mut |lane| lane.write(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lanes.lock()[self.side].is_shut = true;
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimulatedStream {
    fn drop(&mut self) {
        let lanes = &mut *self.lanes.lock();
        let is_reset = !lanes[1 - self.side].bytes.is_empty();
        lanes[self.side].is_shut = true;
        lanes[self.side].is_reset |= is_reset;
        lanes[self.side].reader.has_event |= is_reset;
        lanes[1 - self.side].is_deaf = true;
        lanes[1 - self.side].writer.has_event = true;
    }
}

/// All wires of a simulation.
#[derive(Debug, Default)]
struct Wires(Vec<Weak<Mutex<[Lane; 2]>>>);

/// Forgets the wires of the simulation before.
pub(crate) fn clear() {
    WIRES.take();
}

/// How many lanes have an event or bytes.
pub(crate) fn pending() -> usize {
    WIRES.with_borrow_mut(|wires| {
        wires.0.retain(|wire| wire.strong_count() > 0);
        let has = |lane: &Lane| usize::from(lane.is_flying() || lane.reader.has_event || lane.writer.has_event);
        wires.0.iter().filter_map(Weak::upgrade).map(|wire| wire.lock().iter().map(has).sum::<usize>()).sum()
    })
}

/// What every lane holds, for a case that comes to rest.
#[must_use]
pub fn describe() -> String {
    let wires: Vec<Lanes> = WIRES.with_borrow(|wires| wires.0.iter().filter_map(Weak::upgrade).collect());
    let lane = |lane: &Lane| {
        let Lane { bytes, arrived, capacity, .. } = lane;
        let is = [lane.is_shut, lane.is_deaf, lane.is_reset, lane.is_awaited];
        let of = |readiness: &Readiness| (readiness.is_ready, readiness.waker.is_some());
        let (reader, writer) = (of(&lane.reader), of(&lane.writer));
        let held = bytes.len();
        format!(
            "{arrived} of {held} bytes arrived, room for {capacity}, shut, deaf, reset, awaited: {is:?}, ready and awaited: {reader:?} {writer:?}"
        )
    };
    let wires = wires.iter().map(|wire| wire.lock().iter().map(lane).collect::<Vec<_>>().join("; back: "));
    wires.collect::<Vec<_>>().join("\n")
}

/// Something arrives, or the runtime hears of what has: of some of it, or of all.
pub(crate) fn step() {
    let wires: Vec<Lanes> = WIRES.with_borrow(|wires| wires.0.iter().filter_map(Weak::upgrade).collect());
    let mut wakers = VecDeque::new();
    let all = draw(2) == 0;
    for wire in &wires {
        for lane in wire.lock().iter_mut() {
            if lane.is_flying() && (all || draw(2) == 0) {
                lane.arrive();
            }
            if all || draw(2) == 0 {
                wakers.extend(lane.reader.hear().into_iter().chain(lane.writer.hear()));
            }
        }
    }
    wakers.into_iter().for_each(Waker::wake);
}

/// What a simulated client connects to.
#[derive(Debug)]
pub struct SimulatedListener(mpsc::UnboundedReceiver<SimulatedStream>);

/// Makes a listener and what connects to it.
#[must_use]
pub fn listen() -> (mpsc::UnboundedSender<SimulatedStream>, SimulatedListener) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, SimulatedListener(receiver))
}

impl SimulatedListener {
    /// The next connection.
    pub(crate) async fn connected(&mut self) -> SimulatedStream {
        match self.0.recv().await {
            Some(stream) => stream,
            None => std::future::pending().await,
        }
    }
}

/// The address of a simulated server: what connects to it is handed to the server. Clones are the same address.
#[derive(Clone, Debug)]
pub struct SimulatedAddress(pub mpsc::UnboundedSender<SimulatedStream>);

impl PartialEq for SimulatedAddress {
    fn eq(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }
}

impl Eq for SimulatedAddress {}

impl SimulatedAddress {
    pub(crate) fn connect(&self) -> io::Result<SimulatedStream> {
        let (stream, peer) = pair();
        self.0.send(peer).map_err(|_| io::ErrorKind::ConnectionRefused)?;
        Ok(stream)
    }
}
