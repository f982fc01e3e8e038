//! `/stats`: the time of each stage, per series, and the state of the profiler itself. Durations are nanoseconds.

use parking_lot::Mutex;

use self::debt::DebtView;
use super::dispatch::{self, DispatchSummary};
use super::hosted::Engine;
use super::surfaces::{Surfaces, UpstreamState};
use lapwing_diagnosis::InferredStages;
use lapwing_metrics::views::{Names, SeriesView, StatsView, series_view};
use lapwing_metrics::{HistogramScratch, Registry, Window, gather};

mod debt;

pub(crate) use debt::{SeriesDebt, debts};

/// A series with what is inferred of it, and its debt.
pub(crate) type Series = SeriesView<InferredStages, DebtView>;
/// The document.
pub(crate) type Stats = StatsView<Series, Engine, UpstreamState, DispatchSummary>;

/// The series of copies, since the start, as `/stats` has those of clients.
pub(crate) fn series_of_copies(registry: &Mutex<Registry>, upstream: &str) -> Vec<Series> {
    let mut scratch = HistogramScratch::default();
    let all = gather::series(registry, Window::All, |series| {
        (&*series.upstream == upstream).then(|| series_view(series, &mut scratch))
    });
    all.into_iter().flatten().collect()
}

/// The figures of `window`, of the series that are asked for. What belongs to no series is shown whatever `names` are.
pub(crate) fn stats(surfaces: &Surfaces, window: Window, names: &Names) -> Stats {
    let covered_ns = surfaces.registry.lock().covered_ns(window);
    let inferred = surfaces.inferred().unwrap_or_default();
    let mut scratch = HistogramScratch::default();
    let series = gather::series(&surfaces.registry, window, |series| {
        names.take(&series.route, &series.model).then(|| {
            let mut view: Series = series_view(series, &mut scratch);
            view.computational_debt = DebtView::of(series, &surfaces.optima, covered_ns, &mut scratch);
            view.inferred =
                inferred.get(&series.route, &series.model, &series.upstream).and_then(|figures| figures.stages.clone());
            view
        })
    });
    let series = series.into_iter().flatten().collect();
    let Surfaces { registry, counters, limits, started, .. } = surfaces;
    let engine = Engine::of(&surfaces.engine);
    let stats = StatsView::of(registry, counters, *limits.load(), *started, window, series, engine);
    let dispatch = surfaces.dispatch.as_ref().and_then(|dispatch| dispatch::summary(dispatch));
    stats.with_upstreams((surfaces.upstreams)()).with_dispatch(dispatch)
}
