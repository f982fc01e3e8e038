//! What is inferred of a series' upstream windows: what is kept of them, what they are made of where the upstream reports nothing, and
//! how much more it can take.

use super::capacity::{CapacityEstimate, CapacityQuestion};
use super::fit::{FitRefusal, FitStatistics, FittedValue, FittedWaiting, InferredStages, WindowFit};
use super::report::{Diagnosis, MeasuredBudget, RouteDiagnosis};
use lapwing_ledger::{Exchange, Stage, Stamp, Unit};
use lapwing_metrics::RouteBudget;

/// For how many series of a diagnosis something is inferred, because each takes some ten milliseconds; those that lost most time come
/// first.
pub const MAX_INFERRED: usize = 16;
/// The mean time outside the window follows this many of the last requests.
const REMEMBERED: u32 = 1_000;
/// How far apart the beginnings of two folds are at least. So a fit is made of each request up to 6,400 a second, and of runs of
/// successive ones beyond; and judging them, which takes up to a millisecond where they differ from what was before, costs no more at a
/// higher rate.
const FOLDS_APART_NS: u64 = 20_000_000;

/// The quantile whose budget capacity is planned by, where there are several.
const PLANNED_BY: &str = "p99";

/// What is inferred of a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InferredFigures {
    /// What its upstream's stages are; `None` where the upstream reports them.
    pub stages: Option<InferredStages>,
    /// How requests wait for one another; `None` where none was seen to, or it is not known.
    pub waiting: Option<InferredWaiting>,
    /// The quantile that has a budget, as budgets name it, and what it can take within that; `None` without one.
    pub capacity: Option<(&'static str, CapacityEstimate)>,
}

/// How requests wait for one another at a server that works on some at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InferredWaiting {
    /// What each departure to wait for takes, in nanoseconds.
    pub per_ahead_ns: FittedValue,
    /// How many requests the server works on at once.
    pub slots: u32,
}

impl InferredWaiting {
    /// How long a request that came now would wait, in nanoseconds, with so many others in flight: until one more than those that are
    /// not worked on yet have left.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "requests in flight")]
    pub fn predicted_ns(&self, in_flight: u64) -> FittedValue {
        let ahead = (in_flight + 1).saturating_sub(u64::from(self.slots)) as f64;
        let FittedValue { value, low, high } = self.per_ahead_ns;
        FittedValue { value: ahead * value, low: ahead * low, high: ahead * high }
    }
}

/// The upstream windows of a series, and what its requests take outside them.
#[derive(Clone, Debug, Default)]
pub struct UpstreamWindows {
    statistics: FitStatistics,
    /// Whether nothing was reported of the last one.
    is_unreported: bool,
    unit: Option<Unit>,
    /// The mean of what a request takes outside its window, in nanoseconds.
    outside_ns: f64,
    requests: u32,
    /// When the request ended with which the last fold began.
    fold_began: Stamp,
}

impl UpstreamWindows {
    /// Takes an exchange; one that no upstream answered has no window.
    #[allow(clippy::cast_precision_loss, reason = "a mean")]
    pub(crate) fn record(&mut self, exchange: &Exchange) {
        let ledger = &exchange.ledger;
        let Some(window) = ledger.window else { return };
        self.is_unreported = exchange.account.stage_ns(Stage::Upstream) > 0;
        self.unit = ledger.work.primary.or(self.unit);
        self.requests = self.requests.saturating_add(1).min(REMEMBERED);
        let outside_ns = ledger.total_ns.saturating_sub(window.length_ns()) as f64;
        self.outside_ns += (outside_ns - self.outside_ns) / f64::from(self.requests);
        if self.statistics.is_between_folds() {
            let ended = ledger.started.plus(ledger.total_ns);
            if (self.fold_began..self.fold_began.plus(FOLDS_APART_NS)).contains(&ended) {
                return;
            }
            self.fold_began = ended;
        }
        let work = ledger.work.primary_amount().unwrap_or(0);
        self.statistics.record(work, ledger.circumstances.in_flight, window.length_ns(), ledger.started.as_ns());
    }

    /// Forgets what ended before.
    pub(crate) fn expire(&mut self, before: Stamp) {
        self.statistics.expire(before.as_ns());
    }

