//! `/stats`: the time of each stage, per series, and the state of the profiler itself. Durations are nanoseconds.

use std::sync::Arc;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;

use super::budget::{BudgetView, GoodputView, budgets};
use super::pairs::Pairs;
use super::polled::{PolledModel, PolledSums};
use super::profiler::{ProfilerLimits, ProfilerView, profiler};
use super::query::Names;
use super::work::WorkView;
use crate::{Counters, Distribution, HistogramScratch, Measure, Registry, Retired, SeriesSnapshot, SeriesTotals, Window, gather};
use lapwing_ledger::{ClippedReports, Outcome, Phase, Server, Stage, Stamp};

/// The document, with series of the type `S`, hosted models of the type `E`, upstreams of the type `U`, and the queue in front of them of the type `D`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Stats")]
pub struct StatsView<S = SeriesView, E = (), U = (), D = ()> {
    window: &'static str,
    covered_ns: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    upstreams: Vec<U>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dispatch: Option<D>,
    series: Vec<S>,
    polled: Vec<PolledModel>,
    retired: RetiredSeries,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine: Option<E>,
    profiler: ProfilerView,
}

impl StatsView {
    /// The figures of `window`, of the series that are asked for.
    #[must_use]
    pub fn of_registry(
        registry: &Mutex<Registry>,
        counters: &Counters,
        limits: ProfilerLimits,
        started: Stamp,
        window: Window,
        names: &Names,
    ) -> Self {
        let mut scratch = HistogramScratch::default();
        let series = gather::series(registry, window, |series| {
            names.take(&series.route, &series.model).then(|| series_view(series, &mut scratch))
        });
        Self::of(registry, counters, limits, started, window, series.into_iter().flatten().collect(), None)
    }
}

impl<S, E, U, D> StatsView<S, E, U, D> {
    /// `series` with what belongs to no series.
    #[must_use]
    pub fn of(
        registry: &Mutex<Registry>,
        counters: &Counters,
        limits: ProfilerLimits,
        started: Stamp,
        window: Window,
        series: Vec<S>,
        engine: Option<E>,
    ) -> Self {
        let (covered_ns, polled, retired) = {
            let registry = registry.lock();
            (registry.covered_ns(window), registry.polled(window), RetiredSeries::from(registry.retired()))
        };
        let polled = polled.into_iter().map(PolledModel::from).collect();
        let profiler = profiler(registry, counters, limits, started);
        Self {
            window: window.name(),
            covered_ns,
            upstreams: Vec::new(),
            dispatch: None,
            series,
            polled,
            retired,
            engine,
            profiler,
        }
    }

    /// The same, with the state of several upstreams.
    #[must_use]
    pub fn with_upstreams(self, upstreams: Vec<U>) -> Self {
        Self { upstreams, ..self }
    }

    /// The same, with the state of the queue in front of the upstreams, if there is one.
    #[must_use]
    pub fn with_dispatch(self, dispatch: Option<D>) -> Self {
        Self { dispatch, ..self }
    }
}

/// What the series counted that gave way, since the start, whatever the window.
#[derive(Debug, Serialize, JsonSchema)]
struct RetiredSeries {
    series: u64,
    count: u64,
    errors: u64,
    outcomes: Pairs<u64>,
}

impl From<&Retired> for RetiredSeries {
    fn from(retired: &Retired) -> Self {
        let Retired { series, totals } = retired;
        Self { series: *series, count: totals.count(), errors: totals.errors(), outcomes: outcomes(totals) }
    }
}

/// The outcomes that occurred.
fn outcomes(totals: &SeriesTotals) -> Pairs<u64> {
    let outcome = |o: Outcome| (o.name(), totals.outcomes[o.index()]);
    Outcome::ALL.into_iter().map(outcome).filter(|(_, count)| *count > 0).collect()
}

