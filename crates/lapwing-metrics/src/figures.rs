//! Exact values next to the histograms: counts, sums and maxima of one series over a period of time.
//!
//! All of them merge by addition (maxima and resolutions by the larger value), so slots of time add up to windows. Durations are
//! nanoseconds.

use super::budget::{RequestLimits, RouteBudget};
use super::debt::DebtTotals;
use super::goodput::{GoodputTotals, MissedBudget};
use super::measure::{Measure, slots};
use super::sparse::Sparse;
use super::sums::{Extent, UnitExtent, WorkSum};
use lapwing_ledger::{Exchange, LabelId, Outcome, PerUnit, Phase, Source, Stage, Unit};

/// Exact counts, sums and maxima of one series over a period of time: about 900 bytes, plus 24 for each measure that occurred, 64
/// for each per-unit slot and 48 for each unit of work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesTotals {
    /// Every exchange by outcome: these sum to [`Self::count`].
    pub outcomes: [u64; Outcome::COUNT],
    /// The number of answered requests that have a stage, by stage and then by source.
    pub sources: [[u64; Source::COUNT]; Stage::COUNT],
    /// The same by phase.
    pub phase_sources: [[u64; Source::COUNT]; Phase::COUNT],
    /// Requests, however they ended, that took longer than the budgets of their route, by quantile.
    pub over_budget: [u64; RouteBudget::QUANTILES.len()],
    /// Time claimed inside upstream windows of answered requests.
    pub claimed_ns: u64,
    /// Length of the upstream windows of answered requests.
    pub window_ns: u64,
    /// Reports and spans that were clipped, by cause in the order of [`by_cause`](lapwing_ledger::ClippedReports::by_cause).
    pub clipped: [u64; 3],
    /// Exchanges that lacked spans which exchanges like them have.
    pub incomplete: u64,
    /// Exchanges that late spans mended after they were recorded.
    pub mended: u64,
    /// The time that moved from one stage to another in them, in nanoseconds. The histograms keep it where it was.
    pub mended_ns: u64,
    /// Bytes that clients sent on streams.
    pub stream_request_bytes: u64,
    /// Bytes that clients received on streams.
    pub stream_response_bytes: u64,
    /// By stage, the coarsest resolution of its reports in nanoseconds; zero if all are exact.
    pub(crate) resolutions_ns: [u32; Stage::COUNT],
    extents: Sparse<Extent, { Measure::EXTENTS }>,
    per_unit: Sparse<UnitExtent, { PerUnit::COUNT }>,
    work: Sparse<WorkSum, { Unit::COUNT }>,
    /// Absent until a request has an optimum.
    debt: Option<Box<DebtTotals>>,
    /// Absent until a request has a budget.
    goodput: Option<Box<GoodputTotals>>,
}

impl SeriesTotals {
    /// The number of requests, however they ended, without streams.
    #[must_use]
    pub fn requests(&self) -> u64 {
        [Measure::Total, Measure::Cached, Measure::Cancelled, Measure::Failed].into_iter().map(|of| self.extent(of).count).sum()
    }

    /// The number of exchanges, whatever their outcome.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// Exchanges with an outcome that counts as an error.
    #[must_use]
    pub fn errors(&self) -> u64 {
        Outcome::ALL.into_iter().filter(|o| o.is_error()).map(|o| self.outcomes[o.index()]).sum()
    }

    /// The exact values of a measure of durations; those of per-unit measures are in [`Self::per_unit`], those of debts in
    /// [`Self::debt`].
    #[must_use]
    pub fn extent(&self, measure: Measure) -> Extent {
        self.extents.get(measure.index()).copied().unwrap_or_default()
    }

    /// The exact values of a per-unit slot.
    #[must_use]
    pub fn per_unit(&self, slot: PerUnit) -> UnitExtent {
        self.per_unit.get(slot.index()).copied().unwrap_or_default()
    }

    /// How many values the histogram of `measure` holds.
    #[must_use]
    pub fn values(&self, measure: Measure) -> u64 {
        match measure {
            Measure::PerUnit(slot) => self.per_unit(slot).count,
            Measure::Debt(class) => self.debt().map_or(0, |debt| debt.class(class).count),
            _ => self.extent(measure).count,
        }
    }

    /// The work that answered requests asked for, in each unit that is known for at least one.
    pub fn work(&self) -> impl Iterator<Item = (Unit, WorkSum)> {
        Unit::ALL.into_iter().filter_map(|unit| Some((unit, *self.work.get(unit.index())?)))
    }

    /// The computational debt; `None` if no request had an optimum.
    #[must_use]
    pub fn debt(&self) -> Option<&DebtTotals> {
        self.debt.as_deref()
    }

    /// The goodput; `None` if no request had a budget.
    #[must_use]
    pub fn goodput(&self) -> Option<&GoodputTotals> {
        self.goodput.as_deref()
    }

