//! Errors between a client and the upstream. Only `response.rs` chooses how the client sees them.

pub(crate) mod response;
mod time_limit;

use std::io;
use std::time::Duration;

use super::head::{RefusedHead, UpstreamHeadError};
use lapwing_settings::Size;

/// Why Lapwing could not proxy a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The upstream's address refused, or could not be reached.
    #[error("cannot connect to the upstream {upstream}: {cause}")]
    Connect {
        /// The upstream's address.
        upstream: String,
        /// The operating system's error.
        cause: io::Error,
    },
    /// Connecting took too long.
    #[error("cannot connect to the upstream {upstream} within connect_timeout = {limit:?}")]
    ConnectTimeout {
        /// The upstream's address.
        upstream: String,
        /// The limit.
        limit: Duration,
    },
    /// The upstream did not begin to answer in time.
    #[error("the upstream did not begin to answer within header_timeout = {limit:?}")]
    HeaderTimeout {
        /// The limit.
        limit: Duration,
    },
    /// No byte of the upstream's response came for too long.
    #[error("the upstream's response stood still for longer than idle_timeout = {limit:?}")]
    ResponseStalled {
        /// The limit.
        limit: Duration,
    },
    /// The client's request body stood still for too long.
    #[error("the request body stood still for longer than client_stall_timeout = {limit:?}")]
    RequestStalled {
        /// The limit.
        limit: Duration,
    },
    /// The client took no more of the response for too long.
    #[error("the client took no more of the response for longer than client_stall_timeout = {limit:?}")]
    ResponseUnread {
        /// The limit.
        limit: Duration,
    },
    /// Neither end of an upgraded connection sent anything for too long.
    #[error("the upgraded connection stood still for longer than idle_timeout = {limit:?}")]
    UpgradeStalled {
        /// The limit.
        limit: Duration,
    },
    /// The upstream took no more of the request for too long.
    #[error("the upstream took no more of the request for longer than idle_timeout = {limit:?}")]
    RequestUnread {
        /// The limit.
        limit: Duration,
    },
    /// The upstream closed or reset the connection.
    #[error("the upstream closed the connection before it answered: {0}")]
    Reset(hyper::Error),
    /// The upstream reset the stream or ended the connection before it answered (HTTP/2).
    #[error("the upstream reset the stream or closed the connection before it answered: {0}")]
    H2(h2::Error),
    /// The upstream reset its HTTP/2 stream before the end of the response.
    #[error("the upstream reset the stream before the end of its response")]
    StreamCut,
    /// What the upstream sent is not HTTP.
    #[error("the upstream's answer is not HTTP: {0}")]
    Garbage(hyper::Error),
    /// The upstream speaks another protocol than it was asked in; the text says what helps.
    #[error("{0}")]
    WrongProtocol(String),
    /// A gRPC call to an upstream that speaks HTTP/1.1 only.
    #[error(
        "gRPC needs HTTP/2, which the upstream {upstream} does not speak: set upstream to the port of its gRPC server, or          proxy.upstream_protocol to h2 if it has begun to speak it"
    )]
    GrpcOverHttp1 {
        /// The upstream's address.
        upstream: String,
    },
    /// The upstream's head can be read in two ways, or is too large.
    #[error("the upstream's answer is not passed on: {0}")]
    RefusedAnswer(UpstreamHeadError),
    /// The upstream answered 101 to a request that asked for no upgrade.
    #[error("the upstream switched protocols unasked")]
    SwitchedUnasked,
    /// The client disconnected, or ended its side, in the middle of the request body.
    #[error("the request body broke off: {0}")]
    RequestCut(String),
    /// The client's request body is malformed.
    #[error("the request body is malformed: {0}")]
    RequestBody(String),
    /// The request's head can be read in two ways.
    #[error("the request is not clear: {0}")]
    Refused(RefusedHead),
    /// The request's head is larger than allowed.
    #[error("the request's head is larger than max_header_bytes = {limit}")]
    HeadTooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The request body is larger than allowed.
    #[error("the request body is larger than max_request_bytes = {limit}")]
    BodyTooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// Too many requests in flight.
    #[error("{limit} requests are in flight already (max_in_flight)")]
    Shed {
        /// The limit.
        limit: u64,
    },
    /// The request would miss its deadline.
    #[error("the request would wait for {} ms and miss its deadline: it is not sent (dispatch.reject)", wait_ns / 1_000_000)]
    WouldBeLate {
        /// What it would wait, in nanoseconds.
        wait_ns: u64,
        /// When it may be asked again, in nanoseconds from now.
        retry_ns: u64,
        /// Whether the client speaks gRPC.
        is_grpc: bool,
    },
    /// The client wants an earlier answer only, and there is none (RFC 9111, 5.2.1.7).
    #[error("there is no earlier answer to the request, and it asks for no other (Cache-Control: only-if-cached)")]
    NotCached {
        /// Whether the client speaks gRPC.
        is_grpc: bool,
    },
    /// The request waited until it could no longer meet its deadline.
    #[error("the request waited until it could no longer meet its deadline: it was not sent (dispatch.reject)")]
    Overdue {
        /// Whether the client speaks gRPC.
        is_grpc: bool,
    },
    /// The client's request body came too slowly.
    #[error("the request body came more slowly than client_min_rate = {rate} a second")]
    RequestSlow {
        /// The rate, in bytes a second.
        rate: Size,
    },
    /// Too many requests in flight, of which this one's body came most slowly.
    #[error(
        "{limit} requests are in flight (max_in_flight), and this one's body came more slowly than client_min_rate = {rate} a second"
    )]
    ShedSlow {
        /// The rate, in bytes a second.
        rate: Size,
        /// The limit of requests.
        limit: u64,
    },
    /// A request that a transparent proxy cannot carry.
    #[error("{0}")]
    Unsupported(&'static str),
}
