//! The section `proxy`: time limits, bounds, and the HTTP version spoken to the upstream.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::workers;
use lapwing_protocol::amend::AmendOptions;
use lapwing_settings::{Checks, FieldName, Period, Section, Share, Size, Switch, Toggle};

/// Which HTTP version is spoken to the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamProtocol {
    /// The client's, request by request; where the upstream does not speak it, as the first request finds out (up to 64 KiB of its
    /// body are sent twice), messages are translated.
    #[default]
    Auto,
    /// HTTP/1.1 always.
    H1,
    /// HTTP/2 without TLS, with prior knowledge, always.
    H2,
}

/// Which requests are traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TraceSampling {
    /// The client's decision is kept; without one the request is sampled.
    #[default]
    Auto,
    /// Every request is sampled, whatever the client decided.
    Force,
    /// `traceparent` passes unchanged, and no spans are joined.
    Off,
}

/// Whether heads are acknowledged at once when their body is still to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum QuickAck {
    /// They are.
    #[default]
    On,
    /// They are not.
    Off,
}

impl QuickAck {
    /// Whether they are.
    #[must_use]
    pub const fn is_on(self) -> bool {
        matches!(self, Self::On)
    }
}

/// The section `proxy`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// The HTTP version spoken to the upstream.
    pub upstream_protocol: UpstreamProtocol,
    /// How long connecting to the upstream may take.
    pub connect_timeout: Period,
    /// How long after the request's end the upstream may take to begin its response.
    pub header_timeout: Switch<Period>,
    /// How long the upstream may stand still within a body, either way, and an upgraded connection may be silent.
    pub idle_timeout: Switch<Period>,
    /// How long a client may send nothing of its body, or take nothing of a response, while it is waited for.
    pub client_stall_timeout: Period,
    /// How long after its first byte a request's head may take to be complete; then 408.
    pub client_header_timeout: Period,
    /// How long a client's connection may be idle between requests.
    pub client_idle_timeout: Period,
    /// How long an idle connection to the upstream is kept. Keep it below the server's own limit (uvicorn's is 5 s).
    pub pool_idle_timeout: Period,
    /// How many requests may be in flight; further ones are shed with 503.
    pub max_in_flight: u64,
    /// The largest head of a request or response. A larger request, or one of more than 100 fields, gets 431; a response is a 502.
    pub max_header_bytes: Size,
    /// The largest request body, above 0; larger ones get 413.
    pub max_request_bytes: Switch<Size>,
    /// The bytes a second, above 0, that a client has to send of a body while it is waited for. One that is 5 s behind gets 408
    /// (`x-lapwing-error: request_slow`); at `max_in_flight` the worker's upload that is furthest behind, by a second or more,
    /// gives way with 503 (`shed`). Not for clients that keep requests open and send little, as some gRPC streams do.
    pub client_min_rate: Switch<Size>,
    /// How many threads proxy requests, each with a listener on the same address. 0 is one, which carries tens of thousands of
    /// requests a second; in a container with fewer processors than the machine, one for each whole processor, at most four.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub workers: usize,
    /// How many connections may wait to be accepted, per worker.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub tcp_backlog: u32,
    /// Whether the head of a message is acknowledged at once (`TCP_QUICKACK`) when its body is still to come, over HTTP/1.1 and
    /// TCP. A server that writes them apart with Nagle's algorithm on else waits for it, 40 ms on Linux. Counted by
    /// `lapwing_quick_acks_total`.
    pub quick_ack: QuickAck,
    /// The share of such responses that are left alone (`unhelped`), so that the saving is measured.
    pub quick_ack_unhelped: Share,
    /// The header that says how many milliseconds a request may take, such as `x-latency-budget-ms`, if those who set it are trusted.
    pub deadline_header: Switch<FieldName>,
    /// Whether `grpc-timeout` and `deadline_header` reach the upstream less the time since the request's first byte, at least one unit.
    pub pass_deadline: Toggle,
    /// Whether responses to requests with `endpoint-load-metrics-format` (`json`, `text`, `bin`) carry a load report (ORCA) unless the
    /// upstream's do: in the head, over gRPC in the trailers. Envoy weighs by them with `client_side_weighted_round_robin` and
    /// `metric_names_for_computing_utilization: [named_metrics.lapwing.in_flight]`.
    pub respond_orca: Toggle,
    /// The reports that Lapwing requests from the server in addition to what the client asks for.
    pub amend: AmendOptions,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            upstream_protocol: UpstreamProtocol::default(),
            connect_timeout: Period::from_secs(5),
            header_timeout: Switch::Off,
            idle_timeout: Switch::Off,
            client_stall_timeout: Period::from_secs(900),
            client_header_timeout: Period::from_secs(30),
            client_idle_timeout: Period::from_secs(300),
            pool_idle_timeout: Period::from_secs(3),
            max_in_flight: 4096,
            max_header_bytes: Size::kib(64),
            max_request_bytes: Switch::Off,
            client_min_rate: Switch::Off,
            workers: 0,
            tcp_backlog: 1024,
            quick_ack: QuickAck::On,
            quick_ack_unhelped: Share::ONE_PERCENT,
            deadline_header: Switch::Off,
            pass_deadline: Toggle::Off,
            respond_orca: Toggle::Off,
            amend: AmendOptions::default(),
        }
    }
}

