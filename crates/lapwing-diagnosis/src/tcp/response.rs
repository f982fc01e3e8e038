//! Reads what the kernel answers: `struct inet_diag_msg` and `struct tcp_info` (linux/inet_diag.h, linux/tcp.h). Fields that an older
//! kernel lacks are zero, and bytes that make no sense end the reading.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::request::{INET_DIAG_INFO, SOCK_DIAG_BY_FAMILY};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `struct nlmsghdr`.
const HEADER: usize = 16;
/// `struct inet_diag_msg`.
const MESSAGE: usize = 72;

/// What the kernel says about one TCP connection, since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSocket {
    /// This side's address.
    pub local: SocketAddr,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The smoothed round trip time, in nanoseconds; zero if none was measured.
    pub rtt_ns: u64,
    /// The least round trip time of the last minutes, in nanoseconds; zero if unknown.
    pub min_rtt_ns: u64,
    /// Segments that were sent again.
    pub retransmits: u32,
    /// Bytes that were sent, again ones included; zero on kernels before 4.19.
    pub bytes_sent: u64,
    /// Bytes that were sent again; zero on kernels before 4.19.
    pub bytes_retransmitted: u64,
    /// Time with something to send, in nanoseconds.
    pub busy_ns: u64,
    /// The part of it in which the peer's window was full: the peer does not read, in nanoseconds.
    pub receive_window_limited_ns: u64,
    /// The part of it in which the own send buffer was too small, in nanoseconds.
    pub send_buffer_limited_ns: u64,
}

impl TcpSocket {
    /// The part of the busy time in which the congestion window ruled: the path, in nanoseconds.
    #[must_use]
    pub fn congestion_limited_ns(&self) -> u64 {
        self.busy_ns.saturating_sub(self.receive_window_limited_ns).saturating_sub(self.send_buffer_limited_ns)
    }
}

/// Whether the kernel has more to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    More,
    Done,
}

/// Reads a datagram of messages and adds their sockets, `most` at most.
///
/// # Errors
///
/// The error that the kernel answers with.
pub(crate) fn read(mut bytes: &[u8], most: usize, sockets: &mut Vec<TcpSocket>) -> io::Result<Progress> {
    while let (Some(length), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) {
        let length = length as usize;
        let Some(message) = bytes.get(HEADER..length) else { return Ok(Progress::Done) };
        match kind {
            NLMSG_DONE => return Ok(Progress::Done),
            NLMSG_ERROR => {
                let code = u32_at(message, 0).map_or(0, |code| (code as i32).saturating_neg());
                return if code == 0 { Ok(Progress::Done) } else { Err(io::Error::from_raw_os_error(code)) };
            }
            SOCK_DIAG_BY_FAMILY if sockets.len() < most => sockets.extend(socket(message)),
            _ => {}
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(Progress::More)
}

/// A socket of a message; `None` without `tcp_info`.
fn socket(message: &[u8]) -> Option<TcpSocket> {
    let family = *message.first()?;
    let local = address(family, message, 4, 8)?;
    let peer = address(family, message, 6, 24)?;
    let info = attribute(message.get(MESSAGE..)?, INET_DIAG_INFO)?;
    let micros = |at: usize| u64::from(u32_at(info, at).unwrap_or(0)) * 1_000;
    let long = |at: usize| info.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes);
    let least = u32_at(info, 148).filter(|least| *least != u32::MAX).unwrap_or(0);
    Some(TcpSocket {
        local,
        peer,
        rtt_ns: micros(68),
        min_rtt_ns: u64::from(least) * 1_000,
        retransmits: u32_at(info, 100).unwrap_or(0),
        bytes_sent: long(200),
        bytes_retransmitted: long(208),
        busy_ns: long(168).saturating_mul(1_000),
        receive_window_limited_ns: long(176).saturating_mul(1_000),
        send_buffer_limited_ns: long(184).saturating_mul(1_000),
    })
}

fn address(family: u8, message: &[u8], port: usize, address: usize) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(message.get(port..port + 2)?.try_into().ok()?);
    let bytes: [u8; 16] = message.get(address..address + 16)?.try_into().ok()?;
    let ip = match family {
        2 => IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
        10 => IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The value of an attribute of a kind.
fn attribute(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(bytes, 0)?);
        let value = bytes.get(4..length)?;
        if u16_at(bytes, 2)? == kind {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
