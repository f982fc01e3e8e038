//! Where a server listens: `127.0.0.1:8080`, `:8080` (every IPv4 interface), `localhost:8080`, `[::1]:8080`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::{Invalid, text::text_serde};

/// An address to listen on. Port 0 lets the system choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bind(pub SocketAddr);

text_serde!(Bind, "an address, as in 127.0.0.1:8080 or :8080", {
    "title": "address", "type": "string", "pattern": r"^\s*[^\s/]*:\+?[0-9]+\s*$", "examples": ["127.0.0.1:8080", "[::1]:8080", "localhost:8080", ":8080"]
});

impl Bind {
    /// Port `port` of the loopback interface.
    #[must_use]
    pub const fn loopback(port: u16) -> Self {
        Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }

    /// The address.
    #[must_use]
    pub const fn get(self) -> SocketAddr {
        self.0
    }

    /// Where clients on this machine reach what listens here; `None` where the system chooses the port.
    #[must_use]
    pub fn reached_at(self) -> Option<SocketAddr> {
        let ip = match self.0.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        (self.0.port() != 0).then(|| SocketAddr::new(ip, self.0.port()))
    }

    /// Whether the two exclude each other: they have the same port, and the same address or one that means every interface.
    #[must_use]
    pub fn collides(self, other: Self) -> bool {
        let (a, b) = (self.0, other.0);
        a.port() != 0 && a.port() == b.port() && (a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified())
    }
}

impl FromStr for Bind {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = |reason: &str| Invalid::new(text, reason);
        let trimmed = text.trim();
        if let Ok(address) = trimmed.parse() {
            return Ok(Self(address));
        }
        if trimmed.contains("://") {
            return Err(invalid("is a URL; a listener needs host:port, as in 127.0.0.1:8080"));
        }
        let Some((host, port)) = trimmed.rsplit_once(':') else {
            return Err(invalid("needs host:port, as in 127.0.0.1:8080 or :8080"));
        };
        let port = port.parse().map_err(|_| invalid("needs a port from 0 to 65535 after the colon"))?;
        match host {
            "" => Ok(Self(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))),
            "localhost" => Ok(Self::loopback(port)),
            _ => Err(invalid("must name an IP address (IPv6 in brackets) or localhost before the port")),
        }
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
