//! Computational debt as `/stats` shows it: forward over its optimum, and the optimum's name.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::surfaces::Surfaces;
use lapwing_diagnosis::cost::ModelOptima;
use lapwing_ledger::{Unit, Work};
use lapwing_metrics::gather;
use lapwing_metrics::views::Pairs;
use lapwing_metrics::{DebtGap, DebtTotals, HistogramScratch, RatioDistribution, SeriesSnapshot, Window};

/// The debt of a series in the window.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DebtView {
    optimum: Arc<str>,
    ratio: Option<RatioDistribution>,
    weighted: Option<f64>,
    forward_ns: u64,
    optimum_ns: u64,
    debt_ns: u64,
    debt_s_per_hour: Option<f64>,
    below: BelowOptimum,
    without: Pairs<u64>,
    classes: Vec<DebtClass>,
    batch: Option<BatchView>,
}

/// The debt of a series since the start.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SeriesDebt {
    route: Arc<str>,
    model: Option<Arc<str>>,
    upstream: Arc<str>,
    computational_debt: DebtView,
}

/// The debts of clients' series since the start.
pub(crate) fn debts(surfaces: &Surfaces) -> Vec<SeriesDebt> {
    let covered_ns = surfaces.registry.lock().covered_ns(Window::All);
    let mut scratch = HistogramScratch::default();
    let debt = |series: &SeriesSnapshot| {
        let computational_debt = DebtView::of(series, &surfaces.optima, covered_ns, &mut scratch)?;
        let model = Some(series.model.clone()).filter(|model| !model.is_empty());
        Some(SeriesDebt { route: series.route.clone(), model, upstream: series.upstream.clone(), computational_debt })
    };
    gather::series(&surfaces.registry, Window::All, debt).into_iter().flatten().collect()
}

impl fmt::Display for SeriesDebt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DebtView { optimum, ratio, without, .. } = &self.computational_debt;
        let model = self.model.as_deref().map_or(String::new(), |model| format!(", model {model}"));
        write!(f, "computational debt of the upstream, {}{model}:\n    ", self.route)?;
        if let Some(RatioDistribution { count, p50, p99, .. }) = ratio {
            return writeln!(f, "{p50:.2}× at p50, {p99:.2}× at p99, of {count} requests, relative to: {optimum}");
        }
        let reasons: Vec<String> = without.0.iter().map(|(reason, count)| format!("{count} for {reason}")).collect();
        writeln!(f, "unknown ({}), relative to: {optimum}", reasons.join(", "))
    }
}

/// Requests that were quicker than the optimum.
#[derive(Debug, Serialize, JsonSchema)]
struct BelowOptimum {
    count: u64,
    ns: u64,
}

/// The ratios of the requests with `from..=to` of the primary unit.
#[derive(Debug, Serialize, JsonSchema)]
struct DebtClass {
    class: usize,
    from: u64,
    to: Option<u64>,
    unit: Unit,
    #[serde(flatten)]
    ratio: RatioDistribution,
}

/// How well the upstream's batches use the device, by means over the window.
#[derive(Debug, Serialize, JsonSchema)]
struct BatchView {
    size: f64,
    efficiency: f64,
    bandwidth_utilisation: Option<f64>,
}

impl DebtView {
    /// `None` if no request of the series had an optimum in the window.
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    pub(crate) fn of(
        series: &SeriesSnapshot,
        optima: &ModelOptima,
        covered_ns: u64,
        scratch: &mut HistogramScratch,
    ) -> Option<Self> {
        let (optimum, totals) = (series.optimum.clone()?, series.figures.debt()?);
        let gaps = DebtGap::ALL.into_iter().map(|gap| (gap.name(), totals.gaps[gap as usize]));
        let hours = covered_ns as f64 / 3.6e12;
        Some(Self {
            optimum,
            ratio: series.debt(None, scratch),
            weighted: totals.weighted(),
            forward_ns: totals.forward_ns,
            optimum_ns: whole_ns(totals.optimum_ps),
            debt_ns: whole_ns(totals.excess_ps),
            debt_s_per_hour: (covered_ns > 0).then(|| totals.excess_ps as f64 / 1e12 / hours),
            below: BelowOptimum { count: totals.below, ns: whole_ns(totals.below_ps) },
            without: gaps.filter(|(_, count)| *count > 0).collect(),
            classes: classes(series, scratch),
            batch: batch(series, totals, optima),
        })
    }
}

fn whole_ns(ps: u128) -> u64 {
    u64::try_from((ps + 500) / 1_000).unwrap_or(u64::MAX)
}

fn classes(series: &SeriesSnapshot, scratch: &mut HistogramScratch) -> Vec<DebtClass> {
    let Some(unit) = series.facts.primary else { return Vec::new() };
    let made = (0..Work::CLASSES).filter_map(|class| {
        let ratio = series.debt(Some(class), scratch)?;
        let to = (class + 1 < Work::CLASSES).then(|| (1 << (class + 1)) - 1);
        Some(DebtClass { class, from: 1 << class, to, unit, ratio })
    });
    made.collect()
}

/// The mean batch of the upstream's statistics, against the mean forward of the requests that rode in batches.
#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn batch(series: &SeriesSnapshot, totals: &DebtTotals, optima: &ModelOptima) -> Option<BatchView> {
    let size = series.polled.as_ref()?.batch_size.value()?;
    let optimum = optima.named(&series.model, series.optimum.as_deref()?)?;
    let unit = optimum.time.unit();
    let sum = |unit: Unit| series.figures.work().find(|(own, _)| *own == unit).map(|(_, sum)| sum);
    let all = sum(unit)?;
    // a request whose rows are unknown counts as one
    let rows = sum(Unit::Row).map_or_else(|| all.requests.iter().sum::<u64>() as f64, |rows| rows.amount as f64);
    let forward_ns = totals.forward_ns as f64 / totals.ratios().count as f64;
    let used = optimum.batch_use(size * all.amount as f64 / rows, forward_ns)?;
    Some(BatchView { size, efficiency: used.efficiency, bandwidth_utilisation: used.bandwidth })
}
