//! The bounds of a server and of its connections. Sizes are bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto;

use crate::accept::AcceptLimits;
use crate::tasks::Tasks;
use lapwing_metrics::Counters;

/// The other end of a request's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(pub SocketAddr);

/// The bounds of one server.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// The server's name in the log.
    pub name: &'static str,
    /// The limits of the accept loop.
    pub accept: AcceptLimits,
    /// How long connections may stay open after the stop. Default: 2 s.
    pub grace: Duration,
    /// Where connections that the server closes are counted, by reason. Default: nowhere.
    pub counters: Option<Arc<Counters>>,
    /// The time for the head of a connection's first request to arrive, in full. Default: `idle_timeout`.
    pub first_request_timeout: Option<Duration>,
    /// A connection without an open request is closed after this time, also in the middle of a head. Default: never.
    pub idle_timeout: Option<Duration>,
    /// An answer must be taken within this time, longer by 1 s for each 16 KiB that are. Default: no limit.
    pub write_timeout: Option<Duration>,
    /// Whether each request carries its connection's [`Peer`] as an extension. Default: no.
    pub tells_peer: bool,
    /// Whether only HTTP/2 is spoken, without TLS and upgrade. Default: HTTP/1.1 too.
    pub http2_only: bool,
    /// Whether only HTTP/1.1 is spoken. Over HTTP/2 a client can leave many answers unread while its socket is read. Default: HTTP/2
    /// too.
    pub http1_only: bool,
    /// HTTP/1.1: the time for a request's head to arrive, from the end of the request before it. Default: no limit.
    pub header_timeout: Option<Duration>,
    /// HTTP/1.1: the largest head of a request. Default: hyper's, about 400 KiB.
    pub max_header_bytes: Option<usize>,
    /// HTTP/2: what a stream may send before it is read. Default: hyper's, 1 MiB.
    pub stream_window: Option<u32>,
    /// HTTP/2: what all streams of a connection may send before it is read. Default: hyper's, 1 MiB.
    pub connection_window: Option<u32>,
    /// HTTP/2: requests at once on one connection. Default: hyper's, 200.
    pub max_streams: Option<u32>,
    /// HTTP/2: how often a client is pinged; it must answer within 20 s. Default: never.
    pub keep_alive: Option<Duration>,
}

impl ServerLimits {
    /// The defaults, for the server called `name`.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            accept: AcceptLimits::default(),
            grace: Duration::from_secs(2),
            counters: None,
            first_request_timeout: None,
            idle_timeout: None,
            write_timeout: None,
            tells_peer: false,
            http2_only: false,
            http1_only: false,
            header_timeout: None,
            max_header_bytes: None,
            stream_window: None,
            connection_window: None,
            max_streams: None,
            keep_alive: None,
        }
    }

    /// The limits as hyper keeps them, for connections whose streams run in `tasks`.
    pub(crate) fn builder(&self, tasks: Tasks) -> auto::Builder<Tasks> {
        let mut builder = auto::Builder::new(tasks);
        if self.http2_only {
            builder = builder.http2_only();
        }
        if self.http1_only {
            builder = builder.http1_only();
        }
        let mut http1 = builder.http1();
        http1.timer(TokioTimer::new()).header_read_timeout(self.header_timeout);
        if let Some(bytes) = self.max_header_bytes {
            http1.max_buf_size(bytes);
        }
        let mut http2 = builder.http2();
        http2.timer(TokioTimer::new()).keep_alive_interval(self.keep_alive);
        if let Some(window) = self.stream_window {
            http2.initial_stream_window_size(window);
        }
        if let Some(window) = self.connection_window {
            http2.initial_connection_window_size(window);
        }
        if let Some(streams) = self.max_streams {
            http2.max_concurrent_streams(streams);
        }
        builder
    }
}
