//! A response's body, bounded in bytes and in time.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::error::ClientError;
use super::limits::ClientLimits;

/// The body of a response that a [`Client`](super::Client) got: data as it arrives, then trailers. It ends with an error when it
/// grows larger than [`ClientLimits::max_body`] or when [`ClientLimits::timeout`] passes.
#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    /// Bytes that may still arrive.
    left: usize,
    max_body: usize,
    deadline: Pin<Box<Sleep>>,
    timeout: Duration,
}

impl Body {
    pub(crate) fn new(incoming: Incoming, limits: &ClientLimits, deadline: Pin<Box<Sleep>>) -> Self {
        Self { incoming, left: limits.max_body, max_body: limits.max_body, deadline, timeout: limits.timeout }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = ClientError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ClientError>>> {
        let this = &mut *self;
        match Pin::new(&mut this.incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                Poll::Ready(Some(match this.left.checked_sub(length) {
                    Some(left) => {
                        this.left = left;
                        Ok(frame)
                    }
                    None => Err(ClientError::BodyTooLarge(this.max_body)),
                }))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(ClientError::BodyCut(error)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending if this.deadline.as_mut().poll(cx).is_ready() => {
                Poll::Ready(Some(Err(ClientError::Timeout(this.timeout))))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
