//! Asks the kernel for sockets, within bounds.

use std::io;

pub(crate) use super::request::PortSide;
use super::response::TcpSocket;

/// The most sockets that one reading returns.
pub(crate) const MAX_SOCKETS: usize = 1024;

/// The TCP connections that have a port, [`MAX_SOCKETS`] at most. Blocks for a second at most for each answer of the kernel.
///
/// # Errors
///
/// Where the system has no `sock_diag`, or does not let this process ask.
#[cfg(target_os = "linux")]
pub(crate) fn tcp_sockets(port: PortSide) -> io::Result<Vec<TcpSocket>> {
    use std::io::{Read, Write};
    use std::time::Duration;

    use socket2::{Domain, Protocol, Socket, Type};

    use super::request;
    use super::response::{Progress, read};

    const AF_NETLINK: i32 = 16;
    const NETLINK_SOCK_DIAG: i32 = 4;
    const FAMILIES: [u8; 2] = [2, 10];
    // the kernel fills at most 32 KiB with one answer; 1,024 sockets are far fewer answers than this
    const MOST_ANSWERS: usize = 256;

    let mut netlink = Socket::new(Domain::from(AF_NETLINK), Type::DGRAM.cloexec(), Some(Protocol::from(NETLINK_SOCK_DIAG)))?;
    netlink.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut buffer = vec![0; 32 * 1024];
    let mut sockets = Vec::new();
    for family in FAMILIES {
        netlink.write_all(&request::sockets(family, port, u32::from(family)))?;
        for _ in 0..MOST_ANSWERS {
            let count = netlink.read(&mut buffer)?;
            let answer = buffer.get(..count).unwrap_or_default();
            if count == 0 || read(answer, MAX_SOCKETS, &mut sockets)? == Progress::Done {
                break;
            }
            if sockets.len() >= MAX_SOCKETS {
                return Ok(sockets);
            }
        }
    }
    Ok(sockets)
}

/// The TCP connections that have a port: this system does not say.
///
/// # Errors
///
/// Always.
#[cfg(not(target_os = "linux"))]
pub(crate) fn tcp_sockets(_port: PortSide) -> io::Result<Vec<TcpSocket>> {
    Err(io::ErrorKind::Unsupported.into())
}
