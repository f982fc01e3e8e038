//! The profiler's metrics about itself: counters and gauges that every thread may update.
//!
//! Each is one row of the table below. `/metrics`, `/stats` and docs/METRICS.md are made from the rows.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::load::LatestLoad;
use super::open_requests::OpenRequests;

macro_rules! rows {
    ($($variant:ident: $kind:ident $metric:literal $labels:expr, $help:literal;)*) => {
        /// One counter or gauge.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter { $(#[doc = $help] $variant,)* }

        impl Counter {
            /// Every row, in the table's order.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The row's definition.
            #[must_use]
            pub const fn row(self) -> CounterRow {
                match self { $(Self::$variant => CounterRow { kind: CounterKind::$kind, metric: $metric, labels: $labels, help: $help },)* }
            }
        }
    };
}

/// Whether a row is a counter or a gauge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// Only grows; its metric gets the suffix `_total` in OpenMetrics text.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A gauge with a point in time, in seconds since 1970. Without one it is 0, and not shown.
    Timestamp,
}

/// A row's definition. Rows of one metric share its help text up to the first colon.
#[derive(Clone, Copy, Debug)]
pub struct CounterRow {
    /// Counter or gauge.
    pub kind: CounterKind,
    /// The metric's name without `_total`.
    pub metric: &'static str,
    /// The row's fixed labels.
    pub labels: &'static [(&'static str, &'static str)],
    /// What it counts.
    pub help: &'static str,
}