/// How many bytes of a response's body are read at a time at most.
const READ_BYTES: usize = 256 * 1024;
/// How many bytes of a request's body are read at a time at most, where the upstream waits for them. Each piece wakes the upstream, which
/// takes more time than the system calls.
const REQUEST_READ_BYTES: usize = 512 * 1024;

/// Fields that frame or address a message, or state a time in another form: none can be the deadline's.
const FRAMING_FIELDS: [&str; 7] = ["connection", "content-length", "expect", "grpc-timeout", "host", "te", "transfer-encoding"];

/// The limit of a time that has none.
pub(crate) const NO_LIMIT: Duration = Duration::MAX;

impl Config {
    /// `header_timeout`; [`NO_LIMIT`] if it is off.
    pub(crate) fn header_limit(&self) -> Duration {
        self.header_timeout.on().map_or(NO_LIMIT, |limit| limit.get())
    }

    /// `idle_timeout`; [`NO_LIMIT`] if it is off.
    pub(crate) fn idle_limit(&self) -> Duration {
        self.idle_timeout.on().map_or(NO_LIMIT, |limit| limit.get())
    }

    /// How many bytes hyper may hold of what it has read of the upstream: a whole head, or a large read of a body.
    pub(crate) fn read_bytes(&self) -> usize {
        usize::try_from(self.max_header_bytes.get()).unwrap_or(usize::MAX).max(READ_BYTES)
    }

    /// How many bytes hyper may hold of what it has read of a client. It goes on taking pieces of a response while it holds fewer than that for
    /// the client, too: hyper has one bound for both.
    pub(crate) fn request_read_bytes(&self) -> usize {
        self.read_bytes().max(REQUEST_READ_BYTES)
    }

    /// How many threads proxy requests.
    #[must_use]
    pub fn worker_threads(&self) -> usize {
        if self.workers == 0 { workers::for_this_process() } else { self.workers }
    }

    /// The largest read buffer, in bytes: a buffer that has to grow may become twice as large as needed.
    pub fn max_read_buffer(&self) -> usize {
        self.request_read_bytes().saturating_mul(2)
    }
}

impl Section for Config {
    fn check(&self, checks: &mut Checks) {
        const MOMENT: Period = Period::from_millis(1);
        const DAY: Period = Period::from_secs(86_400);
        checks.range("connect_timeout", &self.connect_timeout, MOMENT..=Period::from_secs(600));
        for (key, limit) in [("header_timeout", &self.header_timeout), ("idle_timeout", &self.idle_timeout)] {
            checks.switch_range(key, limit, MOMENT..=DAY);
        }
        checks.range("client_stall_timeout", &self.client_stall_timeout, MOMENT..=DAY);
        checks.range("client_header_timeout", &self.client_header_timeout, MOMENT..=Period::from_secs(3600));
        checks.range("client_idle_timeout", &self.client_idle_timeout, MOMENT..=DAY);
        checks.range("pool_idle_timeout", &self.pool_idle_timeout, Period::from_secs(0)..=Period::from_secs(3600));
        checks.range("max_in_flight", &self.max_in_flight, 1..=1_000_000);
        checks.range("max_header_bytes", &self.max_header_bytes, Size::kib(8)..=Size::mib(1));
        if self.max_request_bytes == Switch::On(Size(0)) {
            checks.fault("max_request_bytes", self.max_request_bytes, "would refuse every request; for no limit write off");
        }
        if self.client_min_rate == Switch::On(Size(0)) {
            checks.fault("client_min_rate", self.client_min_rate, "is no rate; for no limit write off");
        }
        if let Some(name) = self.deadline_header.on().filter(|name| FRAMING_FIELDS.contains(&name.get().as_str())) {
            checks.fault("deadline_header", name, "has another meaning in HTTP or gRPC");
        }
        checks.range("workers", &self.workers, 0..=64);
        checks.range("tcp_backlog", &self.tcp_backlog, 1..=65_535);
    }
}
