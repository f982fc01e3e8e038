//! A request's body on its way into an HTTP/2 stream of the upstream. It has no task: whoever waits for the answer, and later the answer's
//! body, polls it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;

use crate::body::{RequestBody, RequestBodyError};
use crate::connection::UploadWait;

/// A first piece of up to so many bytes is queued with the head, before the stream has a window: it is one frame of any peer (RFC 9113, 4.2), and
/// would wait here if it did not wait there. To ask for the window would take one more turn of this task and of the connection's.
const FIRST: usize = 16 * 1024;

/// Ready once the upstream's `SETTINGS` apply. Until then a stream's window is 64 KiB. If the upstream's is smaller, what was sent counts against
/// it later, and a server that has read all of that may never say that there is room again (of its own kind, h2 does not while less than a third
/// of 64 KiB has come; h2 0.4.20, `src/proto/streams/recv.rs`, `Recv::apply_local_settings`), or take it for a breach. So only a
/// request that is whole in its first piece goes before them.
pub(crate) type SettingsHeard = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Why an upload ended before the request's end.
#[derive(Debug)]
pub(crate) enum UploadError {
    /// The client's body broke off. The stream was reset.
    Body(RequestBodyError),
    /// The stream takes no more: the upstream reset it, or the connection has ended. The answer says why.
    Stream,
}

/// An upload under way.
pub(crate) struct H2Upload {
    body: RequestBody,
    stream: SendStream<Bytes>,
    /// A piece that waits for the stream's window, and whether it is the last.
    waiting: Option<(Bytes, bool)>,
    has_begun: bool,
    /// If they were not heard yet.
    settings: Option<SettingsHeard>,
    window: UploadWait,
    /// The first piece, if it was sent and is the last too.
    whole: Option<Bytes>,
}

impl std::fmt::Debug for H2Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("H2Upload").field("has_begun", &self.has_begun).finish_non_exhaustive()
    }
}

impl H2Upload {
    pub(crate) const fn new(
        body: RequestBody,
        stream: SendStream<Bytes>,
        settings: Option<SettingsHeard>,
        window: UploadWait,
    ) -> Self {
        Self { body, stream, waiting: None, has_begun: false, settings, window, whole: None }
    }

    /// The body, if one piece was all of it, and was sent.
    pub(crate) fn take_whole(&mut self) -> Option<Bytes> {
        self.whole.take()
    }

    /// Whether something of the body was taken.
    pub(crate) const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The body, if nothing of it was taken.
    pub(crate) fn unbegun(self) -> Option<RequestBody> {
        (!self.has_begun).then_some(self.body)
    }

    /// Whether a piece can go before the stream has a window.
    fn is_first(&self, piece: &Bytes) -> bool {
        !self.has_begun && piece.len() <= FIRST && (self.settings.is_none() || self.body.is_end_stream())
    }

    /// Sends what can be sent without waiting; ready once all of it was.
    pub(crate) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), UploadError>> {
        loop {
            // so that the task is woken when the upstream resets the stream
            if self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(UploadError::Stream));
            }
            if self.waiting.is_some() {
                if let Some(heard) = &mut self.settings {
                    ready!(heard.as_mut().poll(cx));
                    self.settings = None;
                }
                while self.stream.capacity() == 0 {
                    let polled = self.stream.poll_capacity(cx);
                    self.window.set(polled.is_pending());
                    match ready!(polled) {
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
                    Ok(piece) if piece.is_empty() || self.is_first(&piece) => {
                        let is_first = !self.has_begun;
                        self.has_begun |= !piece.is_empty();
                        let is_last = self.body.is_end_stream();
                        let whole = (is_last && is_first).then(|| piece.clone());
                        self.send(piece, is_last)?;
                        if is_last {
                            self.whole = whole;
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use bytes::Bytes;
    use http::{Request, Response};
    use tokio::time::timeout;

    use lapwing_net::Tasks;

    /// Sends `first` bytes before the server's `SETTINGS` have come, with a window of 4,096 bytes, and asks for room once the server has read all
    /// of it. Returns whether it gets any.
    async fn has_room_after(first: usize) -> bool {
        let (client, server) = tokio::io::duplex(1 << 20);
        let (mut streams, connection) = h2::client::handshake(client).await.unwrap();
        let tasks = Tasks::default();
        tasks.spawn(async move { drop(connection.await) });
        let (_answer, mut upload) = streams.send_request(Request::new(()), false).unwrap();
        upload.send_data(Bytes::from(vec![0; first]), false).unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await; // all of it is written
        let mut connection = h2::server::Builder::new().initial_window_size(4096).handshake::<_, Bytes>(server).await.unwrap();
        let (request, mut answer) = connection.accept().await.unwrap().unwrap();
        let _answer = answer.send_response(Response::new(()), false).unwrap();
        tasks.spawn(async move {
            let mut body = request.into_body();
            while let Some(Ok(piece)) = body.data().await {
                body.flow_control().release_capacity(piece.len()).unwrap();
            }
        });
        tasks.spawn(async move { while connection.accept().await.is_some() {} });
        tokio::time::sleep(Duration::from_secs(1)).await; // its settings apply
        upload.reserve_capacity(1);
        timeout(Duration::from_secs(600), poll_fn(|cx| upload.poll_capacity(cx))).await.is_ok()
    }

    /// Why larger requests wait: without Lapwing, between h2's own ends, an upload stands still. If this fails, h2 has learnt to say that there is
    /// room, and only other servers are left to wait for.
    #[tokio::test(start_paused = true)]
    async fn h2_gives_no_room_back_after_its_window_has_shrunk() {
        let found = [has_room_after(4_000).await, has_room_after(16_384).await, has_room_after(60_000).await];
        assert_eq!(found, [true, false, true]);
    }
}
