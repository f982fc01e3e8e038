//! `/stats`: where the time goes, per series, and how the profiler itself is doing. Durations are nanoseconds.

use std::sync::Arc;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::gather;
use super::pairs::Pairs;
use super::surfaces::Surfaces;
use crate::ledger::{Outcome, Source, Stage};
use crate::metrics::{Counter, Distribution, Measure, SeriesSnapshot, Window, histogram};

#[derive(Debug, Serialize)]
pub(super) struct Stats {
    window: &'static str,
    covered_ns: u64,
    series: Vec<Series>,
    profiler: Profiler,
}

/// One route × model × upstream. Maps hold only what occurred in the window.
#[derive(Debug, Serialize)]
struct Series {
    route: Arc<str>,
    model: Option<Arc<str>>,
    upstream: Arc<str>,
    count: u64,
    errors: u64,
    outcomes: Pairs<u64>,
    total: Distribution,
    stages: Pairs<StageStats>,
    cancelled: Distribution,
    failed: Distribution,
    streams: Streams,
    coverage: Option<f64>,
    clipped: u64,
}

#[derive(Debug, Serialize)]
struct StageStats {
    #[serde(flatten)]
    distribution: Distribution,
    share: f64,
    sources: Pairs<u64>,
}

#[derive(Debug, Serialize)]
struct Streams {
    #[serde(flatten)]
    distribution: Distribution,
    request_bytes: u64,
    response_bytes: u64,
}

/// Since the start, whatever the window; how full each bounded thing is.
#[derive(Debug, Serialize)]
struct Profiler {
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
    models: usize,
    models_max: usize,
    dropped: u64,
    dropped_channel_full: u64,
    dropped_panic: u64,
    pending_evicted: u64,
    clipped: u64,
    values_clipped: u64,
    ledger_overflowed: u64,
    reports_malformed: u64,
    spans: Spans,
    otlp: Otlp,
}

#[derive(Debug, Serialize)]
struct Spans {
    received: u64,
    joined: u64,
    ambiguous: u64,
    unmatched: u64,
    late: u64,
    shed: u64,
}

#[derive(Debug, Serialize)]
struct Otlp {
    malformed: u64,
    forwarded: u64,
    forward_lost: u64,
}

/// The figures of `window`.
pub(super) fn stats(surfaces: &Surfaces, window: Window) -> Stats {
    let covered_ns = surfaces.registry.lock().covered_ns(window);
    let mut scratch = histogram();
    let series = gather::series(&surfaces.registry, window, |series| figures(series, &mut scratch));
    Stats { window: window.name(), covered_ns, series, profiler: profiler(surfaces) }
}

fn figures(series: &SeriesSnapshot, scratch: &mut Histogram<u64>) -> Series {
    let exact = &series.figures;
    let mut of = |measure| series.distribution(measure, scratch);
    let outcome = |o: Outcome| (o.name(), exact.outcomes[o.index()]);
    let sources = |stage| series.sources(stage).map(|(source, count): (Source, u64)| (source.name(), count)).collect();
    let stages = Stage::ALL.into_iter().filter(|stage| exact.extent(Measure::Stage(*stage)).count > 0);
    Series {
        route: series.route.clone(),
        model: Some(series.model.clone()).filter(|model| !model.is_empty()),
        upstream: series.upstream.clone(),
        count: exact.count(),
        errors: exact.errors(),
        outcomes: Outcome::ALL.into_iter().map(outcome).filter(|(_, count)| *count > 0).collect(),
        total: of(Measure::Total),
        stages: stages
            .map(|stage| {
                let distribution = of(Measure::Stage(stage));
                (stage.name(), StageStats { distribution, share: series.share(stage), sources: sources(stage) })
            })
            .collect(),
        cancelled: of(Measure::Cancelled),
        failed: of(Measure::Failed),
        streams: Streams {
            distribution: of(Measure::Stream),
            request_bytes: exact.stream_request_bytes,
            response_bytes: exact.stream_response_bytes,
        },
        coverage: exact.coverage(),
        clipped: exact.clipped,
    }
}

fn profiler(surfaces: &Surfaces) -> Profiler {
    let Surfaces { registry, counters, limits, started, .. } = surfaces;
    let get = |counter| counters.get(counter);
    let ((series, series_overflowed), config, labels) = {
        let registry = registry.lock();
        (registry.fill(), *registry.config(), registry.labels().clone())
    };
    let (dropped_channel_full, dropped_panic) = (get(Counter::DroppedChannelFull), get(Counter::DroppedPanic));
    Profiler {
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
        models: labels.models.fill().0,
        models_max: config.max_models,
        dropped: dropped_channel_full + dropped_panic,
        dropped_channel_full,
        dropped_panic,
        pending_evicted: get(Counter::PendingEvicted),
        clipped: get(Counter::Clipped),
        values_clipped: get(Counter::ValuesClipped),
        ledger_overflowed: get(Counter::LedgerOverflowed),
        reports_malformed: get(Counter::ReportsMalformed),
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
    }
}