rows! {
    DroppedChannelFull: Counter "lapwing_exchanges_dropped" &[("reason", "channel_full")], "Exchanges served but not profiled: the channel to the aggregator was full.";
    DroppedPanic: Counter "lapwing_exchanges_dropped" &[("reason", "panic")], "Exchanges served but not profiled: the observer panicked.";
    ObserverPanics: Counter "lapwing_observer_panics" &[], "Panics of the observer while it looked at a request or a response, which were served and recorded without what it would have added.";
    LateEvents: Counter "lapwing_late_events" &[], "Events of a request that came after its exchange was closed and handed over, and are in no record.";
    PendingEvicted: Counter "lapwing_pending_evicted" &[], "Exchanges merged before their spans came, because the pending table was full.";
    Pending: Gauge "lapwing_pending_exchanges" &[], "Exchanges that wait for their spans.";
    OrphanSpans: Gauge "lapwing_orphan_spans" &[], "Spans held until their exchange ends.";
    QueueDepth: Gauge "lapwing_queue_depth" &[], "Closed ledgers that wait for the aggregator.";
    ClippedTooLong: Counter "lapwing_reports_clipped" &[("cause", "too_long")], "Reports and spans that did not fit their upstream window by more than 1 ms and 1 %, by cause: longer than the window or than what was free in it.";
    ClippedBefore: Counter "lapwing_reports_clipped" &[("cause", "before")], "Reports and spans that did not fit their upstream window by more than 1 ms and 1 %, by cause: began before the window.";
    ClippedAfter: Counter "lapwing_reports_clipped" &[("cause", "after")], "Reports and spans that did not fit their upstream window by more than 1 ms and 1 %, by cause: ended after the window.";
    ValuesClipped: Counter "lapwing_values_clipped" &[], "Durations and times per unit outside a histogram's bounds, recorded at the bound.";
    WorkMixed: Counter "lapwing_work_mixed" &[], "Answered requests left out of per-unit values and cost classes, because their series counts work in another unit.";
    PromptsSkipped: Counter "lapwing_prompts_not_tokenized" &[("reason", "busy")], "Prompts kept for their tokenizer whose tokens stay estimated: the aggregator had too much else to do.";
    PromptsFailed: Counter "lapwing_prompts_not_tokenized" &[("reason", "failed")], "Prompts kept for their tokenizer whose tokens stay estimated: the body could not be read, or not be tokenized.";
    LedgerOverflowed: Counter "lapwing_ledger_overflowed" &[], "Observed spans and in-band reports for which a ledger had no room.";
    ReportsMalformed: Counter "lapwing_reports_malformed" &[], "Server-Timing entries and servers' own fields that could not be read.";
    BodiesUnreadCoding: Counter "lapwing_bodies_unread" &[("reason", "coding")], "Compressed bodies that were passed on but not read, or not to their end, by reason: their content coding is not known.";
    BodiesUnreadCorrupt: Counter "lapwing_bodies_unread" &[("reason", "corrupt")], "Compressed bodies that were passed on but not read, or not to their end, by reason: they are not in the coding that their head names.";
    BodiesUnreadTooLarge: Counter "lapwing_bodies_unread" &[("reason", "too_large")], "Compressed bodies that were passed on but not read, or not to their end, by reason: they unpack to more than 1 MiB and 32 times their size.";
    BodiesUnreadMemory: Counter "lapwing_bodies_unread" &[("reason", "memory")], "Compressed bodies that were passed on but not read, or not to their end, by reason: they need a window above 8 MiB, or the decoders hold 128 MiB already.";
    SpansReceived: Counter "lapwing_spans_received" &[], "Spans that the OTLP receiver took.";
    SpansJoined: Counter "lapwing_spans" &[("result", "joined")], "Spans received, by result: joined to an exchange.";
    SpansAmbiguous: Counter "lapwing_spans" &[("result", "ambiguous")], "Spans received, by result: their exchange could not be determined.";
    SpansUnmatched: Counter "lapwing_spans" &[("result", "unmatched")], "Spans received, by result: of no request of Lapwing's.";
    SpansLate: Counter "lapwing_spans" &[("result", "late")], "Spans received, by result: came after their exchange was merged.";
    SpansShed: Counter "lapwing_spans" &[("result", "shed")], "Spans received, by result: dropped because a table or channel was full.";
    SpansShifted: Counter "lapwing_spans_shifted" &[], "Spans that were moved into their upstream window together with all spans of their process, because its clock differs.";
    SpanLinksShed: Counter "lapwing_span_links_shed" &[], "Links of spans that were not followed to their request, because the span or its message has too many.";
    SpanShapesEvicted: Counter "lapwing_span_shapes_evicted" &[], "Learnt kinds of spans that gave way to others because their route's table was full.";
    SpansInvalid: Counter "lapwing_spans_invalid" &[], "Spans without a valid trace or span id, which the OTLP receiver skipped.";
    SpansSkipped: Counter "lapwing_spans_skipped" &[], "Spans that were not joined because the span above them has their time: SGLang's one for each token.";
    SpansRejected: Counter "lapwing_spans_rejected" &[], "Spans that the OTLP receiver did not join, because they or their message have more elements than it decodes.";
    OtlpMalformed: Counter "lapwing_otlp_malformed" &[], "OTLP requests that were refused for good, whatever the cause: not decodable, too large, too slow, not read; lapwing_otlp_requests_total has them by cause.";
    OtlpTaken: Counter "lapwing_otlp_requests" &[("result", "taken")], "OTLP requests that came, by result: taken.";
    OtlpContentType: Counter "lapwing_otlp_requests" &[("result", "content_type")], "OTLP requests that came, by result: refused, its content type is no form of OTLP.";
    OtlpContentEncoding: Counter "lapwing_otlp_requests" &[("result", "content_encoding")], "OTLP requests that came, by result: refused, it is compressed in a way that is not read.";
    OtlpTooLarge: Counter "lapwing_otlp_requests" &[("result", "too_large")], "OTLP requests that came, by result: refused, it is too large.";
    OtlpUndecodable: Counter "lapwing_otlp_requests" &[("result", "undecodable")], "OTLP requests that came, by result: refused, it cannot be decoded.";
    OtlpTooSlow: Counter "lapwing_otlp_requests" &[("result", "too_slow")], "OTLP requests that came, by result: refused, it did not come in time.";
    OtlpWrongPath: Counter "lapwing_otlp_requests" &[("result", "wrong_path")], "OTLP requests that came, by result: refused, it was sent to a path or a port that is none of OTLP's.";
    OtlpBusy: Counter "lapwing_otlp_busy" &[], "OTLP requests that were refused for now, because others filled the bytes that may be received at once.";
    SpansWithheld: Counter "lapwing_otlp_spans_withheld" &[], "Spans not passed on to the collector, because they were sampled for Lapwing only.";
    OtlpForwarded: Counter "lapwing_otlp_forwarded" &[], "OTLP requests passed on to the collector.";
    OtlpForwardLost: Counter "lapwing_otlp_forward_lost" &[], "OTLP requests that could not be passed on to the collector.";
    TelemetryMetricsSent: Counter "lapwing_telemetry_metrics_requests" &[("result", "ok")], "Requests with Lapwing's own metrics, by result: the collector took it.";
    TelemetryMetricsFailed: Counter "lapwing_telemetry_metrics_requests" &[("result", "failed")], "Requests with Lapwing's own metrics, by result: the collector did not take it at any attempt.";
    TracesSent: Counter "lapwing_telemetry_traces" &[("result", "ok")], "Exchanges that were sampled to be sent as traces, by result: the collector took them.";
    TracesDropped: Counter "lapwing_telemetry_traces" &[("result", "queue_full")], "Exchanges that were sampled to be sent as traces, by result: too many waited to be sent.";
    TracesLost: Counter "lapwing_telemetry_traces" &[("result", "failed")], "Exchanges that were sampled to be sent as traces, by result: the collector did not take their request at any attempt, or not before the end.";
    TelemetrySpansRejected: Counter "lapwing_telemetry_rejected" &[("signal", "traces")], "Parts of Lapwing's own telemetry that the collector refused although it took their request, by signal: spans.";
    TelemetryPointsRejected: Counter "lapwing_telemetry_rejected" &[("signal", "metrics")], "Parts of Lapwing's own telemetry that the collector refused although it took their request, by signal: data points.";
    PollsOk: Counter "lapwing_polls" &[("result", "ok")], "Polls of the model server's own statistics, by result: read.";
    PollsFailed: Counter "lapwing_polls" &[("result", "failed")], "Polls of the model server's own statistics, by result: no answer, or none that could be read.";
    InterimDropped: Counter "lapwing_interim_responses_dropped" &[], "Interim responses (1xx) that were not passed on, because 64 KiB of them waited for a client that did not read.";
    FailoversMoved: Counter "lapwing_upstream_failovers" &[("result", "moved")], "Requests whose upstream, of several, took no connection: sent to another one.";
    FailoversWithheld: Counter "lapwing_upstream_failovers" &[("result", "withheld")], "Requests whose upstream, of several, took no connection: not sent to another one, because too many were in flight that had been.";
    UpstreamRetried: Counter "lapwing_upstream_retried" &[], "Requests sent again on a fresh connection because the reused one had closed before anything was written.";
    RetryAfterSeen: Counter "lapwing_upstream_pushback" &[("field", "retry-after")], "Answers of the upstream that failed and say when to try again, by field; they pass unchanged: Retry-After.";
    GrpcPushbackSeen: Counter "lapwing_upstream_pushback" &[("field", "grpc-retry-pushback-ms")], "Answers of the upstream that failed and say when to try again, by field; they pass unchanged: grpc-retry-pushback-ms.";
    QuickAcksUpstream: Counter "lapwing_quick_acks" &[("side", "upstream")], "Heads that were acknowledged at once (TCP_QUICKACK) because their body was still to come, by side: the upstream wrote a response in two parts.";
    QuickAcksClient: Counter "lapwing_quick_acks" &[("side", "client")], "Heads that were acknowledged at once (TCP_QUICKACK) because their body was still to come, by side: a client wrote a request in two parts.";
    UpstreamConnected: Counter "lapwing_upstream_connections" &[], "Connections opened to the upstream.";
    ClosedGaveWay: Counter "lapwing_control_connections_closed" &[("reason", "gave_way")], "Connections that the admin server and the OTLP receivers closed, by reason: was idle while another one needed its place.";
    ClosedSlowHead: Counter "lapwing_control_connections_closed" &[("reason", "slow_head")], "Connections that the admin server and the OTLP receivers closed, by reason: made no request in time.";
    ClosedIdle: Counter "lapwing_control_connections_closed" &[("reason", "idle")], "Connections that the admin server and the OTLP receivers closed, by reason: was idle for too long after a request.";
    ClosedSlowReader: Counter "lapwing_control_connections_closed" &[("reason", "slow_reader")], "Connections that the admin server and the OTLP receivers closed, by reason: did not read its answer in time.";
    ScrapesRefused: Counter "lapwing_scrapes_refused" &[], "Requests to the admin server that got 503, because other answers were being made or waited to be read, or because too many pages were open.";
    AccessLogFull: Counter "lapwing_access_log_lines_dropped" &[("reason", "queue_full")], "Lines that are not in the access log, by reason: too many waited to be written.";
    AccessLogFailed: Counter "lapwing_access_log_lines_dropped" &[("reason", "write_failed")], "Lines that are not in the access log, by reason: they could not be written.";
    AcceptsFailed: Counter "lapwing_accepts_failed" &[], "Connections that could not be accepted, for want of file descriptors or memory; each is tried again.";
    ClientsWaited: Counter "lapwing_client_connections_waited" &[], "Client connections that waited for a file descriptor, because clients had their share of the limit on open files (ulimit -n).";
    ClientsWaiting: Gauge "lapwing_client_connections_waiting" &[], "Client connections that wait for a file descriptor now; further ones wait behind them in the listeners' backlogs.";
    OutboundWaited: Counter "lapwing_downstream_connections_waited" &[], "Connections of the model server to a downstream that waited for a file descriptor, because others had their share of the limit on open files (ulimit -n).";
    ConnectionsAccepted: Counter "lapwing_client_connections" &[], "Connections accepted from clients.";
    FailedSlowHead: Counter "lapwing_client_connections_failed" &[("reason", "slow_head")], "Client connections that ended in an error, by reason: a request's head was not complete within client_header_timeout.";
    FailedMalformedHead: Counter "lapwing_client_connections_failed" &[("reason", "malformed_head")], "Client connections that ended in an error, by reason: a request's head is not HTTP/1.1.";
    FailedHeadTooLarge: Counter "lapwing_client_connections_failed" &[("reason", "head_too_large")], "Client connections that ended in an error, by reason: a request's head or the length that it announces is too large.";
    FailedHttp2: Counter "lapwing_client_connections_failed" &[("reason", "http2")], "Client connections that ended in an error, by reason: a violation of HTTP/2, or one that the client reported.";
    FailedSlowReader: Counter "lapwing_client_connections_failed" &[("reason", "slow_reader")], "Client connections that ended in an error, by reason: the client took no bytes for client_stall_timeout.";
    FailedBroken: Counter "lapwing_client_connections_failed" &[("reason", "broken")], "Client connections that ended in an error, by reason: the client reset the connection, or ended it amid a message.";
    FailedOther: Counter "lapwing_client_connections_failed" &[("reason", "other")], "Client connections that ended in an error, by reason: anything else.";
    SlowUploadsRefused: Counter "lapwing_slow_uploads" &[("reason", "client_min_rate")], "Uploads that were ended because they came more slowly than client_min_rate, by reason: was 5 s behind.";
    SlowUploadsShed: Counter "lapwing_slow_uploads" &[("reason", "max_in_flight")], "Uploads that were ended because they came more slowly than client_min_rate, by reason: was 1 s or more behind, further than all others, and max_in_flight was reached.";
    TimeLimitConnect: Counter "lapwing_time_limits_reached" &[("limit", "connect_timeout")], "Requests that a time limit of the section proxy ended, by limit: connecting to the upstream took longer.";
    TimeLimitHeader: Counter "lapwing_time_limits_reached" &[("limit", "header_timeout")], "Requests that a time limit of the section proxy ended, by limit: the upstream did not begin to answer.";
    TimeLimitIdle: Counter "lapwing_time_limits_reached" &[("limit", "idle_timeout")], "Requests that a time limit of the section proxy ended, by limit: the upstream or an upgraded connection stood still.";
    TimeLimitClientStall: Counter "lapwing_time_limits_reached" &[("limit", "client_stall_timeout")], "Requests that a time limit of the section proxy ended, by limit: the client sent or took nothing.";
    DeadlinesMalformedHead: Counter "lapwing_deadlines_malformed" &[("field", "head")], "Budgets that requests state in no known form, which count for nothing, by where: grpc-timeout or proxy.deadline_header.";
    DeadlinesMalformedParameter: Counter "lapwing_deadlines_malformed" &[("field", "parameter")], "Budgets that requests state in no known form, which count for nothing, by where: timeout of the Open Inference Protocol.";
    HeldRequests: Counter "lapwing_held_requests" &[], "Requests held until their body had come whole.";
    HoldPassedBody: Counter "lapwing_hold_passed" &[("reason", "body")], "Requests that were not held until their body is known, by reason: hold.max_body.";
    HoldPassedBudget: Counter "lapwing_hold_passed" &[("reason", "budget")], "Requests that were not held until their body is known, by reason: hold.budget.";
    HoldPassedTime: Counter "lapwing_hold_passed" &[("reason", "time")], "Requests that were not held until their body is known, by reason: hold.max_time.";
    HoldPassedExpect: Counter "lapwing_hold_passed" &[("reason", "expect")], "Requests that were not held until their body is known, by reason: Expect: 100-continue.";
    HoldPassedUpgrade: Counter "lapwing_hold_passed" &[("reason", "upgrade")], "Requests that were not held until their body is known, by reason: an upgrade.";
    HoldPassedUnread: Counter "lapwing_hold_passed" &[("reason", "unread")], "Requests that were not held until their body is known, by reason: unknown format or coding.";
    DispatchSent: Counter "lapwing_dispatch_requests" &[("result", "sent")], "Requests that asked to be sent while dispatch is on, by what became of them: sent at once.";
    DispatchQueued: Counter "lapwing_dispatch_requests" &[("result", "queued")], "Requests that asked to be sent while dispatch is on, by what became of them: waited.";
    DispatchRefused: Counter "lapwing_dispatch_requests" &[("result", "refused")], "Requests that asked to be sent while dispatch is on, by what became of them: refused, for they would have missed their deadline.";
    DispatchPassedUnknown: Counter "lapwing_dispatch_requests" &[("result", "unknown")], "Requests that asked to be sent while dispatch is on, by what became of them: sent as without it, for it is not known what they take, or how many the upstream works on at once.";
    DispatchPassedFull: Counter "lapwing_dispatch_requests" &[("result", "full")], "Requests that asked to be sent while dispatch is on, by what became of them: sent as without it, for dispatch.max_waiting others waited.";
    DispatchPassedStateful: Counter "lapwing_dispatch_requests" &[("result", "stateful")], "Requests that asked to be sent while dispatch is on, by what became of them: sent as without it, for they depend on requests before them or later ones on them.";
    DispatchPassedUnheld: Counter "lapwing_dispatch_requests" &[("result", "unheld")], "Requests that asked to be sent while dispatch is on, by what became of them: sent as without it, for they could not be held until their work is known.";
    HedgesWon: Counter "lapwing_hedges" &[("result", "won")], "Running requests that dispatch.hedge took for long, by what became of them: a second upstream was asked, and answered first.";
    HedgesLost: Counter "lapwing_hedges" &[("result", "lost")], "Running requests that dispatch.hedge took for long, by what became of them: a second upstream was asked, and the first answered before.";
    HedgesFailed: Counter "lapwing_hedges" &[("result", "failed")], "Running requests that dispatch.hedge took for long, by what became of them: a second upstream was asked, and both failed.";
    HedgesObserved: Counter "lapwing_hedges" &[("result", "observed")], "Running requests that dispatch.hedge took for long, by what became of them: a second upstream would have been asked, but hedge.mode is observe.";
    HedgesWithheldBusy: Counter "lapwing_hedges" &[("result", "busy")], "Running requests that dispatch.hedge took for long, by what became of them: no other upstream was idle.";
    HedgesWithheldBudget: Counter "lapwing_hedges" &[("result", "budget")], "Running requests that dispatch.hedge took for long, by what became of them: hedge.budget was used up.";
    HedgesWithheldUtilisation: Counter "lapwing_hedges" &[("result", "utilisation")], "Running requests that dispatch.hedge took for long, by what became of them: the upstreams were busier than hedge.max_utilisation.";
    HedgesWithheldUnrepeatable: Counter "lapwing_hedges" &[("result", "unrepeatable")], "Running requests that dispatch.hedge took for long, by what became of them: it is no call that may be sent twice.";
    DispatchExpired: Counter "lapwing_dispatch_overdue" &[("reason", "deadline")], "Requests that waited in the queue of dispatch and did not get their turn, by reason: they could no longer meet their deadline, and were not sent.";
    DispatchWaitedLong: Counter "lapwing_dispatch_overdue" &[("reason", "max_wait")], "Requests that waited in the queue of dispatch and did not get their turn, by reason: they had waited for dispatch.max_wait, and were sent as without it.";
    Hydrated: Counter "lapwing_hydrate_requests" &[("result", "filled")], "Requests whose features were looked up, by what became of them: all features were there and are written into it.";
    HydratedByDefault: Counter "lapwing_hydrate_requests" &[("result", "default")], "Requests whose features were looked up, by what became of them: at least one is a default, because it was missing or the store did not answer.";
    HydrateMissing: Counter "lapwing_hydrate_requests" &[("result", "missing")], "Requests whose features were looked up, by what became of them: refused with 422, for features are missing.";
    HydrateFailed: Counter "lapwing_hydrate_requests" &[("result", "failed")], "Requests whose features were looked up, by what became of them: refused with 502, for the store cannot be read.";
    HydrateLate: Counter "lapwing_hydrate_requests" &[("result", "late")], "Requests whose features were looked up, by what became of them: refused with 504, for the store did not answer within the deadline.";
    HydratePassedUnheld: Counter "lapwing_hydrate_passed" &[("reason", "unheld")], "Requests that a rule of hydrate takes and that pass as they came, by reason: could not be held until the body had come.";
    HydratePassedCoded: Counter "lapwing_hydrate_passed" &[("reason", "coded")], "Requests that a rule of hydrate takes and that pass as they came, by reason: compressed, or with a digest or a signature.";
    HydratePassedBinary: Counter "lapwing_hydrate_passed" &[("reason", "binary")], "Requests that a rule of hydrate takes and that pass as they came, by reason: binary tensors.";
    HydratePassedFormat: Counter "lapwing_hydrate_passed" &[("reason", "format")], "Requests that a rule of hydrate takes and that pass as they came, by reason: no JSON of the two protocols, or none that can be read in one way.";
    HydratePassedEntity: Counter "lapwing_hydrate_passed" &[("reason", "entity")], "Requests that a rule of hydrate takes and that pass as they came, by reason: names no entity, or not one for each row.";
    HydratePassedPresent: Counter "lapwing_hydrate_passed" &[("reason", "present")], "Requests that a rule of hydrate takes and that pass as they came, by reason: has features already.";
    HydratePassedTooMany: Counter "lapwing_hydrate_passed" &[("reason", "too_many")], "Requests that a rule of hydrate takes and that pass as they came, by reason: too many rows or numbers.";
    HydrateEntitiesFound: Counter "lapwing_hydrate_entities" &[("result", "hit")], "Entities that were looked up, each once for a request, by result: all its features are there.";
    HydrateEntitiesMissed: Counter "lapwing_hydrate_entities" &[("result", "miss")], "Entities that were looked up, each once for a request, by result: at least one is missing.";
    HoldBytes: Gauge "lapwing_hold_bytes" &[], "Memory of held bodies, until they are sent.";
    Amended: Counter "lapwing_requests_amended" &[], "Requests that were changed on their way to the upstream (proxy.amend).";
    AmendFailed: Counter "lapwing_amend_failed" &[], "Responses to changed requests in which the change could not be undone, or not completely; the rest passed unchanged.";
    TlsFull: Counter "lapwing_tls_handshakes" &[("result", "full")], "TLS handshakes with clients of any listener, by result: made in full.";
    TlsResumed: Counter "lapwing_tls_handshakes" &[("result", "resumed")], "TLS handshakes with clients of any listener, by result: a session was resumed.";
    TlsFailed: Counter "lapwing_tls_handshakes" &[("result", "failed")], "TLS handshakes with clients of any listener, by result: failed, or ended in the middle.";
    TlsMicros: Counter "lapwing_tls_handshake_microseconds" &[], "What the TLS handshakes that were made took, from accept to end, all together; it is part of no request.";
    TlsReloadFailures: Counter "lapwing_tls_reload_failures" &[], "Changed certificates, keys and authorities that could not be used; those before stay in force.";
    ExpiryListen: Timestamp "lapwing_tls_certificate_expiry_timestamp_seconds" &[("certificate", "listen")], "When the first certificate of the chain in the section tls expires, by key: of the address that clients connect to.";
    ExpiryAdmin: Timestamp "lapwing_tls_certificate_expiry_timestamp_seconds" &[("certificate", "admin")], "When the first certificate of the chain in the section tls expires, by key: of the admin address.";
    ExpiryOtlp: Timestamp "lapwing_tls_certificate_expiry_timestamp_seconds" &[("certificate", "otlp")], "When the first certificate of the chain in the section tls expires, by key: of the addresses that receive spans.";
    ExpiryUpstream: Timestamp "lapwing_tls_certificate_expiry_timestamp_seconds" &[("certificate", "upstream")], "When the first certificate of the chain in the section tls expires, by key: shown to an upstream.";
    ExpiryCollector: Timestamp "lapwing_tls_certificate_expiry_timestamp_seconds" &[("certificate", "collector")], "When the first certificate of the chain in the section tls expires, by key: shown to a collector.";
    ConfigGeneration: Gauge "lapwing_config_generation" &[], "How often the configuration was loaded: once at the start, and at each reload that succeeded.";
    ConfigReloadFailures: Counter "lapwing_config_reload_failures" &[], "Reloads that were refused because the configuration has faults, which /config names; the one before stays in force.";
    InFlight: Gauge "lapwing_requests_in_flight" &[], "Requests in flight.";
}

