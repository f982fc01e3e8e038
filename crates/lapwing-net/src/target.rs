//! The address of another server, and how to connect to it within a limit.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::bind::KEEPALIVE;
use super::local::LocalAddress;
use super::socket::Socket;
use lapwing_settings::Upstream;

/// The address of a server that Lapwing sends requests to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `host:port`. The host is resolved again for each connection.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// A server inside this process.
    Local(LocalAddress),
    /// A server that a fuzz target plays.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    Memory(super::memory::MemoryAddress),
    /// A server whose every step is drawn.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    Simulated(super::simulated::SimulatedAddress),
}

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

impl From<&Upstream> for Target {
    fn from(upstream: &Upstream) -> Self {
        match upstream {
            Upstream::Http { authority, .. } => Self::Tcp(authority.clone()),
            Upstream::Unix { path } => Self::Unix(path.clone()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(authority) => f.write_str(authority),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Local(_) => f.write_str("this process"),
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(_) => f.write_str("memory"),
            #[cfg(any(test, feature = "testing"))]
            Self::Simulated(_) => f.write_str("simulated"),
        }
    }
}

impl Target {
    /// The port, if it is reached over TCP and its address names one.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        let Self::Tcp(authority) = self else { return None };
        authority.rsplit_once(':')?.1.parse().ok()
    }

    /// The authority for `Host` and `:authority` if the request names none: `localhost` for a Unix socket and for this process.
    #[must_use]
    pub fn authority(&self) -> &str {
        match self {
            Self::Tcp(authority) => authority,
            Self::Unix(_) | Self::Local(_) => "localhost",
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(_) => "localhost",
            #[cfg(any(test, feature = "testing"))]
            Self::Simulated(_) => "localhost",
        }
    }

    /// Connects within `limit`, name resolution included; sets `TCP_NODELAY`.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Io`] when the system refuses, [`ConnectError::Timeout`] when the limit passes.
    pub async fn connect(&self, limit: Duration) -> Result<Socket, ConnectError> {
        let connecting = async {
            match self {
                Self::Tcp(authority) => {
                    let stream = TcpStream::connect(authority.as_str()).await?;
                    stream.set_nodelay(true)?;
                    if !stream.peer_addr()?.ip().is_loopback() {
                        SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE)?;
                    }
                    Ok(Socket::Tcp(stream))
                }
                Self::Unix(path) => UnixStream::connect(path).await.map(Socket::Unix),
                Self::Local(address) => address.connect().await.map(Socket::Unix),
                #[cfg(any(test, feature = "testing"))]
                Self::Memory(address) => address.connect().map(Socket::Memory),
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
        self.connect(limit).await.map(drop)
    }
}
