//! The accept loop with a scripted listener.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::*;

const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

struct Unobserved;

impl AcceptObserver for Unobserved {}

/// Yields the scripted results, then nothing more.
struct Scripted(VecDeque<io::Result<UnixStream>>);

impl Listener for Scripted {
    async fn accept(&mut self) -> io::Result<(Socket, SocketAddr)> {
        match self.0.pop_front() {
            Some(scripted) => Ok((Socket::Unix(scripted?), PEER)),
            None => std::future::pending().await,
        }
    }
}

fn socket() -> io::Result<UnixStream> {
    Ok(UnixStream::pair().unwrap().0)
}

#[tokio::test(start_paused = true)]
async fn out_of_file_descriptors_it_pauses_and_goes_on() {
    let emfile = || Err(io::Error::from_raw_os_error(24));
    let aborted = Err(io::ErrorKind::ConnectionAborted.into());
    let listener = Scripted([emfile(), emfile(), aborted, socket()].into());
    let (sender, mut accepted) = mpsc::unbounded_channel();
    let (tasks, stop, began) = (Tasks::default(), CancellationToken::new(), clock());
    let limits = AcceptLimits { backoff: Duration::from_secs(3), ..AcceptLimits::default() };
    let accepting = accept(listener, limits, &tasks, &stop, &Unobserved, |connection| {
        sender.send(connection.peer).unwrap();
        async {}
    });
    let stopping = async {
        assert_eq!(accepted.recv().await, Some(PEER));
        assert_eq!(began.elapsed(), Duration::from_secs(6), "one pause for each lack, none for a peer's failure");
        stop.cancel();
    };
    tokio::join!(accepting, stopping);
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_the_pause() {
    let listener = Scripted([Err(io::Error::from_raw_os_error(24))].into());
    let (tasks, stop, began) = (Tasks::default(), CancellationToken::new(), clock());
    let limits = AcceptLimits { backoff: Duration::from_secs(3600), ..AcceptLimits::default() };
    let accepting = accept(listener, limits, &tasks, &stop, &Unobserved, async |_| {});
    let stopping = async {
        sleep(Duration::from_secs(1)).await;
        stop.cancel();
    };
    tokio::join!(accepting, stopping);
    assert_eq!(began.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn connections_are_bounded_and_the_next_is_accepted_when_one_ends() {
    let listener = Scripted([socket(), socket(), socket(), socket()].into());
    let (tasks, stop) = (Tasks::default(), CancellationToken::new());
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let limits = AcceptLimits { max_connections: Some(2), ..AcceptLimits::default() };
    let accepting = accept(listener, limits, &tasks, &stop, &Unobserved, |connection| {
        let (open, most) = (open.clone(), most.clone());
        async move {
            most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_secs(1)).await;
            open.fetch_sub(1, Ordering::SeqCst);
            drop(connection);
        }
    });
    let stopping = async {
        sleep(Duration::from_millis(3500)).await;
        stop.cancel();
    };
    tokio::join!(accepting, stopping);
    tasks.finished().await;
    assert_eq!((open.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), (0, 2));
}

#[tokio::test]
async fn a_stop_closes_the_listener_and_the_drain_waits_for_what_is_open() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tasks, stop) = (Tasks::default(), CancellationToken::new());
    let accepting = accept(listener, AcceptLimits::default(), &tasks, &stop, &Unobserved, |mut connection| async move {
        let byte = connection.socket.read_u8().await.unwrap();
        connection.socket.write_u8(byte + 1).await.unwrap();
    });
    let client = async {
        let stream = TcpStream::connect(address).await.unwrap();
        while tasks.0.is_empty() {
            tokio::task::yield_now().await;
        }
        stop.cancel();
        stream
    };
    let ((), mut stream) = tokio::join!(accepting, client);
    assert!(TcpStream::connect(address).await.is_err(), "it still listens");
    assert!(timeout(Duration::from_millis(20), tasks.finished()).await.is_err(), "a connection is open");
    stream.write_u8(6).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), 7);
    tasks.finished().await;
}

#[allow(clippy::disallowed_methods, reason = "tokio's paused clock")]
fn clock() -> Instant {
    Instant::now()
}
