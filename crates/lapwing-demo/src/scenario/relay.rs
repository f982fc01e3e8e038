//! A relay between Lapwing and the model server, on a thread of its own: a link with a long way, or a server that writes badly.
//!
//! Each direction of a connection holds at most [`AHEAD`] pieces of [`PIECE`] bytes that are on their way.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::knobs::LinkKnobs;
use lapwing_ledger::Stamp;

/// The most bytes that are read at once.
const PIECE: usize = 64 << 10;
/// Pieces on their way.
const AHEAD: usize = 64;

/// A running relay; stops and joins its thread when dropped.
#[derive(Debug)]
pub(crate) struct RelayHandle {
    stop: CancellationToken,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for RelayHandle {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the demo's relay panicked");
        }
    }
}

impl LinkKnobs {
    /// Whether the link does anything.
    pub(crate) const fn is_plain(self) -> bool {
        self.half_trip_ms == 0 && !self.splits_writes
    }
}

/// Starts a relay to `server` on an ephemeral loopback port.
///
/// # Errors
///
/// If no port can be bound, or no thread can be started.
pub(crate) fn start(server: SocketAddr, link: LinkKnobs) -> io::Result<(SocketAddr, RelayHandle)> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let until = stop.clone();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let thread = thread::Builder::new().name("demo-relay".to_owned()).spawn(move || {
        let relaying = async {
            match TcpListener::from_std(listener) {
                Ok(listener) => accept(listener, server, link).await,
                Err(error) => tracing::error!(%error, "the demo's relay failed"),
            }
        };
        runtime.block_on(async { until.run_until_cancelled(relaying).await });
    })?;
    Ok((address, RelayHandle { stop, thread: Some(thread) }))
}

async fn accept(listener: TcpListener, server: SocketAddr, link: LinkKnobs) {
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                connections.spawn(async move {
                    if let Err(error) = relay(client, server, link).await {
                        tracing::debug!(%error, "a relayed connection failed");
                    }
                });
            }
            Err(error) => {
                tracing::debug!(%error, "the demo's relay could not accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn relay(client: TcpStream, server: SocketAddr, link: LinkKnobs) -> io::Result<()> {
    let upstream = TcpStream::connect(server).await?;
    upstream.set_nodelay(true)?;
    client.set_nodelay(!link.splits_writes)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = upstream.into_split();
    let late = Duration::from_millis(link.half_trip_ms);
    tokio::try_join!(carry(from_client, to_server, late, false), carry(from_server, to_client, late, link.splits_writes))?;
    Ok(())
}

/// Carries bytes one way, each of them `late`.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, late: Duration, splits: bool) -> io::Result<()> {
    let (sender, mut receiver) = mpsc::channel::<(Stamp, Vec<u8>)>(AHEAD);
    let reading = async move {
        let mut buffer = vec![0; PIECE];
        loop {
            let read = from.read(&mut buffer).await?;
            if read == 0 || sender.send((Stamp::now(), buffer[..read].to_vec())).await.is_err() {
                return io::Result::Ok(());
            }
        }
    };
    let late_ns = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
    let writing = async move {
        while let Some((came, piece)) = receiver.recv().await {
            let early_ns = came.plus(late_ns).since(Stamp::now());
            if early_ns > 0 {
                tokio::time::sleep(Duration::from_nanos(early_ns)).await;
            }
            let (head, body) = piece.split_at(if splits { end_of_head(&piece) } else { 0 });
            if !head.is_empty() {
                to.write_all(head).await?;
            }
            to.write_all(body).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(reading, writing)?;
    Ok(())
}

/// Where an answer's head ends in a piece that begins with one; zero if it does not.
fn end_of_head(piece: &[u8]) -> usize {
    if !piece.starts_with(b"HTTP/1.") {
        return 0;
    }
    piece.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |at| at + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_head_is_split_off() {
        assert_eq!(end_of_head(b"HTTP/1.1 200 OK\r\na: b\r\n\r\n{}"), 25);
        assert_eq!(end_of_head(b"HTTP/1.1 200 OK\r\na: b\r\n"), 0);
        assert_eq!(end_of_head(b"{}\r\n\r\n"), 0);
    }

    #[tokio::test]
    async fn bytes_come_late_and_unchanged_both_ways() {
        let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = echo.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (mut stream, _) = echo.accept().await.unwrap();
            let mut buffer = [0; 64];
            let read = stream.read(&mut buffer).await.unwrap();
            stream.write_all(&buffer[..read]).await.unwrap();
        });
        let (address, _relay) = start(server, LinkKnobs { half_trip_ms: 20, splits_writes: true }).unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        let sent = b"HTTP/1.1 200 OK\r\n\r\nbody";
        let began = Stamp::now();
        client.write_all(sent).await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, sent);
        assert!(began.elapsed() >= 40_000_000, "{}", began.elapsed());
    }
}
