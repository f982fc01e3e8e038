//! The state of TCP connections as the kernel sees it: round trips, retransmits, and what held the sender up.
//!
//! Linux says it by netlink (sock_diag(7)); elsewhere nothing is known. A reading takes a system call for some hundred sockets and may wait a
//! second at most, so it belongs on the control plane, once a minute. It needs no privilege for sockets of the same network namespace.
//!
//! - `request` is what the kernel is asked, `response` what it answers: the bytes of both;
//! - `sockets` asks, within bounds; `state` is what many sockets say together.

mod request;
mod response;
mod sockets;
mod state;
#[cfg(all(test, target_os = "linux"))]
mod tests;

pub use state::{ConnectionStates, TcpState};
