//! The upstream's address, and how to connect to it: over TCP or a Unix socket, within a limit.

use std::path::PathBuf;
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};

use crate::proxy::connection::Socket;
use crate::proxy::error::Error;

/// The upstream's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `host:port`.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(authority) => f.write_str(authority),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Target {
    /// The authority of a request whose client named none.
    pub(crate) fn authority(&self) -> &str {
        match self {
            Self::Tcp(authority) => authority,
            Self::Unix(_) => "localhost",
        }
    }

    /// Connects, within `limit`.
    pub(crate) async fn connect(&self, limit: Duration) -> Result<Socket, Error> {
        let connecting = async {
            match self {
                Self::Tcp(authority) => {
                    let stream = TcpStream::connect(authority.as_str()).await?;
                    stream.set_nodelay(true)?;
                    Ok(Socket::Tcp(stream))
                }
                Self::Unix(path) => UnixStream::connect(path).await.map(Socket::Unix),
            }
        };
        match tokio::time::timeout(limit, connecting).await {
            Ok(Ok(socket)) => Ok(socket),
            Ok(Err(cause)) => Err(Error::Connect { upstream: self.to_string(), cause }),
            Err(_) => Err(Error::ConnectTimeout { upstream: self.to_string(), limit }),
        }
    }

    /// Checks that the upstream accepts a connection within `limit`.
    ///
    /// # Errors
    ///
    /// The reason, as text.
    pub async fn probe(&self, limit: Duration) -> Result<(), String> {
        self.connect(limit).await.map(drop).map_err(|error| error.to_string())
    }
}