    /// The coarsest resolution of the reports of a stage, in nanoseconds; `None` if all are exact.
    #[must_use]
    pub fn resolution_ns(&self, stage: Stage) -> Option<u32> {
        Some(self.resolutions_ns[stage.index()]).filter(|ns| *ns > 0)
    }

    /// The share of the upstream windows that reports claim, `0..=1`; `None` if there was no window.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn coverage(&self) -> Option<f64> {
        (self.window_ns > 0).then(|| self.claimed_ns as f64 / self.window_ns as f64)
    }

    /// Adds the values of another period of time.
    pub fn merge(&mut self, other: &Self) {
        add(&mut self.outcomes, &other.outcomes);
        let sources = self.sources.iter_mut().chain(&mut self.phase_sources);
        for (mine, theirs) in sources.zip(other.sources.iter().chain(&other.phase_sources)) {
            add(mine, theirs);
        }
        for (mine, theirs) in self.resolutions_ns.iter_mut().zip(other.resolutions_ns) {
            *mine = theirs.max(*mine);
        }
        add(&mut self.over_budget, &other.over_budget);
        self.claimed_ns = self.claimed_ns.saturating_add(other.claimed_ns);
        self.window_ns = self.window_ns.saturating_add(other.window_ns);
        add(&mut self.clipped, &other.clipped);
        self.incomplete += other.incomplete;
        self.mended += other.mended;
        self.mended_ns = self.mended_ns.saturating_add(other.mended_ns);
        self.stream_request_bytes = self.stream_request_bytes.saturating_add(other.stream_request_bytes);
        self.stream_response_bytes = self.stream_response_bytes.saturating_add(other.stream_response_bytes);
        self.extents.merge(&other.extents, Extent::merge);
        self.per_unit.merge(&other.per_unit, UnitExtent::merge);
        self.work.merge(&other.work, WorkSum::merge);
        if let Some(debt) = other.debt() {
            self.debt.get_or_insert_default().merge(debt);
        }
        if let Some(goodput) = other.goodput() {
            self.goodput.get_or_insert_default().merge(goodput);
        }
    }

    /// Empty totals with room for everything that occurred in these, because the next period usually resembles the last.
    pub(crate) fn emptied(&self) -> Self {
        let (extents, per_unit, work) = (self.extents.emptied(), self.per_unit.emptied(), self.work.emptied());
        Self { extents, per_unit, work, ..Self::default() }
    }

    /// Reads a value from each cache line (64 bytes). The result has no meaning; the purpose is to load the lines.
    pub(crate) fn lines(&self) -> u64 {
        let extents = self.extents.list().iter().step_by(2).fold(self.outcomes[0], |all, extent| all ^ extent.count);
        let per_unit = self.per_unit.list().iter().fold(extents, |all, extent| all ^ extent.count);
        let work = self.work.list().iter().fold(per_unit, |all, sum| all ^ sum.requests[0]);
        let places = self.extents.line() ^ self.per_unit.line() ^ self.work.line();
        self.sources.iter().chain(&self.phase_sources).fold(work, |all, by_source| all ^ by_source[0]) ^ places ^ self.claimed_ns
    }

    /// Adds an exchange, and passes each value that belongs in a histogram to `each`, except the gaps between tokens, of which
    /// there may be thousands. `comparable` means that the request's work is counted in the series' own unit, so that time per
    /// unit and cost classes are valid; `optimum` is what the series' debt is compared with.
    pub(crate) fn record(
        &mut self,
        exchange: &Exchange,
        comparable: bool,
        optimum: Option<LabelId>,
        mut each: impl FnMut(Measure, u64),
    ) {
        let (ledger, measure) = (&exchange.ledger, Measure::of(exchange));
        self.outcomes[ledger.outcome.index()] += 1;
        add(&mut self.clipped, &exchange.clipped.by_cause().map(|(_, count)| u64::from(count)));
        self.incomplete += u64::from(exchange.is_incomplete);
        self.add(measure, ledger.total_ns, &mut each);
        match measure {
            Measure::Total => {
                self.record_stages(exchange, &mut each);
                if ledger.first_byte_ns > 0 {
                    self.add(Measure::FirstByte, ledger.first_byte_ns, &mut each);
                }
                self.record_generation(exchange, &mut each);
                self.record_work(exchange);
                if comparable {
                    self.record_per_unit(exchange, &mut each);
                }
                if exchange.optimal_forward.is_some() {
                    let debt = self.debt.get_or_insert_default().record(exchange, optimum, comparable);
                    debt.into_iter().for_each(|(class, ratio_ppm)| each(Measure::Debt(class), ratio_ppm));
                }
            }
            Measure::Cached => {
                self.record_stage(exchange, Stage::Cache, &mut each);
                self.record_phase(exchange, Phase::Coalesced, &mut each);
            }
            Measure::Stream => {
                self.stream_request_bytes = self.stream_request_bytes.saturating_add(ledger.request_bytes);
                self.stream_response_bytes = self.stream_response_bytes.saturating_add(ledger.response_bytes);
            }
            _ => {}
        }
    }

    /// Counts an exchange that took longer than a budget, and its goodput. Streams have none.
    pub(crate) fn count_over(&mut self, budget: &RouteBudget, limits: &RequestLimits, exchange: &Exchange) {
        if Measure::of(exchange) != Measure::Stream {
            if let Some(missed) = MissedBudget::of(exchange, limits) {
                self.goodput.get_or_insert_default().record(exchange, missed);
            }
            let over = budget.limits_ns.map(|limit_ns| u64::from(exchange.ledger.total_ns > limit_ns));
            add(&mut self.over_budget, &over);
        }
    }

    /// Counts a recorded exchange in which `moved_ns` moved from one stage to another.
    pub(crate) const fn mend(&mut self, moved_ns: u64) {
        self.mended += 1;
        self.mended_ns = self.mended_ns.saturating_add(moved_ns);
    }

    // always, because most callers know the measure, and so its place and layout: a twelfth of the instructions of a record
    #[inline(always)]
    fn add(&mut self, measure: Measure, value_ns: u64, each: &mut impl FnMut(Measure, u64)) {
        self.extents.at(measure.index()).record(value_ns);
        each(measure, value_ns);
    }

    // always, as `add`
    #[inline(always)]
    fn record_stage(&mut self, exchange: &Exchange, stage: Stage, each: &mut impl FnMut(Measure, u64)) {
        if let Some((ns, source)) = exchange.stage(stage) {
            self.sources[stage.index()][source.index()] += 1;
            self.add(Measure::Stage(stage), ns, each);
        }
    }

    #[inline(always)]
    fn record_phase(&mut self, exchange: &Exchange, phase: Phase, each: &mut impl FnMut(Measure, u64)) {
        if let Some((ns, source)) = exchange.phase(phase) {
            self.phase_sources[phase.index()][source.index()] += 1;
            self.add(Measure::Phase(phase), ns, each);
        }
    }

    fn record_stages(&mut self, exchange: &Exchange, each: &mut impl FnMut(Measure, u64)) {
        let ledger = &exchange.ledger;
        for stage in Stage::ALL {
            self.record_stage(exchange, stage, each);
        }
        for phase in Phase::ALL {
            self.record_phase(exchange, phase, each);
        }
        for report in ledger.reports.iter().filter(|r| r.resolution_ns > 1) {
            let coarsest = &mut self.resolutions_ns[report.stage.index()];
            *coarsest = report.resolution_ns.max(*coarsest);
        }
        if let Some(window) = ledger.window {
            self.claimed_ns = self.claimed_ns.saturating_add(exchange.claimed_ns);
            self.window_ns = self.window_ns.saturating_add(window.length_ns());
        }
    }

    fn record_generation(&mut self, exchange: &Exchange, each: &mut impl FnMut(Measure, u64)) {
        let Some(generation) = &exchange.ledger.generation else { return };
        let once = [
            (Measure::FirstToken, exchange.first_token_ns()),
            (Measure::PerOutputToken, exchange.per_output_token_ns()),
            (Measure::ServerFirstToken, generation.server_first_token_ns),
            (Measure::ServerPerOutputToken, generation.server_per_output_token_ns),
        ];
        for (measure, ns) in once {
            if let Some(ns) = ns {
                self.add(measure, ns, each);
            }
        }
        if !generation.gaps_us.is_empty() {
            let gaps = self.extents.at(Measure::InterToken.index());
            generation.gaps_us.iter().for_each(|us| gaps.record(gap_ns(*us)));
        }
    }

    fn record_work(&mut self, exchange: &Exchange) {
        let work = &exchange.ledger.work;
        for unit in Unit::ALL {
            if let Some((amount, basis)) = work.get(unit) {
                self.work.at(unit.index()).record(amount, basis);
            }
        }
    }

    fn record_per_unit(&mut self, exchange: &Exchange, each: &mut impl FnMut(Measure, u64)) {
        let ledger = &exchange.ledger;
        slots(exchange).for_each(|(slot, unit, ns, units)| {
            each(Measure::PerUnit(slot), self.per_unit.at(slot.index()).record(ns, units, unit));
        });
        if let Some(class) = ledger.work.class() {
            self.add(Measure::Class(class), ledger.total_ns, each);
        }
    }
}

/// What the series counted that gave way.
#[derive(Clone, Debug, Default)]
pub struct Retired {
    /// How many series.
    pub series: u64,
    /// What they counted together.
    pub totals: SeriesTotals,
}

/// A gap between tokens in nanoseconds.
pub(crate) const fn gap_ns(us: u32) -> u64 {
    us as u64 * 1_000
}

fn add<const N: usize>(mine: &mut [u64; N], theirs: &[u64; N]) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine += theirs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_as_small_as_said() {
        assert!(size_of::<SeriesTotals>() <= 896, "{}", size_of::<SeriesTotals>());
        assert_eq!((size_of::<Extent>(), size_of::<UnitExtent>(), size_of::<WorkSum>()), (24, 64, 48));
    }
}
