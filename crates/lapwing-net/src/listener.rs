//! What yields accepted sockets.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use super::socket::Socket;
use super::tls::{Below, ServerIdentity, Speaks, TlsStream};
use lapwing_metrics::Counters;

/// The peer of a connection inside this process.
#[cfg(any(test, feature = "testing"))]
const INSIDE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Yields accepted sockets, one after the other.
pub trait Listener {
    /// Waits for the next connection. It must be cancel safe, and must not wait for anything that the peer sends.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Socket, SocketAddr)>> + Send;
}

/// Who speaks TLS on a listener, which versions of HTTP, and who counts the handshakes.
type Speaking = (Arc<ServerIdentity>, Speaks, Arc<Counters>);

/// A socket that listens, not yet registered with a runtime.
#[derive(Debug)]
pub struct BoundListener {
    listener: std::net::TcpListener,
    tls: Option<Speaking>,
}

impl From<std::net::TcpListener> for BoundListener {
    fn from(listener: std::net::TcpListener) -> Self {
        Self { listener, tls: None }
    }
}

impl BoundListener {
    /// Its connections speak TLS, if there is an `identity`, and then HTTP as `speaks` says. Their handshakes are made in their first
    /// reads and writes, so that a slow client holds no other up; `counters` has them.
    #[must_use]
    pub fn over_tls(self, identity: Option<&Arc<ServerIdentity>>, speaks: Speaks, counters: &Arc<Counters>) -> Self {
        Self { tls: identity.map(|identity| (identity.clone(), speaks, counters.clone())), ..self }
    }

    /// Its address.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Registers it with the current tokio runtime.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn registered(self) -> io::Result<RegisteredListener> {
        self.listener.set_nonblocking(true)?;
        Ok(RegisteredListener { listener: TcpListener::from_std(self.listener)?, tls: self.tls })
    }
}

/// A socket that listens, registered with a runtime.
#[derive(Debug)]
pub struct RegisteredListener {
    listener: TcpListener,
    tls: Option<Speaking>,
}

impl Listener for RegisteredListener {
    async fn accept(&mut self) -> io::Result<(Socket, SocketAddr)> {
        let (socket, peer) = Listener::accept(&mut self.listener).await?;
        let socket = match (socket, &self.tls) {
            (Socket::Tcp(stream), Some((identity, speaks, counters))) => {
                Socket::Tls(Box::new(TlsStream::accept(Below::Tcp(stream), identity.config(*speaks), counters.clone())))
            }
            (socket, _) => socket,
        };
        Ok((socket, peer))
    }
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

/// A listener to which a fuzz target connects over TLS.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug)]
#[doc(hidden)]
pub struct MemoryTlsListener {
    /// What it connects to.
    pub listener: super::memory::MemoryListener,
    /// The certificate.
    pub identity: Arc<ServerIdentity>,
    /// Who counts the handshakes.
    pub counters: Arc<Counters>,
}

#[cfg(any(test, feature = "testing"))]
impl Listener for MemoryTlsListener {
    async fn accept(&mut self) -> io::Result<(Socket, SocketAddr)> {
        let below = Below::Memory(self.listener.connected().await);
        let stream = TlsStream::accept(below, self.identity.config(Speaks::Both), self.counters.clone());
        Ok((Socket::Tls(Box::new(stream)), INSIDE))
    }
}

#[cfg(any(test, feature = "testing"))]
impl Listener for super::simulated::SimulatedListener {
    async fn accept(&mut self) -> io::Result<(Socket, SocketAddr)> {
        Ok((Socket::Simulated(self.connected().await), INSIDE))
    }
}
