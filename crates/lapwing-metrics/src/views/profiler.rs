//! The section `profiler` of `/stats`: the profiler's own counters since the start, and how full each bounded table and queue is.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{Counter, Counters, Registry};
use lapwing_ledger::Stamp;
use parking_lot::Mutex;

/// The counters of clipped reports, by cause.
const CLIPPED: [Counter; 3] = [Counter::ClippedTooLong, Counter::ClippedBefore, Counter::ClippedAfter];

/// Counts since the start, whatever the window, and the fill of each bounded table and queue.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProfilerView {
    uptime_ns: u64,
    in_flight: u64,
    queue_depth: u64,
    queue_max: usize,
    pending: u64,
    pending_max: usize,
    orphan_spans: u64,
    orphan_spans_max: usize,
    series: usize,
    series_max: usize,
    series_overflowed: u64,
    routes: usize,
    routes_max: usize,
    routes_unproven: u64,
    routes_overflowed: u64,
    models: usize,
    models_max: usize,
    models_unproven: u64,
    models_overflowed: u64,
    dropped: u64,
    dropped_channel_full: u64,
    dropped_panic: u64,
    pending_evicted: u64,
    clipped: u64,
    span_shapes_evicted: u64,
    values_clipped: u64,
    ledger_overflowed: u64,
    reports_malformed: u64,
    work_mixed: u64,
    spans: Spans,
    otlp: Otlp,
    telemetry: Telemetry,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Spans {
    received: u64,
    joined: u64,
    ambiguous: u64,
    unmatched: u64,
    late: u64,
    shed: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Otlp {
    malformed: u64,
    forwarded: u64,
    forward_lost: u64,
}

/// Lapwing's own metrics and traces, on their way to a collector.
#[derive(Debug, Serialize, JsonSchema)]
struct Telemetry {
    /// Requests with metrics that the collector took.
    metrics_sent: u64,
    /// Requests with metrics that it did not take at any attempt.
    metrics_failed: u64,
    /// Data points that it refused though it took their request.
    points_rejected: u64,
    /// Traces that it took.
    traces_sent: u64,
    /// Traces that it did not take at any attempt.
    traces_failed: u64,
    /// Traces for which there was no room while others waited.
    traces_dropped: u64,
    /// Spans that it refused though it took their request.
    spans_rejected: u64,
}

/// Bounds that the registry does not know. `/stats` shows how full each is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfilerLimits {
    /// Closed ledgers that the queue to the aggregator holds.
    pub queue: usize,
    /// Ledgers that may wait for their spans.
    pub pending: usize,
    /// Spans that may wait for their exchange.
    pub orphan_spans: usize,
}

/// Reads the counters.
pub(crate) fn profiler(registry: &Mutex<Registry>, counters: &Counters, limits: ProfilerLimits, started: Stamp) -> ProfilerView {
    let get = |counter| counters.get(counter);
    let ((series, series_overflowed), config, labels) = {
        let registry = registry.lock();
        (registry.fill(), registry.config().clone(), registry.labels().clone())
    };
    let [(routes_unproven, routes_overflowed), (models_unproven, models_overflowed)] = labels.unnamed();
    let (dropped_channel_full, dropped_panic) = (get(Counter::DroppedChannelFull), get(Counter::DroppedPanic));
    ProfilerView {
        uptime_ns: started.elapsed(),
        in_flight: get(Counter::InFlight),
        queue_depth: get(Counter::QueueDepth),
        queue_max: limits.queue,
        pending: get(Counter::Pending),
        pending_max: limits.pending,
        orphan_spans: get(Counter::OrphanSpans),
        orphan_spans_max: limits.orphan_spans,
        series,
        series_max: config.max_series,
        series_overflowed,
        routes: labels.routes.fill().0,
        routes_max: config.max_routes,
        routes_unproven,
        routes_overflowed,
        models: labels.models.fill().0,
        models_max: config.max_models,
        models_unproven,
        models_overflowed,
        dropped: dropped_channel_full + dropped_panic,
        dropped_channel_full,
        dropped_panic,
        pending_evicted: get(Counter::PendingEvicted),
        clipped: CLIPPED.into_iter().map(get).sum(),
        span_shapes_evicted: get(Counter::SpanShapesEvicted),
        values_clipped: get(Counter::ValuesClipped),
        ledger_overflowed: get(Counter::LedgerOverflowed),
        reports_malformed: get(Counter::ReportsMalformed),
        work_mixed: get(Counter::WorkMixed),
        spans: Spans {
            received: get(Counter::SpansReceived),
            joined: get(Counter::SpansJoined),
            ambiguous: get(Counter::SpansAmbiguous),
            unmatched: get(Counter::SpansUnmatched),
            late: get(Counter::SpansLate),
            shed: get(Counter::SpansShed),
        },
        otlp: Otlp {
            malformed: get(Counter::OtlpMalformed),
            forwarded: get(Counter::OtlpForwarded),
            forward_lost: get(Counter::OtlpForwardLost),
        },
        telemetry: Telemetry {
            metrics_sent: get(Counter::TelemetryMetricsSent),
            metrics_failed: get(Counter::TelemetryMetricsFailed),
            points_rejected: get(Counter::TelemetryPointsRejected),
            traces_sent: get(Counter::TracesSent),
            traces_failed: get(Counter::TracesLost),
            traces_dropped: get(Counter::TracesDropped),
            spans_rejected: get(Counter::TelemetrySpansRejected),
        },
    }
}