/// One route × model × upstream. Maps hold only what occurred in the window.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Series")]
pub struct SeriesView<I = (), D = ()> {
    route: Arc<str>,
    model: Option<Arc<str>>,
    upstream: Arc<str>,
    server: Option<Server>,
    count: u64,
    errors: u64,
    outcomes: Pairs<u64>,
    total: Distribution,
    stages: Pairs<StageStats>,
    phases: Pairs<StageStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached: Option<Distribution>,
    cancelled: Distribution,
    failed: Distribution,
    #[serde(skip_serializing_if = "Pairs::is_empty")]
    budget: Pairs<BudgetView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goodput: Option<GoodputView>,
    streams: Streams,
    coverage: Option<f64>,
    clipped: u64,
    clipped_by_cause: Pairs<u64>,
    incomplete: u64,
    mended: u64,
    mended_ns: u64,
    first_byte: Option<Distribution>,
    polled: Option<PolledSums>,
    /// What the upstream's stages are, inferred because it reports none: of at most the last five minutes, whatever the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inferred: Option<I>,
    #[serde(flatten)]
    work: WorkView,
    /// How much more forward takes than its optimum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub computational_debt: Option<D>,
}

/// A stage, or a phase of one.
#[derive(Debug, Serialize, JsonSchema)]
struct StageStats {
    #[serde(flatten)]
    distribution: Distribution,
    share: f64,
    sources: Pairs<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolution_ns: Option<u32>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Streams {
    #[serde(flatten)]
    distribution: Distribution,
    request_bytes: u64,
    response_bytes: u64,
}

/// The figures of a series that was copied out of the registry.
#[must_use]
pub fn series_view<I, D>(series: &SeriesSnapshot, scratch: &mut HistogramScratch) -> SeriesView<I, D> {
    let exact = &series.figures;
    let stages = parts(series, Stage::ALL.map(|stage| (Measure::Stage(stage), exact.resolution_ns(stage))), scratch);
    let phases = parts(series, Phase::ALL.map(|phase| (Measure::Phase(phase), None)), scratch);
    let mut of = |measure| series.distribution(measure, scratch);
    SeriesView {
        route: series.route.clone(),
        model: Some(series.model.clone()).filter(|model| !model.is_empty()),
        upstream: series.upstream.clone(),
        server: series.facts.server,
        count: exact.count(),
        errors: exact.errors(),
        outcomes: outcomes(exact),
        total: of(Measure::Total),
        stages,
        phases,
        cached: Some(of(Measure::Cached)).filter(|of| of.count > 0),
        cancelled: of(Measure::Cancelled),
        failed: of(Measure::Failed),
        budget: budgets(series),
        goodput: GoodputView::of(series),
        streams: Streams {
            distribution: of(Measure::Stream),
            request_bytes: exact.stream_request_bytes,
            response_bytes: exact.stream_response_bytes,
        },
        coverage: exact.coverage(),
        clipped: exact.clipped.iter().sum(),
        clipped_by_cause: causes(exact.clipped),
        incomplete: exact.incomplete,
        mended: exact.mended,
        mended_ns: exact.mended_ns,
        first_byte: Some(of(Measure::FirstByte)).filter(|of| of.count > 0),
        polled: series.polled.as_ref().map(PolledSums::from),
        inferred: None,
        work: WorkView::of(series, scratch),
        computational_debt: None,
    }
}

/// The causes of clipping that occurred.
fn causes(counts: [u64; 3]) -> Pairs<u64> {
    let names = ClippedReports::default().by_cause().map(|(cause, _)| cause);
    names.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect()
}

/// The stages or phases that occurred, each with the resolution of its reports.
fn parts<const N: usize>(
    series: &SeriesSnapshot,
    of: [(Measure, Option<u32>); N],
    scratch: &mut HistogramScratch,
) -> Pairs<StageStats> {
    let occurred = of.into_iter().filter(|(measure, _)| series.figures.values(*measure) > 0);
    let part = |(measure, resolution_ns): (Measure, _)| {
        let distribution = series.distribution(measure, scratch);
        let sources = series.sources(measure).map(|(source, count)| (source.name(), count)).collect();
        (measure.name(), StageStats { distribution, share: series.share(measure), sources, resolution_ns })
    };
    occurred.map(part).collect()
}
