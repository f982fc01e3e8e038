//! The bytes of a request for sockets: `struct nlmsghdr`, `struct inet_diag_req_v2` and a filter (linux/inet_diag.h).

/// The message's type: sockets of one family.
pub(crate) const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x1 | 0x300;
const IPPROTO_TCP: u8 = 6;
/// The attribute that is requested with the socket: `struct tcp_info`.
pub(crate) const INET_DIAG_INFO: u16 = 2;
/// Established, and closed by the peer.
const STATES: u32 = 1 << 1 | 1 << 8;
const INET_DIAG_REQ_BYTECODE: u16 = 1;

/// Which sockets are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortSide {
    /// Those with this port on this side: the clients' connections.
    Local(u16),
    /// Those with this port on the peer's side: the upstream's connections.
    Peer(u16),
}

/// Asks for the TCP sockets of `family` (2 for IPv4, 10 for IPv6) that have a port.
pub(crate) fn sockets(family: u8, port: PortSide, sequence: u32) -> Vec<u8> {
    const FILTER: usize = 16;
    let length = 16 + 56 + 4 + FILTER;
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((length as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend([family, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0]);
    bytes.extend(STATES.to_ne_bytes());
    // any socket: the identity is empty
    bytes.extend([0; 48]);
    bytes.extend(((4 + FILTER) as u16).to_ne_bytes());
    bytes.extend(INET_DIAG_REQ_BYTECODE.to_ne_bytes());
    // at least the port, and at most: a comparison that fails jumps four bytes beyond the end, which rejects the socket
    let (port, [at_least, at_most]) = match port {
        PortSide::Local(port) => (port, [2, 3]),
        PortSide::Peer(port) => (port, [4, 5]),
    };
    for (code, reject) in [(at_least, 20_u16), (at_most, 12)] {
        bytes.extend([code, 8]);
        bytes.extend(reject.to_ne_bytes());
        bytes.extend([0, 0]);
        bytes.extend(port.to_ne_bytes());
    }
    bytes
}
