//! Windows, overflow, conservation over rotations, and quantiles against a plain `hdrhistogram`.

mod budget;
mod debt;
mod retire;
mod work;

use proptest::prelude::*;

use super::*;
use crate::layout::{HIGH_NS, Layout};
use crate::measure::Measure;
use crate::snapshot::HistogramScratch;
use lapwing_ledger::{Account, ClippedReports, Generation, LabelId, Ledger, Outcome, Source, Stage, UpstreamWindow};

const SECOND: u64 = 1_000_000_000;

fn registry(config: Config) -> Registry {
    Registry::new(config, Arc::new(Labels::new(1_000, 1_000, 1_000)), Arc::new(Counters::default()))
}

fn key(registry: &Registry, route: &str) -> SeriesKey {
    SeriesKey { route: registry.labels.routes.intern(route), ..SeriesKey::default() }
}

/// An exchange whose first quarter is reported as forward, and the rest unattributed.
fn exchange(series: SeriesKey, total_ns: u64) -> Exchange {
    let mut ledger = Ledger::open(Stamp::default(), 0);
    (ledger.series, ledger.outcome, ledger.total_ns) = (series, Outcome::Ok, total_ns);
    ledger.window = Some(UpstreamWindow { start_ns: 0, head_ns: 0, end_ns: total_ns });
    let mut account = Account::default();
    account.add(Stage::Forward, Source::Reported, total_ns / 4);
    account.add(Stage::Unattributed, Source::Observed, total_ns - total_ns / 4);
    Exchange {
        ledger: ledger.into(),
        account,
        traced: Vec::new(),
        claimed_ns: total_ns / 4,
        clipped: ClippedReports::default(),
        is_incomplete: false,
        optimal_forward: None,
    }
}

fn with_outcome(outcome: Outcome, total_ns: u64) -> Exchange {
    let mut exchange = exchange(SeriesKey::default(), total_ns);
    exchange.ledger.outcome = outcome;
    exchange
}

/// Every series with traffic in `window`, by route, model and upstream.
fn snapshot(registry: &Registry, window: Window) -> Vec<SeriesSnapshot> {
    let mut series = registry.series(window, 0..registry.places());
    series.sort_by(|a, b| (&a.route, &a.model, &a.upstream).cmp(&(&b.route, &b.model, &b.upstream)));
    series
}

fn counted(registry: &Registry, window: Window) -> u64 {
    snapshot(registry, window).iter().map(|s| s.figures.count()).sum()
}

#[test]
fn a_mended_exchange_replaces_itself_where_it_stands_and_the_difference_is_counted() {
    let mut registry = registry(Config { recent_exchanges: 2, slowest_exchanges: 1, ..Config::default() });
    let series = key(&registry, "a");
    let now = Stamp::now();
    let of = |span: u8, total_ns: u64, queue_ns: u64| {
        let mut e = exchange(series, total_ns);
        e.ledger.span = lapwing_ledger::SpanId([span; 8]);
        e.account = Account::default();
        e.account.add(Stage::Queue, Source::Traced, queue_ns);
        e.account.add(Stage::Forward, Source::Traced, total_ns - queue_ns);
        e
    };
    (1..=4).for_each(|n| registry.record_recent(of(n, if n == 1 { 900 } else { 100 }, 0), now, 0));
    registry.mend(of(4, 100, 30));
    registry.mend(of(4, 100, 50));
    registry.mend(of(1, 900, 400)); // among the slowest only
    registry.mend(of(2, 100, 100)); // in neither list
    registry.mend(of(3, 100, 0)); // nothing changed
    let queue = |e: &Arc<Exchange>| (e.ledger.span.0[0], e.account.stage_ns(Stage::Queue));
    assert_eq!(registry.exchanges(Order::Recent, 9).iter().map(queue).collect::<Vec<_>>(), [(4, 50), (3, 0)]);
    assert_eq!(registry.exchanges(Order::Slowest, 9).iter().map(queue).collect::<Vec<_>>(), [(1, 400)]);
    let figures = &snapshot(&registry, Window::All)[0].figures;
    assert_eq!((figures.count(), figures.mended, figures.mended_ns), (4, 3, 30 + 20 + 400));
    assert_eq!(figures.extent(Measure::Stage(Stage::Forward)).sum_ns, 1_200, "what was recorded stays");
    registry.rotate(now.plus(2 * SECOND));
    registry.mend(of(4, 100, 100));
    registry.rotate(now.plus(4 * SECOND));
    assert_eq!(snapshot(&registry, Window::All)[0].figures.mended, 4, "also where no exchange came since");
}

