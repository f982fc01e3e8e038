//! Computational debt: what has one, what has none and why, and that series of several processes add up.

use std::num::NonZeroU64;

use proptest::prelude::*;

use super::super::*;
use crate::{DebtGap, DebtTotals, HistogramScratch, Measure, RatioExtent};
use lapwing_ledger::{Account, Basis, ClippedReports, LabelId, Ledger, OptimalForward, Outcome, Source, Stage, Unit, Work};

fn registry() -> Registry {
    Registry::new(Config::default(), Arc::new(Labels::new(10, 10, 10)), Arc::new(Counters::default()))
}

fn optimum(registry: &Registry, name: &str) -> LabelId {
    registry.labels.optima.intern(name)
}

/// An answered request of `rows` rows with this forward, whose optimum takes `optimum_ps`.
fn exchange(optimum: LabelId, rows: u64, (stage, source, ns): (Stage, Source, u64), optimum_ps: u64) -> Exchange {
    let mut ledger = Ledger::open(Stamp::default(), 0);
    (ledger.outcome, ledger.total_ns, ledger.work.primary) = (Outcome::Ok, ns, Some(Unit::Row));
    ledger.work.set(Unit::Row, rows, Basis::Counted);
    let mut account = Account::default();
    account.add(stage, source, ns);
    let optimal_forward = Some(OptimalForward { optimum, ps: NonZeroU64::new(optimum_ps) });
    let clipped = ClippedReports::default();
    Exchange { ledger: ledger.into(), account, traced: Vec::new(), claimed_ns: 0, clipped, is_incomplete: false, optimal_forward }
}

const fn reported(ns: u64) -> (Stage, Source, u64) {
    (Stage::Forward, Source::Reported, ns)
}

fn only(registry: &Registry) -> SeriesSnapshot {
    registry.series(Window::All, 0..registry.places()).remove(0)
}

fn debt(registry: &Registry) -> DebtTotals {
    only(registry).figures.debt().cloned().unwrap()
}

#[test]
fn only_a_reported_or_traced_forward_has_a_debt() {
    let mut registry = registry();
    let of = optimum(&registry, "a");
    for timed in [
        reported(3_000),
        (Stage::Forward, Source::Traced, 1_000),
        // undivided, and measured by the proxy itself
        (Stage::Upstream, Source::Observed, 9_000),
        (Stage::Forward, Source::Observed, 9_000),
    ] {
        registry.record(&exchange(of, 4, timed, 500_000));
    }
    let found = debt(&registry);
    assert_eq!((found.forward_ns, found.optimum_ps, found.excess_ps), (4_000, 1_000_000, 3_000_000));
    assert_eq!((found.gaps, found.class(2)), ([2, 0, 0], RatioExtent { count: 2, sum_ppm: 8_000_000, max_ppm: 6_000_000 }));
    assert_eq!(found.weighted(), Some(4.0));
    let (series, mut scratch) = (only(&registry), HistogramScratch::default());
    assert_eq!(series.optimum.as_deref(), Some("a"));
    let all = series.debt(None, &mut scratch).unwrap();
    assert_eq!((all.count, all.mean, all.max), (2, 4.0, 6.0));
    assert!((2.0..2.002).contains(&all.p50) && series.debt(Some(3), &mut scratch).is_none(), "{all:?}");
}

#[test]
fn requests_without_an_optimum_cost_nothing_and_count_nowhere() {
    let mut registry = registry();
    registry.record(&Exchange { optimal_forward: None, ..exchange(LabelId::OTHER, 4, reported(9), 1) });
    let mut failed = exchange(optimum(&registry, "a"), 4, reported(9), 1);
    failed.ledger.outcome = Outcome::Broken;
    registry.record(&failed);
    let series = only(&registry);
    assert_eq!((series.figures.debt(), series.optimum), (None, None));
}

#[test]
fn each_reason_is_counted() {
    let mut registry = registry();
    let (of, other) = (optimum(&registry, "a"), optimum(&registry, "b"));
    registry.record(&exchange(of, 4, reported(1_000), 500_000));
    registry.record(&exchange(of, 4, reported(1_000), 0)); // its work is not known in the unit of the optimum
    registry.record(&exchange(of, 0, reported(1_000), 500_000)); // no class
    registry.record(&exchange(other, 4, reported(1_000), 500_000));
    let mut tokens = exchange(of, 4, reported(1_000), 500_000);
    tokens.ledger.work = Work::default();
    tokens.ledger.work.primary = Some(Unit::InputToken);
    tokens.ledger.work.set(Unit::InputToken, 9, Basis::Counted);
    registry.record(&tokens);
    let found = debt(&registry);
    let gap = |gap: DebtGap| found.gaps[gap as usize];
    assert_eq!([gap(DebtGap::Forward), gap(DebtGap::Work), gap(DebtGap::Mixed)], [0, 2, 2]);
    assert_eq!(found.ratios().count, 1);
}

proptest! {
    /// However requests are split over processes, the sum of their debts is that of one process; and nothing is lost: what is above
    /// the optimum less what is below is the difference of the sums.
    #[test]
    fn debts_add_up(requests in proptest::collection::vec((1..200_u64, 1..1_000_000_u64, 1..1_000_000_000_u64, any::<bool>()), 1..80)) {
        let (mut whole, mut parts) = (registry(), [registry(), registry()]);
        let mut now = Stamp::now();
        for (rows, forward_ns, optimum_ps, is_first) in &requests {
            let part = &mut parts[usize::from(*is_first)];
            for registry in [&mut whole, part] {
                let of = optimum(registry, "a");
                registry.record(&exchange(of, *rows, reported(*forward_ns), *optimum_ps));
            }
            now = now.plus(2_000_000_000);
            whole.rotate(now);
        }
        let (all, mut sum, mut cells) = (only(&whole), DebtTotals::default(), std::collections::BTreeMap::new());
        for part in &parts {
            for series in part.series(Window::All, 0..part.places()) {
                sum.merge(series.figures.debt().unwrap());
                for measure in (0..Work::CLASSES).map(Measure::Debt) {
                    series.counts(measure).for_each(|(value, n)| *cells.entry((measure.index(), value)).or_insert(0) += n);
                }
            }
        }
        prop_assert_eq!(all.figures.debt(), Some(&sum));
        let of = (0..Work::CLASSES).map(Measure::Debt);
        let counts: Vec<_> = of.flat_map(|m| all.counts(m).map(move |(value, n)| ((m.index(), value), n)).collect::<Vec<_>>()).collect();
        prop_assert_eq!(counts, cells.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(sum.ratios().count, requests.len() as u64);
        let difference = u128::from(sum.forward_ns) * 1_000 + sum.below_ps;
        prop_assert_eq!(difference, sum.optimum_ps + sum.excess_ps);
        prop_assert_eq!(sum.below, requests.iter().filter(|(_, ns, ps, _)| ns * 1_000 < *ps).count() as u64);
    }
}
