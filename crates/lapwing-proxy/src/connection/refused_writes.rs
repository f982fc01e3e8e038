//! An upstream that answers before it has read the whole request, and closes: the reset that follows makes writes fail, while its answer waits in
//! the socket to be read. hyper and h2 give a connection up when a write fails. So the failure is kept until all that came has been read, and what
//! is written in between is thrown away, as it would be on the wire.

use std::io;
use std::task::Poll;

/// The failure that is kept.
#[derive(Debug, Default)]
pub(crate) struct RefusedWrites {
    error: Option<io::Error>,
}

impl RefusedWrites {
    /// What is said of a write of `length()` bytes that had this result.
    pub(crate) fn on_write(
        &mut self,
        result: Poll<io::Result<usize>>,
        length: impl FnOnce() -> usize,
    ) -> Poll<io::Result<usize>> {
        match result {
            Poll::Ready(Err(error)) if is_refusal(error.kind()) => {
                self.error = Some(error);
                Poll::Ready(Ok(length()))
            }
            result => result,
        }
    }

    /// What is said of a read that gave `bytes` bytes. The end, which a socket that was reset has too, is the failure of the write.
    pub(crate) fn on_read(&mut self, result: Poll<io::Result<()>>, bytes: usize) -> Poll<io::Result<()>> {
        match result {
            Poll::Ready(_) if bytes == 0 => self.error.take().map_or(result, |error| Poll::Ready(Err(error))),
            result => result,
        }
    }
}

const fn is_refusal(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::sync::Arc;

    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
    use tokio::net::{TcpListener, TcpStream};

    use crate::connection::{MeteredSocket, SocketMeter};
    use lapwing_net::Socket;

    /// A connection to an upstream that has answered, read nothing, and gone.
    async fn answered(answer: &[u8]) -> MeteredSocket {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (connected, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let (mut ours, (mut theirs, _)) = (connected.unwrap(), accepted.unwrap());
        ours.write_all(b"the beginning").await.unwrap();
        theirs.readable().await.unwrap();
        theirs.write_all(answer).await.unwrap();
        drop(theirs); // over unread bytes: a reset
        ours.ready(Interest::ERROR).await.unwrap();
        MeteredSocket::upstream(Socket::Tcp(ours), Arc::<SocketMeter>::default())
    }

    #[tokio::test]
    async fn an_answer_before_a_reset_is_read_and_then_the_reset() {
        let mut socket = answered(b"early").await;
        for piece in [&b"the middle"[..], b"the end"] {
            let n = poll_fn(|cx| Pin::new(&mut socket).poll_write(cx, piece)).await.unwrap();
            assert_eq!(n, piece.len());
        }
        assert!(socket.meter.last_write().is_none(), "nothing was sent");
        let mut space = [0; 16];
        let mut buf = ReadBuf::new(&mut space);
        poll_fn(|cx| Pin::new(&mut socket).poll_read(cx, &mut buf)).await.unwrap();
        assert_eq!(buf.filled(), b"early");
        let failed = poll_fn(|cx| Pin::new(&mut socket).poll_read(cx, &mut buf)).await.unwrap_err();
        assert!(super::is_refusal(failed.kind()), "{failed:?}");
        assert_eq!(poll_fn(|cx| Pin::new(&mut socket).poll_read(cx, &mut buf)).await.ok(), Some(()), "it is said once");
    }

    #[tokio::test]
    async fn without_an_answer_the_reset_is_said_at_once() {
        let mut socket = answered(b"").await;
        assert!(poll_fn(|cx| Pin::new(&mut socket).poll_write(cx, b"more")).await.is_ok());
        assert!(super::is_refusal(socket.read(&mut [0; 16]).await.unwrap_err().kind()));
    }
}