    /// Whether it holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.statistics.samples() == 0
    }

    /// Whether anything is to be said about them: what they are made of, or what the budget leaves room for.
    pub(crate) fn says_something(&self, said: &RouteDiagnosis) -> bool {
        self.is_unreported || said.budget.is_some()
    }

    /// Whether they are of an upstream that reports nothing.
    pub(crate) const fn is_unreported(&self) -> bool {
        self.is_unreported
    }

    /// Of how many requests there are windows.
    pub(crate) fn samples(&self) -> u64 {
        self.statistics.samples()
    }

    /// What is inferred of a series with this budget. Takes some ten milliseconds.
    #[must_use]
    pub fn infer_figures(&self, budget: &RouteBudget) -> InferredFigures {
        let fit = self.statistics.fit();
        let stages = self.is_unreported.then(|| self.stages_of(&fit));
        let Ok(fit) = fit else { return InferredFigures { stages, ..InferredFigures::default() } };
        let waiting = match fit.waiting {
            FittedWaiting::Fitted { per_ahead_ns, slots, .. } => Some(InferredWaiting { per_ahead_ns, slots }),
            FittedWaiting::Unseen { .. } => None,
        };
        // else the first
        let limit = budget.limits().min_by_key(|(place, _)| RouteBudget::QUANTILES[*place].0 != PLANNED_BY);
        let capacity = limit.map(|(place, limit_ns)| {
            let quantile = RouteBudget::QUANTILES[place];
            (quantile.0, self.capacity_of(&fit, quantile, limit_ns))
        });
        InferredFigures { stages, waiting, capacity }
    }

    fn stages_of(&self, fit: &Result<WindowFit, FitRefusal>) -> InferredStages {
        InferredStages::of(fit, self.unit.map_or("unit of work", Unit::name))
    }

    /// What the series can take before the quantile exceeds its budget of `budget_ns`.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of positive times")]
    fn capacity_of(&self, fit: &WindowFit, (_, beyond): (&str, f64), budget_ns: u64) -> CapacityEstimate {
        let outside_ns = self.outside_ns as u64;
        CapacityEstimate::of(fit, &CapacityQuestion { quantile: 1.0 - beyond, budget_ns, outside_ns })
    }

    /// Adds what can be inferred about the series. Stages that an upstream reports are not inferred as well.
    fn infer(&self, said: &mut RouteDiagnosis) {
        let fit = self.statistics.fit();
        if self.is_unreported {
            said.inferred = Some(self.stages_of(&fit));
        }
        let (Ok(fit), Some(MeasuredBudget { quantile, limit_ns, .. })) = (fit, &said.budget) else { return };
        let Some(quantile) = RouteBudget::QUANTILES.into_iter().find(|(name, _)| name == quantile) else { return };
        said.capacity = Some(self.capacity_of(&fit, quantile, *limit_ns));
    }
}

/// A diagnosis of which some series are still to be inferred. That needs no access to the diagnostician.
#[derive(Clone, Debug, Default)]
pub struct PendingDiagnosis {
    pub(crate) diagnosis: Diagnosis,
    /// Places among the routes, with their windows; at most [`MAX_INFERRED`].
    pub(crate) windows: Vec<(usize, UpstreamWindows)>,
}

