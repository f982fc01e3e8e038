//! The address of another server, and how to connect to it within a limit.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Version;
use socket2::SockRef;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::bind::KEEPALIVE;
use super::local::LocalAddress;
use super::race;
use super::socket::Socket;
use super::tls::{Below, ClientIdentity, TlsStream};
use lapwing_settings::{HttpScheme, Upstream};

/// The address of a server that Lapwing sends requests to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `host:port`. The host is resolved again for each connection, which begins with one of its addresses at random.
    Tcp(String),
    /// `host:port` over TLS.
    Tls(String, TlsTo),
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// A server inside this process.
    Local(LocalAddress),
    /// A server that a fuzz target plays.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    Memory(super::memory::MemoryAddress),
    /// A server that a fuzz target plays, over TLS.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    MemoryTls(super::memory::MemoryAddress, TlsTo),
    /// A server whose every step is drawn.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    Simulated(super::simulated::SimulatedAddress),
}

/// Who a server over TLS must prove to be. Clones are the same.
#[derive(Clone, Debug)]
pub struct TlsTo(pub Arc<ClientIdentity>);

impl PartialEq for TlsTo {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TlsTo {}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The system returned an error.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The limit passed first.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
}

impl ConnectError {
    /// Whether the server refused the version of HTTP that the connection was for (`no_application_protocol`, RFC 7301 3.2).
    #[must_use]
    pub fn is_about_version(&self) -> bool {
        matches!(self.of_tls(), Some(rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol)))
    }

    /// Whether the server's certificate was none that is trusted.
    #[must_use]
    pub fn is_unproved(&self) -> bool {
        matches!(self.of_tls(), Some(rustls::Error::InvalidCertificate(_)))
    }

    fn of_tls(&self) -> Option<&rustls::Error> {
        let Self::Io(error) = self else { return None };
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(authority) | Self::Tls(authority, _) => f.write_str(authority),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Local(_) => f.write_str("this process"),
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(_) | Self::MemoryTls(..) => f.write_str("memory"),
            #[cfg(any(test, feature = "testing"))]
            Self::Simulated(_) => f.write_str("simulated"),
        }
    }
}

impl Target {
    /// The address of `upstream`; over TLS, it has to prove itself to `identity`.
    #[must_use]
    pub fn of(upstream: &Upstream, identity: &Arc<ClientIdentity>) -> Self {
        match upstream {
            Upstream::Http { authority, scheme: HttpScheme::Https } => Self::Tls(authority.clone(), TlsTo(identity.clone())),
            Upstream::Http { authority, .. } => Self::Tcp(authority.clone()),
            Upstream::Unix { path } => Self::Unix(path.clone()),
        }
    }

    /// The port, if it is reached over TCP and its address names one.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        let (Self::Tcp(authority) | Self::Tls(authority, _)) = self else { return None };
        authority.rsplit_once(':')?.1.parse().ok()
    }

    /// The authority for `Host` and `:authority` if the request names none: `localhost` for a Unix socket and for this process.
    #[must_use]
    pub fn authority(&self) -> &str {
        match self {
            Self::Tcp(authority) | Self::Tls(authority, _) => authority,
            Self::Unix(_) | Self::Local(_) => "localhost",
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(_) | Self::MemoryTls(..) => "localhost",
            #[cfg(any(test, feature = "testing"))]
            Self::Simulated(_) => "localhost",
        }
    }

    /// Whether it is reached over TLS.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        #[cfg(any(test, feature = "testing"))]
        if matches!(self, Self::MemoryTls(..)) {
            return true;
        }
        matches!(self, Self::Tls(..))
    }

    /// Connects within `limit`, name resolution and handshake included; sets `TCP_NODELAY`. Over TLS, the server is told that the
    /// connection is for `version`; `None` sends nothing.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Io`] when the system refuses or the server does not prove itself, [`ConnectError::Timeout`] when the limit passes.
    pub async fn connect(&self, version: Option<Version>, limit: Duration) -> Result<Socket, ConnectError> {
        let connecting = async {
            match self {
                Self::Tcp(authority) => tcp(authority).await.map(Socket::Tcp),
                Self::Tls(authority, TlsTo(identity)) => {
                    over_tls(Below::Tcp(tcp(authority).await?), identity, authority, version).await
                }
                Self::Unix(path) => UnixStream::connect(path).await.map(Socket::Unix),
                Self::Local(address) => address.connect().await.map(Socket::Unix),
                #[cfg(any(test, feature = "testing"))]
                Self::Memory(address) => address.connect().map(Socket::Memory),
                #[cfg(any(test, feature = "testing"))]
                Self::MemoryTls(address, TlsTo(identity)) => {
                    over_tls(Below::Memory(address.connect()?), identity, self.authority(), version).await
                }
                #[cfg(any(test, feature = "testing"))]
                Self::Simulated(address) => address.connect().map(Socket::Simulated),
            }
        };
        match timeout(limit, connecting).await {
            Ok(connected) => Ok(connected?),
            Err(_) => Err(ConnectError::Timeout(limit)),
        }
    }

    /// Checks that the server accepts a connection within `limit`, and closes it.
    ///
    /// # Errors
    ///
    /// As for [`Target::connect`].
    pub async fn probe(&self, limit: Duration) -> Result<(), ConnectError> {
        self.connect(None, limit).await.map(drop)
    }
}

async fn over_tls(below: Below, identity: &ClientIdentity, authority: &str, version: Option<Version>) -> io::Result<Socket> {
    Ok(Socket::Tls(Box::new(TlsStream::connect(below, identity, authority, version).await?)))
}

async fn tcp(authority: &str) -> io::Result<TcpStream> {
    let stream = race::connect(authority).await?;
    stream.set_nodelay(true)?;
    if !stream.peer_addr()?.ip().is_loopback() {
        SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE)?;
    }
    Ok(stream)
}
