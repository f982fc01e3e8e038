//! `/stats`: the time of each stage, per series, and the state of the profiler itself. Durations are nanoseconds.

use std::sync::Arc;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;

use self::budget::BudgetView;
use self::engine::Engine;
use self::polled::{PolledModel, PolledSums};
use self::profiler::{Profiler, profiler};
use super::gather;
use super::inferred::InferredSeries;
use super::pairs::Pairs;
use super::query::Names;
use super::surfaces::Surfaces;
use lapwing_diagnosis::InferredStages;
use lapwing_ledger::{ClippedReports, Outcome, Phase, Server, Stage};
use lapwing_metrics::{Distribution, HistogramScratch, Measure, Registry, Retired, SeriesSnapshot, SeriesTotals, Window};

mod budget;
mod debt;
mod engine;
mod polled;
mod profiler;
mod work;

pub(crate) use debt::{SeriesDebt, debts};
pub use engine::{HostedFallback, HostedModel, HostedModels};
pub(crate) use work::speed;

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Stats {
    window: &'static str,
    covered_ns: u64,
    pub series: Vec<Series>,
    polled: Vec<PolledModel>,
    retired: RetiredSeries,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine: Option<Engine>,
    profiler: Profiler,
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

/// The series of copies, since the start, as `/stats` has those of clients.
pub(crate) fn series_of_copies(registry: &Mutex<Registry>, upstream: &str) -> Vec<Series> {
    let mut scratch = HistogramScratch::default();
    let all =
        gather::series(registry, Window::All, |series| (&*series.upstream == upstream).then(|| figures(series, &mut scratch)));
    all.into_iter().flatten().collect()
}

/// One route × model × upstream. Maps hold only what occurred in the window.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Series {
    pub route: Arc<str>,
    pub model: Option<Arc<str>>,
    upstream: Arc<str>,
    server: Option<Server>,
    pub count: u64,
    errors: u64,
    outcomes: Pairs<u64>,
    pub total: Distribution,
    pub stages: Pairs<StageStats>,
    phases: Pairs<StageStats>,
    cancelled: Distribution,
    failed: Distribution,
    #[serde(skip_serializing_if = "Pairs::is_empty")]
    budget: Pairs<BudgetView>,
    streams: Streams,
    pub coverage: Option<f64>,
    clipped: u64,
    clipped_by_cause: Pairs<u64>,
    incomplete: u64,
    mended: u64,
    mended_ns: u64,
    first_byte: Option<Distribution>,
    polled: Option<PolledSums>,
    /// What the upstream's stages are, inferred because it reports none: of at most the last five minutes, whatever the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    inferred: Option<InferredStages>,
    #[serde(flatten)]
    work: work::WorkView,
    #[serde(skip_serializing_if = "Option::is_none")]
    computational_debt: Option<debt::DebtView>,
}

/// A stage, or a phase of one.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StageStats {
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

/// The figures of `window`, of the series that are asked for. What belongs to no series is shown whatever `names` are.
pub(crate) fn stats(surfaces: &Surfaces, window: Window, names: &Names) -> Stats {
    let (covered_ns, polled) = {
        let registry = surfaces.registry.lock();
        (registry.covered_ns(window), registry.polled(window))
    };
    let polled = polled.into_iter().map(PolledModel::from).collect();
    let inferred = InferredSeries::of(surfaces).unwrap_or_default();
    let mut scratch = HistogramScratch::default();
    let series = gather::series(&surfaces.registry, window, |series| {
        names.take(&series.route, &series.model).then(|| Series {
            computational_debt: debt::DebtView::of(series, &surfaces.optima, covered_ns, &mut scratch),
            inferred: inferred.get(&series.route, &series.model, &series.upstream).cloned(),
            ..figures(series, &mut scratch)
        })
    });
    let series = series.into_iter().flatten().collect();
    let retired = RetiredSeries::from(surfaces.registry.lock().retired());
    Stats {
        window: window.name(),
        covered_ns,
        series,
        polled,
        retired,
        engine: Engine::of(&surfaces.engine),
        profiler: profiler(surfaces),
    }
}

fn figures(series: &SeriesSnapshot, scratch: &mut HistogramScratch) -> Series {
    let exact = &series.figures;
    let stages = parts(series, Stage::ALL.map(|stage| (Measure::Stage(stage), exact.resolution_ns(stage))), scratch);
    let phases = parts(series, Phase::ALL.map(|phase| (Measure::Phase(phase), None)), scratch);
    let mut of = |measure| series.distribution(measure, scratch);
    Series {
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
        cancelled: of(Measure::Cancelled),
        failed: of(Measure::Failed),
        budget: budget::budgets(series),
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
        work: work::WorkView::of(series, scratch),
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
