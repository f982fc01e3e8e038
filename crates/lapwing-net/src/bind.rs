//! Listening sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// When a connection has been silent for a minute, its other end is asked whether it is still there, four times at most. So a peer whose
/// machine vanished is noticed, however long a request may take.
pub(crate) const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15)).with_retries(4);

/// `EAFNOSUPPORT` of Linux.
const NO_SUCH_FAMILY: i32 = 97;

/// Who else may listen on an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody.
    Alone,
    /// Listeners that are bound with [`Self::Further`] afterwards, over which the system spreads connections (`SO_REUSEPORT`). It must be
    /// free, so that two processes do not share an address by mistake.
    First,
    /// One more next to a [`Self::First`].
    Further,
}

/// Binds and listens on `address`, without blocking. `backlog` connections may wait to be accepted. `[::]` is every address of both
/// families, also where the system says otherwise (`net.ipv6.bindv6only`), and of IPv4 alone on a machine without IPv6.
///
/// # Errors
///
/// The system's error, when the address is taken or not allowed.
pub fn bind(address: SocketAddr, backlog: u32, sharing: Sharing) -> io::Result<TcpListener> {
    let is_all = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let (socket, address) = match Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)) {
        Err(error) if is_all && error.raw_os_error() == Some(NO_SUCH_FAMILY) => {
            let address = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
            (Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?, address)
        }
        made => (made?, address),
    };
    if is_all && address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    if sharing == Sharing::Further {
        socket.set_reuse_port(true)?;
    }
    // accepted connections inherit it, on Linux
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    if sharing == Sharing::First {
        socket.set_reuse_port(true)?;
    }
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}