/// The values of all rows. Access is relaxed: a scrape may read one row a moment before another.
#[derive(Debug)]
pub struct Counters {
    values: [AtomicU64; Counter::ALL.len()],
    open_requests: OpenRequests,
    load: LatestLoad,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            values: std::array::from_fn(|_| AtomicU64::new(0)),
            open_requests: OpenRequests::default(),
            load: LatestLoad::default(),
        }
    }
}

impl Counters {
    /// Adds one.
    pub fn bump(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds one to a gauge. Returns its value, this one included.
    pub fn raise(&self, gauge: Counter) -> u64 {
        self.values[gauge as usize].fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Adds `n`. Zero, the usual case, writes nothing, because other threads have the neighbouring counters in their caches.
    pub fn add(&self, counter: Counter, n: u64) {
        if n > 0 {
            self.values[counter as usize].fetch_add(n, Relaxed);
        }
    }

    /// Adds `n` to a gauge if it does not exceed `limit` then. Returns whether it was added.
    #[must_use]
    pub fn reserve(&self, gauge: Counter, n: u64, limit: u64) -> bool {
        let within = |value: u64| value.checked_add(n).filter(|sum| *sum <= limit);
        self.values[gauge as usize].fetch_update(Relaxed, Relaxed, within).is_ok()
    }

    /// Subtracts `n` from a gauge.
    pub fn sub(&self, counter: Counter, n: u64) {
        self.values[counter as usize].fetch_sub(n, Relaxed);
    }

    /// Sets a gauge.
    pub fn set(&self, counter: Counter, value: u64) {
        self.values[counter as usize].store(value, Relaxed);
    }

    /// The requests in flight, by when they began.
    #[must_use]
    pub const fn open_requests(&self) -> &OpenRequests {
        &self.open_requests
    }

    /// The load of the last seconds.
    #[must_use]
    pub const fn load(&self) -> &LatestLoad {
        &self.load
    }

    /// Reads a row.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.values[counter as usize].load(Relaxed)
    }
}