#[test]
fn a_mended_exchange_keeps_its_gaps_between_tokens() {
    let mut registry = registry(Config::default());
    let series = key(&registry, "a");
    let with_gaps = |gaps_us: &[u32]| {
        let mut e = exchange(series, 100);
        e.ledger.generation = Some(Box::new(Generation { gaps_us: gaps_us.to_vec(), ..Generation::default() }));
        e
    };
    registry.record_recent(with_gaps(&[5, 6]), Stamp::now(), 0);
    registry.mend(with_gaps(&[]));
    for order in [Order::Recent, Order::Slowest] {
        assert_eq!(registry.exchanges(order, 1)[0].ledger.generation, with_gaps(&[5, 6]).ledger.generation);
    }
}

#[test]
fn windows_hold_their_length_and_at_most_one_slot_more() {
    let mut registry = registry(Config::default());
    let opened = Stamp::now();
    let one = exchange(SeriesKey::default(), 1_000_000);
    for tick in 1..=400_u64 {
        registry.record(&one); // one for each 2 s
        registry.rotate(opened.plus(tick * 2 * SECOND));
        let reaches = |seconds: u64| (seconds / 2).min(tick);
        for (window, seconds, slot) in [(Window::TenSeconds, 10, 1), (Window::OneMinute, 60, 5), (Window::FiveMinutes, 300, 5)] {
            let count = counted(&registry, window);
            assert!(count >= reaches(seconds), "{window:?} holds {count} at tick {tick}");
            assert!(count <= reaches(seconds) + slot, "{window:?} holds {count} at tick {tick}");
        }
        assert_eq!(counted(&registry, Window::All), tick);
    }
}

#[test]
fn what_was_recorded_since_the_last_rotation_is_in_every_window() {
    let mut registry = registry(Config::default());
    registry.rotate(Stamp::now().plus(2 * SECOND));
    registry.record(&exchange(SeriesKey::default(), 5_000));
    assert!(Window::ALL.into_iter().all(|w| counted(&registry, w) == 1));
}

#[test]
fn an_idle_series_leaves_the_windows_and_gives_its_slots_back() {
    let mut registry = registry(Config::default());
    registry.record(&exchange(SeriesKey::default(), 5_000));
    let opened = Stamp::now();
    (1..=200).for_each(|tick| registry.rotate(opened.plus(tick * 2 * SECOND)));
    assert_eq!(Window::ALL.map(|w| counted(&registry, w)), [0, 0, 0, 1]);
    assert_eq!(registry.series[0].slots(), (0, 0));
}

#[test]
fn past_the_bound_series_are_counted_as_other() {
    let mut registry = registry(Config { max_series: 3, ..Config::default() });
    for n in 0..50 {
        let key = key(&registry, &format!("GET /{n}"));
        (0..=n).for_each(|_| registry.record(&exchange(key, 1_000_000)));
    }
    let series = snapshot(&registry, Window::All);
    let counts: Vec<_> = series.iter().map(|s| (&*s.route, s.figures.count())).collect();
    let beyond: u64 = (3..50).map(|n| n + 1).sum();
    assert_eq!(counts, [("GET /0", 1), ("GET /1", 2), ("GET /2", 3), ("other", beyond)]);
    assert_eq!((registry.places(), registry.fill()), (4, (3, beyond)));
}

