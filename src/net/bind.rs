//! Listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Binds and listens on `address`, without blocking. `backlog` connections may wait to be accepted. With `shared`, several
/// listeners may bind the same address, and the system spreads connections over them (`SO_REUSEPORT`).
///
/// # Errors
///
/// The system's error, when the address is taken or not allowed.
pub fn bind(address: SocketAddr, backlog: u32, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Registers `listener` with the current tokio runtime.
///
/// # Errors
///
/// The system's error.
pub fn registered(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}
