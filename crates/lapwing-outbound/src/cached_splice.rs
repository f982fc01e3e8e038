//! Bytes of one connection whose calls may be answered from memory. A call is held until it is known; everything else passes as
//! elsewhere. Answers of the store are looked at before they are handed on, so that what they forget is forgotten first.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::cache::{Conversation, Outgoing, Turn};
use crate::call::CallReader;
use crate::reader::Reader;
use crate::splice::{HALF_CLOSED, READ, end_reading, note};
use crate::state::{DownstreamState, Downstreams};
use lapwing_ledger::Stamp;
use lapwing_net::Socket;

/// Answers that a client has not taken, in bytes: beyond, the store is asked, which waits with its own.
const MAX_BACKLOG: usize = 1 << 20;

thread_local! {
    /// What was read last on this thread.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into());
}

/// Bytes on their way to one side.
#[derive(Debug, Default)]
struct Outbox {
    held: Vec<u8>,
    at: usize,
    needs_flush: bool,
    /// Nothing more comes.
    has_ended: bool,
    is_shut: bool,
}

impl Outbox {
    fn left(&self) -> usize {
        self.held.len() - self.at
    }

    fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// Hands on what can be; ready when nothing is left.
    fn poll(&mut self, to: &mut Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.at < self.held.len() {
            let written = ready!(Pin::new(&mut *to).poll_write(cx, &self.held[self.at..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.at += written;
            self.needs_flush = to.holds_writes();
        }
        (self.held, self.at) = (Vec::new(), 0);
        if self.needs_flush {
            ready!(Pin::new(&mut *to).poll_flush(cx))?;
            self.needs_flush = false;
        }
        if self.has_ended && !self.is_shut {
            ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
            self.is_shut = true;
        }
        Poll::Ready(Ok(()))
    }
}

/// A connection whose calls may be answered from memory.
pub(crate) struct CachedSplice {
    client: Socket,
    store: Socket,
    of: Arc<DownstreamState>,
    all: Downstreams,
    conversation: Conversation,
    to_store: Outbox,
    to_client: Outbox,
    out: Outgoing,
    /// `None` once it can no longer be read.
    reader: Option<Reader>,
    half_closed: Option<Pin<Box<Sleep>>>,
}

impl CachedSplice {
    pub(crate) fn new(client: Socket, store: Socket, of: Arc<DownstreamState>, all: Downstreams) -> Self {
        let (reader, conversation) = (Some(Reader::of(of.kind)), Conversation::of(of.kind));
        let (to_store, to_client, out) = (Outbox::default(), Outbox::default(), Outgoing::default());
        Self { client, store, of, all, conversation, to_store, to_client, out, reader, half_closed: None }
    }

    /// Passes bytes until both sides have ended, one has failed, or one is silent for too long after the other has ended.
    pub(crate) async fn run(&mut self) -> io::Result<()> {
        poll_fn(|cx| {
            let progress = self.all.progress.clone();
            progress.enter();
            let polled = SCRATCH.with_borrow_mut(|scratch| self.poll(scratch, cx));
            progress.leave();
            polled
        })
        .await
    }

    /// Whether the client waits for an answer.
    pub(crate) fn is_waiting(&self) -> bool {
        self.reader.as_ref().is_some_and(CallReader::is_waiting)
    }

    fn poll(&mut self, scratch: &mut [u8], cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            // both ways, whatever the other one waits for
            let is_sent = self.to_store.poll(&mut self.store, cx)?.is_ready();
            let is_received = self.to_client.poll(&mut self.client, cx)?.is_ready();
            let mut has_moved = false;
            if is_sent && !self.to_store.has_ended {
                let mut buffer = ReadBuf::new(scratch);
                if Pin::new(&mut self.client).poll_read(cx, &mut buffer)?.is_ready() {
                    self.client_sent(buffer.filled(), cx)?;
                    has_moved = true;
                }
            }
            if is_received && self.to_client.left() == 0 && !self.to_client.has_ended {
                let mut buffer = ReadBuf::new(scratch);
                if Pin::new(&mut self.store).poll_read(cx, &mut buffer)?.is_ready() {
                    self.store_sent(buffer.filled(), cx)?;
                    has_moved = true;
                }
            }
            if !has_moved {
                return self.ended(cx);
            }
        }
    }

    /// Ready if nothing more will pass.
    fn ended(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match (self.to_store.is_shut, self.to_client.is_shut) {
            (true, true) => Poll::Ready(Ok(())),
            (false, false) => Poll::Pending,
            _ => {
                let timer = self.half_closed.get_or_insert_with(|| Box::pin(sleep(HALF_CLOSED)));
                ready!(timer.as_mut().poll(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    fn client_sent(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> io::Result<()> {
        let now = Stamp::now();
        let came = self.client.came().map_or(now, |(first, _)| first);
        let room = if self.to_client.has_ended { 0 } else { MAX_BACKLOG.saturating_sub(self.to_client.left()) };
        if bytes.is_empty() {
            self.conversation.client_ended(&mut self.out);
            self.to_store.has_ended = true;
        } else {
            self.conversation.client(bytes, Turn { now: came, room }, self.of.cache.as_ref(), &mut self.out);
        }
        let sent = self.out.to_store.len() as u64;
        self.to_store.push(&self.out.to_store);
        self.to_client.push(&self.out.answers);
        let handed_on = Stamp::now();
        // ends are handed on by whoever polls again
        let _ = self.to_client.poll(&mut self.client, cx)?;
        let _ = self.to_store.poll(&mut self.store, cx)?;
        let (in_flight, answers) = (self.all.in_flight(), &self.out.answers);
        note(&self.of, &self.all, &mut self.reader, |reader, recording| {
            recording.figures.bytes_sent += sent;
            let Some(reader) = reader else { return Ok(()) };
            reader.client(bytes, came, in_flight, recording)?;
            if answers.is_empty() { Ok(()) } else { reader.server(answers, handed_on, recording) }
        });
        if bytes.is_empty() {
            // a client that gave up waits for nothing
            end_reading(&self.of, &self.all, &mut self.reader);
        }
        self.out.clear();
        Ok(())
    }

    fn store_sent(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> io::Result<()> {
        if bytes.is_empty() {
            self.to_client.has_ended = true;
            end_reading(&self.of, &self.all, &mut self.reader);
            return Ok(());
        }
        let handed_on = Stamp::now();
        self.conversation.server(bytes, handed_on, self.of.cache.as_ref());
        self.to_client.push(bytes);
        let _ = self.to_client.poll(&mut self.client, cx)?;
        note(&self.of, &self.all, &mut self.reader, |reader, recording| {
            recording.figures.bytes_received += bytes.len() as u64;
            reader.as_mut().map_or(Ok(()), |reader| reader.server(bytes, handed_on, recording))
        });
        Ok(())
    }
}

impl Drop for CachedSplice {
    fn drop(&mut self) {
        self.conversation.end(Stamp::now(), self.of.cache.as_ref());
        end_reading(&self.of, &self.all, &mut self.reader);
    }
}