#[test]
fn slots_stay_few_under_steady_traffic() {
    let mut registry = registry(Config::default());
    let opened = Stamp::now();
    for tick in 1..=1_000_u64 {
        registry.record(&exchange(SeriesKey::default(), tick * 10_000));
        registry.rotate(opened.plus(tick * 2 * SECOND));
        let (fine, coarse) = registry.series[0].slots();
        assert!(fine <= 10 && coarse <= 31, "{fine} fine and {coarse} coarse slots");
    }
    assert!(registry.touched.is_empty());
}

#[test]
fn each_exchange_is_in_the_histogram_of_its_fate() {
    let mut registry = registry(Config::default());
    Outcome::ALL.into_iter().for_each(|outcome| registry.record(&with_outcome(outcome, 8_000)));
    let mut stream = with_outcome(Outcome::Cancelled, 9_000);
    (stream.ledger.kind, stream.ledger.request_bytes, stream.ledger.response_bytes) = (ExchangeKind::Stream, 3, 4);
    registry.record(&stream);
    let series = snapshot(&registry, Window::All);
    let figures = &series[0].figures;
    let of = |measure| figures.extent(measure).count;
    assert_eq!([of(Measure::Total), of(Measure::Cancelled), of(Measure::Failed), of(Measure::Stream)], [3, 1, 6, 1]);
    assert_eq!((of(Measure::Stage(Stage::Forward)), figures.count(), figures.errors()), (3, 11, 8));
    assert_eq!((figures.stream_request_bytes, figures.stream_response_bytes), (3, 4));
    assert_eq!(figures.coverage(), Some(0.25));
}

#[test]
fn what_is_above_the_bounds_is_clipped_and_counted() {
    let mut registry = registry(Config::default());
    registry.record(&exchange(SeriesKey::default(), 3 * HIGH_NS));
    assert_eq!(registry.counters.get(Counter::ValuesClipped), 2, "the total and one of two stages");
    let series = snapshot(&registry, Window::All).remove(0);
    let total = series.distribution(Measure::Total, &mut HistogramScratch::default());
    assert_eq!((total.max_ns, total.mean_ns), (3 * HIGH_NS, 3 * HIGH_NS));
}

