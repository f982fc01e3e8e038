//! A server inside this process: it is reached over pairs of Unix sockets, so that no stranger can connect to it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::listener::Listener;
use super::socket::Socket;

/// How many connections may wait to be accepted; further ones wait to be made.
const BACKLOG: usize = 64;

/// The address of a server inside this process. Clones are the same address.
#[derive(Clone, Debug)]
pub struct LocalAddress(mpsc::Sender<UnixStream>);

/// The server's end: it accepts what connects to the address.
#[derive(Debug)]
pub struct LocalListener(mpsc::Receiver<UnixStream>);

/// Makes an address and the listener behind it.
#[must_use]
pub fn local() -> (LocalAddress, LocalListener) {
    let (sender, receiver) = mpsc::channel(BACKLOG);
    (LocalAddress(sender), LocalListener(receiver))
}

impl PartialEq for LocalAddress {
    fn eq(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }
}

impl Eq for LocalAddress {}

impl LocalAddress {
    /// Connects to the server.
    pub(crate) async fn connect(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        self.0.send(theirs).await.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        Ok(ours)
    }
}

impl Listener for LocalListener {
    async fn accept(&mut self) -> io::Result<(Socket, SocketAddr)> {
        match self.0.recv().await {
            Some(stream) => Ok((Socket::Unix(stream), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))),
            // every address is gone: no further connection is possible
            None => std::future::pending().await,
        }
    }
}
