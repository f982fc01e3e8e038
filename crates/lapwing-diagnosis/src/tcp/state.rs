//! What many connections say together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::response::TcpSocket;
use super::sockets::{PortSide, tcp_sockets};

/// The state of the connections of both sides. A side of which the kernel says nothing is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionStates {
    /// The clients' connections.
    pub clients: Option<TcpState>,
    /// The connections to the upstreams; absent for Unix sockets.
    pub upstream: Option<TcpState>,
}

impl ConnectionStates {
    /// Asks the kernel for the connections that came to `listen` and those to the upstreams' ports. A connection of this machine to
    /// itself is known by both of its ends; what counts here is the end that Lapwing has. May block for some seconds.
    #[must_use]
    pub fn read(listen: u16, upstreams: &[u16]) -> Self {
        let state = |sides: &[PortSide]| {
            let sockets: Vec<_> = sides.iter().filter_map(|side| tcp_sockets(*side).ok()).collect();
            (!sockets.is_empty()).then(|| TcpState::of(&sockets.concat()))
        };
        let peers: Vec<_> = upstreams.iter().map(|port| PortSide::Peer(*port)).collect();
        Self { clients: state(&[PortSide::Local(listen)]), upstream: state(&peers) }
    }
}

/// The state of one side's connections, since each was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpState {
    /// Connections that are open.
    pub sockets: u64,
    /// The median of the least round trip time that each had in the last minutes, in nanoseconds: the way alone, without waits at its ends.
    pub least_rtt_p50_ns: u64,
    /// The median of their round trip times, in nanoseconds. A peer that delays its acknowledgements lengthens them.
    pub rtt_p50_ns: u64,
    /// The 99th percentile of their round trip times, in nanoseconds.
    pub rtt_p99_ns: u64,
    /// Segments that were sent again.
    pub retransmits: u64,
    /// The share of bytes that were sent again, `0..=1`.
    pub retransmitted_share: f64,
    /// Time with something to send, in nanoseconds.
    pub busy_ns: u64,
    /// The share of it in which a peer did not read, `0..=1`.
    pub receive_window_limited_share: f64,
    /// The share of it in which the congestion window ruled, `0..=1`.
    pub congestion_limited_share: f64,
}

impl TcpState {
    /// Sums up connections.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "ratios")]
    pub fn of(sockets: &[TcpSocket]) -> Self {
        let sorted = |of: fn(&TcpSocket) -> u64| {
            let mut times: Vec<u64> = sockets.iter().map(of).filter(|ns| *ns > 0).collect();
            times.sort_unstable();
            times
        };
        let at = |times: &[u64], percent: usize| {
            times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied().unwrap_or(0)
        };
        let (rtts, least) = (sorted(|socket| socket.rtt_ns), sorted(|socket| socket.min_rtt_ns));
        let sum = |of: fn(&TcpSocket) -> u64| sockets.iter().map(of).fold(0, u64::saturating_add);
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) };
        let busy_ns = sum(|socket| socket.busy_ns);
        Self {
            sockets: sockets.len() as u64,
            least_rtt_p50_ns: at(&least, 50),
            rtt_p50_ns: at(&rtts, 50),
            rtt_p99_ns: at(&rtts, 99),
            retransmits: sum(|socket| u64::from(socket.retransmits)),
            retransmitted_share: share(sum(|socket| socket.bytes_retransmitted), sum(|socket| socket.bytes_sent)),
            busy_ns,
            receive_window_limited_share: share(sum(|socket| socket.receive_window_limited_ns), busy_ns),
            congestion_limited_share: share(sum(TcpSocket::congestion_limited_ns), busy_ns),
        }
    }
}