#[test]
fn the_latest_are_kept_in_order_and_streams_are_not_among_the_slowest() {
    let mut registry = registry(Config { recent_exchanges: 3, slowest_exchanges: 2, ..Config::default() });
    for total in [5, 9, 1, 7] {
        registry.record_recent(exchange(SeriesKey::default(), total), Stamp::now(), 0);
    }
    let mut stream = exchange(SeriesKey::default(), 100);
    stream.ledger.kind = ExchangeKind::Stream;
    registry.record_recent(stream, Stamp::now(), 0);
    let totals = |order, limit| registry.exchanges(order, limit).iter().map(|e| e.ledger.total_ns).collect::<Vec<_>>();
    assert_eq!((totals(Order::Recent, 9), totals(Order::Recent, 2)), (vec![100, 7, 1], vec![100, 7]));
    assert_eq!(totals(Order::Slowest, 9), [9, 7]);
    let mut none = self::registry(Config { recent_exchanges: 0, slowest_exchanges: 0, ..Config::default() });
    none.record_recent(exchange(SeriesKey::default(), 5), Stamp::now(), 0);
    assert!(none.exchanges(Order::Recent, 9).is_empty() && none.exchanges(Order::Slowest, 9).is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Record(u32, u64),
    Rotate(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..5_u32, 0..60_u32, any::<u64>()).prop_map(|(series, bits, n)| Step::Record(series, n & ((1 << bits) - 1))),
        1 => (1..15_u64).prop_map(|seconds| Step::Rotate(seconds * SECOND)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_count_is_lost_or_made_by_rotating(steps in proptest::collection::vec(any_step(), 1..200)) {
        let mut registry = registry(Config { max_series: 3, ..Config::default() });
        let mut now = Stamp::now();
        let mut sum: u128 = 0;
        let mut since: Vec<Stamp> = Vec::new();
        for step in &steps {
            match step {
                Step::Record(series, ns) => {
                    let name = key(&registry, &series.to_string()).route;
                    prop_assert!(*series == 0 || name != LabelId::OTHER);
                    registry.record(&exchange(SeriesKey { route: name, ..SeriesKey::default() }, *ns));
                    sum += u128::from(*ns);
                    since.push(now);
                }
                Step::Rotate(ns) => {
                    now = now.plus(*ns);
                    registry.rotate(now);
                }
            }
        }
        for (window, seconds) in [(Window::TenSeconds, 10), (Window::OneMinute, 60), (Window::FiveMinutes, 300)] {
            let inside = since.iter().filter(|at| now.since(**at) < seconds * SECOND).count() as u64;
            let count = counted(&registry, window);
            prop_assert!(inside <= count && count <= since.len() as u64, "{:?}: {} of {}", window, count, inside);
        }
        for window in Window::ALL {
            for series in snapshot(&registry, window) {
                for measure in Measure::all() {
                    let in_cells: u64 = series.counts(measure).map(|(_, n)| n).sum();
                    prop_assert_eq!(in_cells, series.figures.extent(measure).count, "{:?} {:?}", window, measure);
                }
            }
        }
        let all = snapshot(&registry, Window::All);
        prop_assert_eq!(all.iter().map(|s| s.figures.count()).sum::<u64>(), since.len() as u64);
        let sums: u128 = all.iter().map(|s| u128::from(s.figures.extent(Measure::Total).sum_ns)).sum();
        prop_assert!(sums == sum || sum > u128::from(u64::MAX));
    }

    #[test]
    fn figures_are_those_of_a_plain_histogram(
        values in proptest::collection::vec((8..42_u32, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1)), 1..400),
        rotations in proptest::collection::vec(0..400_usize, 0..6),
    ) {
        let mut registry = registry(Config::default());
        let mut plain = Layout::Time.histogram();
        let mut now = Stamp::now();
        for (i, ns) in values.iter().enumerate() {
            registry.record(&exchange(SeriesKey::default(), *ns));
            plain.saturating_record(*ns);
            if rotations.contains(&i) {
                now = now.plus(2 * SECOND);
                registry.rotate(now);
            }
        }
        let series = snapshot(&registry, Window::All).remove(0);
        let total = series.distribution(Measure::Total, &mut HistogramScratch::default());
        let max = values.iter().copied().max().unwrap_or(0);
        for (q, said) in [(0.5, total.p50_ns), (0.9, total.p90_ns), (0.99, total.p99_ns), (0.999, total.p999_ns)] {
            prop_assert_eq!(said, plain.value_at_quantile(q).min(max), "quantile {}", q);
        }
        prop_assert_eq!((total.count, total.max_ns), (values.len() as u64, max));
        prop_assert_eq!(u128::from(total.mean_ns), values.iter().map(|v| u128::from(*v)).sum::<u128>() / values.len() as u128);
        let mut scratch = HistogramScratch::default();
        let restored = series.fill(Measure::Total, &mut scratch);
        prop_assert!(restored.iter_recorded().eq(plain.iter_recorded()));
    }

    #[test]
    fn buckets_hold_every_duration_where_it_belongs(
        values in proptest::collection::vec((10..41_u32, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1)), 1..200),
    ) {
        use crate::buckets::REQUEST_BOUNDS_NS;
        let mut registry = registry(Config::default());
        values.iter().for_each(|ns| registry.record(&exchange(SeriesKey::default(), *ns)));
        let buckets = snapshot(&registry, Window::All)[0].buckets(Measure::Total, REQUEST_BOUNDS_NS);
        let mut cumulative = 0;
        for (bound, count) in REQUEST_BOUNDS_NS.iter().zip(&buckets) {
            cumulative += count;
            let within = |ns: u64| values.iter().filter(|v| **v <= ns).count() as u64;
            prop_assert!(within(*bound) <= cumulative && cumulative <= within(bound + bound / 1_000 + 512));
        }
        prop_assert_eq!(buckets.iter().sum::<u64>(), values.len() as u64);
    }
}
