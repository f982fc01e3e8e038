//! The split as the aggregator feeds it: exchanges of both sides, in the order in which they end, by a clock of the test's own.

mod runs;

use std::num::NonZeroU32;

use super::*;
use crate::seeded_random::SeededRandom;
use lapwing_ledger::{ExchangeKind, Ledger, Outcome, SeriesKey, UpstreamWindow, merge};
use lapwing_settings::ConfigCell;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// A request that a split placed.
#[derive(Clone, Copy, Debug)]
struct Placed {
    key: u32,
    is_candidate: bool,
    started: Stamp,
    ns: u64,
    outcome: Outcome,
}

struct Fixture {
    cell: ConfigCell<Config>,
    split: LiveSplit,
    traffic: Arc<TrafficSplit>,
    series: [SeriesKey; 2],
}

fn config(text: &str) -> Config {
    serde_json::from_str(text).unwrap()
}

impl Fixture {
    fn new(text: &str) -> Self {
        let cell = ConfigCell::new(config(text));
        let labels = Arc::new(Labels::new(8, 8, 8));
        let traffic = Arc::new(TrafficSplit::new("int8", "header:x-user".parse().unwrap()));
        let route = labels.routes.intern("POST /x");
        let series =
            ["fp32", "int8"].map(|name| SeriesKey { route, model: LabelId::OTHER, upstream: labels.upstreams.intern(name) });
        let split = LiveSplit::new(traffic.clone(), cell.handle(), series[1].upstream, labels, at(0));
        Self { cell, split, traffic, series }
    }

    fn take(&mut self, one: Placed) {
        let mut ledger = Ledger::open(one.started, 0);
        (ledger.outcome, ledger.total_ns) = (one.outcome, one.ns);
        ledger.series = self.series[usize::from(one.is_candidate)];
        ledger.window = Some(UpstreamWindow { start_ns: 0, head_ns: one.ns, end_ns: one.ns });
        ledger.split_key = NonZeroU32::new(one.key);
        self.split.take(&merge(ledger, Vec::new()), one.started.plus(one.ns));
    }

    fn report(&self) -> LatencyReport {
        self.split.judge.all.total().unwrap()
    }
}

fn at(ns: u64) -> Stamp {
    Stamp::default().plus(ns)
}

/// The `n`th request, a millisecond after the one before, of a key of its own; the candidate has every other one.
fn nth(n: u64, ns: u64) -> Placed {
    let key = u32::try_from(n + 1).unwrap();
    Placed { key, is_candidate: n % 2 == 1, started: at(n * MS), ns, outcome: Outcome::Ok }
}

