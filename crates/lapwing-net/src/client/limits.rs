//! The bounds of a client's exchanges, and their defaults.

use std::time::Duration;

/// The bounds of a client's exchanges.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// The time to connect, including name resolution. Default: 5 s.
    pub connect_timeout: Duration,
    /// The time from sending a request to the last byte of the response, including connecting. Default: 30 s.
    pub timeout: Duration,
    /// The largest body of a response, in bytes. Default: 8 MiB.
    pub max_body: usize,
    /// How long an unused connection is kept. Default: 90 s.
    pub idle_timeout: Duration,
    /// Unused connections that are kept; with 0 every request opens its own connection. Default: 32.
    pub max_idle: usize,
    /// HTTP/2: how often a connection with an open request is pinged; the server must answer within 20 s.
    /// Default: never.
    pub keep_alive: Option<Duration>,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            max_body: 8 << 20,
            idle_timeout: Duration::from_secs(90),
            max_idle: 32,
            keep_alive: None,
        }
    }
}
