//! What yields accepted sockets.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::socket::Socket;

/// The peer of a connection inside this process.
#[cfg(any(test, feature = "testing"))]
const INSIDE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Yields accepted sockets, one after the other.
pub trait Listener {
    /// Waits for the next connection. It must be cancel safe, and must not wait for anything that the peer sends.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Socket, SocketAddr)>> + Send;
}

impl Listener for TcpListener {
    async fn accept(&mut self) -> io::Result<(Socket, SocketAddr)> {
        let (stream, peer) = Self::accept(self).await?;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, %peer, "cannot set TCP_NODELAY");
        }
        Ok((Socket::Tcp(stream), peer))
    }
}

#[cfg(any(test, feature = "testing"))]
impl Listener for super::memory::MemoryListener {
    async fn accept(&mut self) -> io::Result<(Socket, SocketAddr)> {
        Ok((Socket::Memory(self.connected().await), INSIDE))
    }
}

#[cfg(any(test, feature = "testing"))]
impl Listener for super::simulated::SimulatedListener {
    async fn accept(&mut self) -> io::Result<(Socket, SocketAddr)> {
        Ok((Socket::Simulated(self.connected().await), INSIDE))
    }
}
