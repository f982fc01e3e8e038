//! A request's body on its way into an HTTP/2 stream of the upstream. It has no task: whoever waits for the answer, and later the answer's
//! body, polls it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;

use crate::proxy::body::{RequestBody, RequestBodyError};

/// A first piece of up to so many bytes is queued with the head, before the stream has a window: it is one frame of any peer (RFC 9113, 4.2), and
/// would wait here if it did not wait there. To ask for the window would take one more turn of this task and of the connection's.
const FIRST: usize = 16 * 1024;

/// Why an upload ended before the request's end.
#[derive(Debug)]
pub(super) enum UploadError {
    /// The client's body broke off. The stream was reset.
    Body(RequestBodyError),
    /// The stream takes no more: the upstream reset it, or the connection has ended. The answer says why.
    Stream,
}

/// An upload under way.
#[derive(Debug)]
pub(super) struct H2Upload {
    body: RequestBody,
    stream: SendStream<Bytes>,
    /// A piece that waits for the stream's window, and whether it is the last.
    waiting: Option<(Bytes, bool)>,
    has_begun: bool,
}

impl H2Upload {
    pub(super) const fn new(body: RequestBody, stream: SendStream<Bytes>) -> Self {
        Self { body, stream, waiting: None, has_begun: false }
    }

    /// Sends what can be sent without waiting; ready once all of it was.
    pub(super) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), UploadError>> {
        loop {
            // so that the task is woken when the upstream resets the stream
            if self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(UploadError::Stream));
            }
            if self.waiting.is_some() {
                while self.stream.capacity() == 0 {
                    match ready!(self.stream.poll_capacity(cx)) {
                        Some(Ok(_)) => {}
                        Some(Err(_)) | None => return Poll::Ready(Err(UploadError::Stream)),
                    }
                }
                if let Some((piece, is_last)) = self.waiting.take() {
                    // it queues the whole piece, and asks for the window that it takes
                    self.send(piece, is_last)?;
                    if is_last {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => return Poll::Ready(self.send(Bytes::new(), true)),
                Some(Err(error)) => {
                    self.stream.send_reset(Reason::CANCEL);
                    return Poll::Ready(Err(UploadError::Body(error)));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) if piece.is_empty() || (!self.has_begun && piece.len() <= FIRST) => {
                        self.has_begun |= !piece.is_empty();
                        let is_last = self.body.is_end_stream();
                        self.send(piece, is_last)?;
                        if is_last {
                            return Poll::Ready(Ok(()));
                        }
                    }
                    Ok(piece) => {
                        self.has_begun = true;
                        // no more than a claim: what is asked for here is kept from the connection's other streams
                        self.stream.reserve_capacity(1);
                        self.waiting = Some((piece, self.body.is_end_stream()));
                    }
                    Err(frame) => {
                        let Ok(trailers) = frame.into_trailers() else { continue };
                        self.stream.reserve_capacity(0);
                        return Poll::Ready(self.stream.send_trailers(trailers).map_err(|_| UploadError::Stream));
                    }
                },
            }
        }
    }

    fn send(&mut self, piece: Bytes, is_last: bool) -> Result<(), UploadError> {
        self.stream.send_data(piece, is_last).map_err(|_| UploadError::Stream)
    }
}
