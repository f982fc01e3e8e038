//! The response's body as it comes over an HTTP/2 stream of the upstream.

use std::fmt::Debug;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http_body::{Frame, SizeHint};

use crate::connection::{SocketMeter, StreamPlace};
use lapwing_ledger::Stamp;

/// The rest of a request whose answer has begun, which goes on over the same stream.
pub(crate) trait Rest: Debug + Send {
    /// Sends what can be sent without waiting. Returns whether there is nothing more to send.
    fn is_sent(&mut self, cx: &mut Context<'_>) -> bool;
    /// Nobody asks for the answer until a piece of it is taken: until then it goes on by itself.
    fn leave(&self);
    /// The answer is over, and the request is not: it goes on for as long as the upstream takes it.
    fn go_on(self: Box<Self>);
}

/// One stream's answer.
#[derive(Debug)]
pub(crate) struct H2Source {
    stream: RecvStream,
    /// The connection's.
    meter: Arc<SocketMeter>,
    /// Until this is dropped.
    _place: StreamPlace,
    /// Bytes that the head says are still to come.
    length: Option<u64>,
    is_data_over: bool,
    /// Its trailers have come, which end a stream (RFC 9113, 8.1): it need not be asked, which takes a lock.
    is_over: bool,
    rest: Option<Box<dyn Rest>>,
}

impl H2Source {
    /// The body of an answer with so many bytes, if its head says how many, in its place on the connection of `meter`. With `rest`, the
    /// request is not over.
    pub(crate) fn new(
        stream: RecvStream,
        (meter, place): (Arc<SocketMeter>, StreamPlace),
        length: Option<u64>,
        rest: Option<Box<dyn Rest>>,
    ) -> Self {
        let length = length.or_else(|| stream.is_end_stream().then_some(0));
        Self { stream, meter, _place: place, length, is_data_over: false, is_over: false, rest }
    }

    /// When bytes were last read over the connection: those that the stream has just given, or later ones of another stream, which came
    /// before anybody looked. Nearer to their arrival than the time of looking, in any case.
    pub(crate) fn last_read(&self) -> Stamp {
        self.meter.last_read().unwrap_or_else(Stamp::now)
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if self.rest.as_mut().is_some_and(|rest| rest.is_sent(cx)) {
            self.rest = None;
        }
        if !self.is_data_over {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(bytes)) => {
                    // passed on at once: what the client does not take is held back by its own window
                    let _ = self.stream.flow_control().release_capacity(bytes.len());
                    self.length = self.length.map(|left| left.saturating_sub(bytes.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                // an early end, if END_STREAM has come; else the body was cut (RFC 9113, 8.1)
                Some(Err(error)) if error.reason() == Some(Reason::NO_ERROR) => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.is_data_over = true,
            }
        }
        match ready!(self.stream.poll_trailers(cx)) {
            Ok(trailers) => {
                self.is_over = trailers.is_some();
                Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
            }
            Err(error) if error.reason() == Some(Reason::NO_ERROR) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.is_over || self.stream.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Nobody asks for more until what was given is taken.
    pub(crate) fn leave(&self) {
        if let Some(rest) = &self.rest {
            rest.leave();
        }
    }

    /// The answer was read to its end.
    pub(crate) fn end(&mut self) {
        if let Some(rest) = self.rest.take() {
            rest.go_on();
        }
    }
}