impl PendingDiagnosis {
    /// Infers what is not measured. Takes some ten milliseconds for each series.
    #[must_use]
    pub fn infer(self) -> Diagnosis {
        let Self { mut diagnosis, windows } = self;
        for (place, windows) in windows {
            if let Some(said) = diagnosis.routes.get_mut(place) {
                windows.infer(said);
            }
        }
        diagnosis
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Diagnostician;
    use lapwing_ledger::{Basis, Ledger, Outcome, SeriesKey, Source, UpstreamWindow};
    use lapwing_metrics::Labels;

    /// 2 ms for each request and 0.5 ms for each row, one request after the other; a third of them find others waiting.
    fn unreported(n: u64) -> Exchange {
        let (rows, ahead) = (1 + n * 7 % 32, (n * 5 % 6).saturating_sub(3));
        let noise_ns = n * 7_919 % 200_000;
        let window_ns = 2_000_000 + 500_000 * rows + 10_000_000 * ahead + noise_ns;
        let mut ledger = Ledger::open(Stamp::default().plus(1_000_000_000 + n * 20_000_000), 0);
        (ledger.outcome, ledger.status) = (Outcome::Ok, 200);
        ledger.work.primary = Some(Unit::Row);
        ledger.work.set(Unit::Row, rows, Basis::Counted);
        ledger.circumstances.in_flight = 1 + u32::try_from(ahead).unwrap();
        ledger.window = Some(UpstreamWindow { start_ns: 100_000, head_ns: 200_000, end_ns: 100_000 + window_ns });
        ledger.total_ns = window_ns + 300_000;
        let mut exchange = Exchange::of(ledger);
        exchange.account.add(Stage::Upstream, Source::Observed, window_ns);
        exchange
    }

    fn diagnosed(of: impl Fn(u64) -> Exchange) -> RouteDiagnosis {
        let mut diagnostician = Diagnostician::new(std::collections::BTreeMap::new(), std::sync::Arc::new(Labels::new(8, 8, 8)));
        let mut now = Stamp::default();
        for n in 0..3_000 {
            let mut exchange = of(n);
            exchange.ledger.series = SeriesKey::default();
            now = exchange.ledger.started.plus(exchange.ledger.total_ns);
            diagnostician.record(&exchange, now);
        }
        let mut said = diagnostician.examine(60_000_000_000, now).infer();
        said.routes.remove(0)
    }

    #[test]
    fn a_fit_is_made_of_each_request_until_they_are_too_many() {
        let samples = |apart_ns: u64| {
            let mut windows = UpstreamWindows::default();
            for n in 0..100_000 {
                let mut exchange = unreported(0);
                exchange.ledger.started = exchange.ledger.started.plus(n * apart_ns);
                windows.record(&exchange);
            }
            windows.statistics.samples()
        };
        assert_eq!(samples(160_000), 100_000);
        let of_half_a_second = samples(5_000);
        assert!((2_560..=26 * 128).contains(&of_half_a_second), "{of_half_a_second}");
    }

    #[test]
    fn a_series_without_reports_is_inferred() {
        let said = diagnosed(unreported);
        let inferred = said.inferred.unwrap();
        let fitted = inferred.fitted.unwrap_or_else(|| panic!("{:?}", inferred.refused));
        assert!((fitted.per_unit_ns.value / 500_000.0 - 1.0).abs() < 0.1, "{fitted:?}");
        assert_eq!(fitted.unit, "row");
        assert!(said.capacity.is_none(), "there is no budget");
    }

    #[test]
    fn a_wait_is_predicted_by_what_is_in_flight() {
        let mut windows = UpstreamWindows::default();
        (0..3_000).for_each(|n| windows.record(&unreported(n)));
        let figures = windows.infer_figures(&RouteBudget::default());
        assert!(figures.stages.unwrap().fitted.is_some() && figures.capacity.is_none(), "there is no budget");
        let waiting = figures.waiting.unwrap();
        let (FittedValue { value, low, high }, each) = (waiting.predicted_ns(3), waiting.per_ahead_ns);
        assert_eq!((waiting.slots, value, low, high), (1, 3.0 * each.value, 3.0 * each.low, 3.0 * each.high));
        assert!(low < value && value < high);
        assert_eq!(waiting.predicted_ns(0).value, 0.0, "it is alone");
        let two = InferredWaiting { slots: 2, ..waiting };
        assert_eq!((two.predicted_ns(1).value, two.predicted_ns(2).value), (0.0, waiting.per_ahead_ns.value));
    }

    #[test]
    fn capacity_is_that_of_the_99th_percentile_if_it_has_a_budget() {
        use lapwing_metrics::Budget;
        use lapwing_settings::Period;

        let mut windows = UpstreamWindows::default();
        (0..3_000).for_each(|n| windows.record(&unreported(n)));
        let limits = |budget: Budget| {
            let budgets = std::collections::BTreeMap::from([("r".to_owned(), budget)]);
            let capacity = windows.infer_figures(&RouteBudget::of(&budgets, "r")).capacity;
            capacity.map(|(name, capacity)| (name, capacity.quantile, capacity.budget_ns))
        };
        let [second, two] = [1, 2].map(|s| Some(Period::from_secs(s)));
        assert_eq!(limits(Budget { p50: second, p99: two, ..Budget::default() }), Some(("p99", 0.99, 2_000_000_000)));
        assert_eq!(limits(Budget { p50: second, ..Budget::default() }), Some(("p50", 0.5, 1_000_000_000)));
    }

    #[test]
    fn a_series_with_reports_is_not() {
        let said = diagnosed(|n| {
            let mut exchange = unreported(n);
            let ns = exchange.account.stage_ns(Stage::Upstream);
            exchange.account = lapwing_ledger::Account::default();
            exchange.account.add(Stage::Forward, Source::Reported, ns);
            exchange
        });
        assert!(said.inferred.is_none() && said.capacity.is_none());
    }
}