#[test]
fn neighbours_by_their_start_are_matched_whatever_the_order_of_their_ends() {
    let mut fixture = Fixture::new(r#"{"candidate": "int8"}"#);
    // each pair of neighbours takes as long as the other one of it, and no other pair does
    let mut requests: Vec<_> = (0..100).map(|n| nth(n, 10 * MS + (n / 2 * 7 % 50) * 3 * MS)).collect();
    requests.sort_by_key(|one| one.started.plus(one.ns));
    requests.into_iter().for_each(|one| fixture.take(one));
    fixture.split.tick(at(5 * SECOND));
    let report = fixture.report();
    assert_eq!((report.pairs, report.ties), (50, 50), "{report:?}");
    assert_eq!(fixture.split.snapshot(at(5 * SECOND)).out_of_order, 0);
}

#[test]
fn outputs_that_differ_with_confidence_stop_it_and_too_few_keep_it_from_rising() {
    let settings =
        r#"{"candidate": "int8", "ramp": ["10%", "50%"], "step": "20s", "compare": true, "stop_on": {"mismatch": "5%"}}"#;
    // of a hundred outputs, so many differ; every fifth cannot be judged
    let run = |differing: u64, compared_each: u64| {
        let (mut fixture, mut random) = (Fixture::new(settings), SeededRandom::new(11));
        for n in 0..60_000 {
            fixture.take(nth(n, MS + n * 7_919 % MS));
            if n % compared_each == 0 {
                let (of, key) = (n / compared_each, NonZeroU32::new(u32::try_from(n + 1).unwrap()).unwrap());
                let judged = if random.next() % 100 < differing { OutputResult::Mismatch } else { OutputResult::Same };
                let result = if of % 5 == 4 { OutputResult::Unjudged } else { judged };
                fixture.split.take_outputs(key, result, at(n * MS));
            }
            if n % 20 == 0 {
                fixture.split.tick(at(n * MS));
            }
        }
        let snapshot = fixture.split.snapshot(at(60 * SECOND));
        let outputs = snapshot.outputs.unwrap();
        assert!(outputs.unjudged * 4 <= outputs.compared + 4 && outputs.left_out == 0, "{outputs:?}");
        (snapshot.status.share, snapshot.stopped, snapshot.doubts)
    };
    assert_eq!(run(2, 10), (0.5, None, None));
    let (share, stopped, doubts) = run(20, 10);
    assert!(share == 0.0 && stopped.as_ref().unwrap().contains("compared outputs differ"), "{share} {stopped:?} {doubts:?}");
    let (share, stopped, doubts) = run(0, 6_000);
    assert_eq!((share, stopped), (0.1, None), "eight outputs in a minute");
    assert_eq!(doubts.as_deref(), Some("outputs of 8 keys were compared; it takes 20"));
}

#[test]
fn of_each_key_one_output_in_a_block_counts() {
    let mut fixture = Fixture::new(r#"{"candidate": "int8", "compare": true}"#);
    let key = NonZeroU32::new(7).unwrap();
    (0..50).for_each(|n| fixture.split.take_outputs(key, OutputResult::Mismatch, at(n * MS)));
    let outputs = fixture.split.snapshot(at(SECOND)).outputs.unwrap();
    // its block may end meanwhile
    assert!((1..=2).contains(&outputs.compared) && outputs.compared + outputs.left_out == 50, "{outputs:?}");
}

#[test]
fn what_comes_late_is_judged_and_counted() {
    let mut fixture = Fixture::new(r#"{"candidate": "int8"}"#);
    (1..20).for_each(|n| fixture.take(nth(n, 10 * MS)));
    fixture.split.tick(at(5 * SECOND));
    fixture.take(nth(0, 20 * SECOND));
    fixture.take(Placed { key: 99, ..nth(0, 20 * SECOND) });
    let snapshot = fixture.split.snapshot(at(21 * SECOND));
    assert_eq!((snapshot.out_of_order, snapshot.status.judged, fixture.report().pairs), (2, 21, 10));
    // from now on they are held longer
    fixture.take(Placed { key: 100, started: at(21 * SECOND), ..nth(2, 10 * MS) });
    fixture.split.tick(at(40 * SECOND));
    assert_eq!(fixture.split.judge.counts.judged, 21);
    fixture.split.tick(at(51 * SECOND));
    assert_eq!(fixture.split.judge.counts.judged, 22);
}

#[test]
fn what_is_held_is_bounded() {
    let mut fixture = Fixture::new(r#"{"candidate": "int8"}"#);
    (0..20_000).for_each(|n| fixture.take(Placed { started: at(n * 1_000), ..nth(n, MS) }));
    let counts = fixture.split.judge.counts;
    assert_eq!((counts.judged, counts.early), (20_000 - 16_384, 20_000 - 16_384));
}

#[test]
fn what_says_nothing_of_a_side_is_left_out() {
    let mut fixture = Fixture::new(r#"{"candidate": "int8"}"#);
    let of = |outcome: Outcome, n: u64| Placed { outcome, ..nth(n, MS) };
    (0..3).for_each(|n| fixture.take(of(Outcome::Cancelled, n)));
    [Outcome::Shed, Outcome::Rejected].into_iter().for_each(|outcome| fixture.take(of(outcome, 5)));
    fixture.take(Placed { key: 0, ..nth(7, MS) });
    fixture.take(of(Outcome::ClientError, 8));
    fixture.take(of(Outcome::ServerError, 9));
    fixture.take(nth(10, MS));
    fixture.split.tick(at(2 * SECOND));
    let snapshot = fixture.split.snapshot(at(2 * SECOND));
    assert_eq!((snapshot.baseline.left, snapshot.candidate.left), (2, 1));
    let of_side = |side: &SplitSide| (side.judged, side.failed);
    assert_eq!((of_side(&snapshot.baseline), of_side(&snapshot.candidate)), ((2, 1), (1, 1)));
    let report = fixture.report();
    assert_eq!((report.pairs, report.candidate_failed), (1, 1), "what the caller is to blame for has no latency");
    let mut stream = Ledger::open(at(0), 0);
    (stream.kind, stream.split_key) = (ExchangeKind::Stream, NonZeroU32::new(77));
    fixture.split.take(&merge(stream, Vec::new()), at(0));
    assert!(fixture.split.judge.counts.judged == 3);
}

#[test]
fn a_reload_of_the_same_settings_changes_nothing_and_of_others_begins_anew() {
    let ramp = |last: &str| {
        format!(r#"{{"candidate": "int8", "ramp": ["10%", "{last}"], "step": "60s", "stop_on": {{"errors": "1%"}}}}"#)
    };
    let mut fixture = Fixture::new(&ramp("50%"));
    for n in 0..70_000 {
        fixture.take(nth(n, MS + n * 7_919 % MS));
        if n % 20 == 0 {
            fixture.split.tick(at(n * MS));
        }
    }
    assert_eq!(fixture.split.status().share, 0.5, "{:?}", fixture.split.findings);
    fixture.cell.replace(config(&ramp("50%")));
    fixture.split.tick(at(80 * SECOND));
    assert_eq!((fixture.split.status().share, fixture.split.status().judged > 60_000), (0.5, true));
    fixture.cell.replace(config(&ramp("60%")));
    fixture.split.tick(at(90 * SECOND));
    assert_eq!((fixture.split.status().share, fixture.split.status().judged), (0.1, 0));
    fixture.cell.replace(config(r#"{"candidate": "int8", "share": "0%"}"#));
    fixture.split.tick(at(100 * SECOND));
    assert_eq!(fixture.split.status().share, 0.0);
    assert_eq!(fixture.traffic.assigned(SplitAssignment::Candidate), 0);
}
