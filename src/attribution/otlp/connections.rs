//! The receivers' connections: bounded in number, closed when idle, and cut off when shutdown has waited long enough.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Connections at once on one listener; further ones wait in its backlog.
const AT_ONCE: usize = 64;
/// A connection that says nothing for this long is closed: above the 60 s between two exports of metrics.
const IDLE: Duration = Duration::from_secs(300);
/// After a failed accept, for want of file descriptors.
const PAUSE: Duration = Duration::from_secs(1);
/// How long open requests may take once stopped.
const GRACE: Duration = Duration::from_secs(2);

/// A listener that hands out bounded connections.
#[derive(Debug)]
pub(super) struct Connections {
    listener: TcpListener,
    room: Arc<Semaphore>,
    cut: CancellationToken,
}

impl Connections {
    /// Of `listener`; once `cut` is cancelled, every connection reads an error.
    pub(super) fn new(listener: std::net::TcpListener, cut: CancellationToken) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener: TcpListener::from_std(listener)?, room: Arc::new(Semaphore::new(AT_ONCE)), cut })
    }

    async fn next(&mut self) -> (Connection, SocketAddr) {
        let permit = Arc::clone(&self.room).acquire_owned().await.ok();
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let _ = stream.set_nodelay(true);
                    let cut = Box::pin(self.cut.clone().cancelled_owned());
                    return (Connection { stream, idle: None, cut, _permit: permit }, peer);
                }
                Err(error) if is_of_the_peer(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an OTLP connection");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// As tonic wants them.
    pub(super) fn stream(self) -> impl Stream<Item = io::Result<Connection>> {
        futures_util::stream::unfold(self, |mut connections| async {
            let (connection, _) = connections.next().await;
            Some((Ok(connection), connections))
        })
    }
}

impl axum::serve::Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        self.next().await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Runs `serving`, which ends gracefully on `stop`; two seconds after it every connection is `cut`.
pub(super) async fn serve(
    mut serving: Pin<Box<impl Future<Output = io::Result<()>>>>,
    stop: CancellationToken,
    cut: CancellationToken,
) -> io::Result<()> {
    let late = async {
        stop.cancelled().await;
        sleep(GRACE).await;
    };
    tokio::select! {
        done = &mut serving => return done,
        () = late => cut.cancel(),
    }
    serving.await
}

fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// One connection, which gives its place back when dropped.
pub(super) struct Connection {
    stream: TcpStream,
    /// Runs while nothing comes.
    idle: Option<Pin<Box<Sleep>>>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl tonic::transport::server::Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Poll::Ready(result) = Pin::new(&mut this.stream).poll_read(cx, buf) {
            this.idle = None;
            return Poll::Ready(result);
        }
        let idle = this.idle.get_or_insert_with(|| Box::pin(sleep(IDLE)));
        if idle.as_mut().poll(cx).is_ready() || this.cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
