//! Pairs whose sides come in any order, late, or never.

use super::*;
use lapwing_compare::ab::LatencyReport;
use lapwing_ledger::merge;
use lapwing_ledger::{CopyCause, LabelTable, Ledger, Outcome, Report, ReportPlace, SeriesKey, Stage, UpstreamWindow};

const MS: u64 = 1_000_000;

/// A label; the same number gives the same one.
fn label(n: u64) -> LabelId {
    let table = LabelTable::new(4096);
    (0..=n).map(|i| table.intern(&i.to_string())).fold(LabelId::OTHER, |_, label| label)
}

/// One exchange of a pair, with a window of so many milliseconds, of which the model takes all but one.
pub(crate) fn exchange(pair: u64, ms: u64, outcome: Outcome) -> Exchange {
    let mut ledger = Ledger::open(Stamp::default(), 0);
    (ledger.pair, ledger.outcome, ledger.total_ns) = (PairId::new(pair), outcome, (ms + 1) * MS);
    ledger.copied = (pair > 0).then_some(CopyCause::Share);
    ledger.window = Some(UpstreamWindow { start_ns: 0, head_ns: ms * MS, end_ns: ms * MS });
    if outcome == Outcome::Ok {
        ledger.report(Report::of(Stage::Forward, (ms - 1) * MS, ReportPlace::Head));
    }
    merge(ledger, Vec::new())
}

fn copy(pair: u64, ms: u64, outcome: Outcome, target: u64) -> Exchange {
    let mut exchange = exchange(pair, ms, outcome);
    exchange.ledger.is_copy = true;
    exchange.ledger.series.upstream = label(target);
    exchange
}

fn at(ms: u64) -> Stamp {
    Stamp::default().plus(ms * MS)
}

fn table() -> PairTable {
    PairTable::new(vec![label(0), label(1)], 10_000 * MS, at(0))
}

/// The only card's report of a figure.
fn report(pairs: &PairTable, target: usize, figure: PairFigure) -> Option<LatencyReport> {
    let snapshot = pairs.target(target);
    let [card] = &snapshot.cards[..] else { return None };
    card.figures.iter().find(|(of, _)| *of == figure).map(|(_, report)| report.clone())
}

#[test]
fn both_orders_make_the_same_pair() {
    for primary_first in [true, false] {
        let mut pairs = table();
        let (primary, copy) = (exchange(1, 10, Outcome::Ok), copy(1, 5, Outcome::Ok, 0));
        if primary_first {
            pairs.primary(&primary, at(0));
            pairs.copy(&copy, at(5));
            pairs.outputs(PairId::new(1).unwrap(), 0, OutputResult::Mismatch, at(6));
        } else {
            pairs.outputs(PairId::new(1).unwrap(), 0, OutputResult::Mismatch, at(0));
            pairs.copy(&copy, at(5));
            pairs.primary(&primary, at(6));
        }
        for figure in [PairFigure::Total, PairFigure::Stage(Stage::Forward)] {
            let report = report(&pairs, 0, figure).unwrap();
            assert_eq!((report.pairs, report.wins, report.losses), (1, 1, 0), "{figure:?}");
        }
        let outputs = report(&pairs, 0, PairFigure::Total).unwrap().mismatches;
        assert_eq!((outputs.compared, outputs.mismatches), (1, 1));
        assert_eq!(report(&pairs, 0, PairFigure::Stage(Stage::Queue)), None, "neither side told it");
        assert_eq!((pairs.paired(0), pairs.paired(1), pairs.unpaired()), (1, 0, 0));
    }
}

#[test]
fn one_request_has_a_pair_with_each_target() {
    let mut pairs = table();
    pairs.copy(&copy(1, 5, Outcome::Ok, 0), at(0));
    pairs.primary(&exchange(1, 10, Outcome::Ok), at(1));
    pairs.copy(&copy(1, 20, Outcome::Ok, 1), at(2));
    let wins = |target| report(&pairs, target, PairFigure::Total).map(|report| (report.wins, report.losses));
    assert_eq!((wins(0), wins(1)), (Some((1, 0)), Some((0, 1))));
}

#[test]
fn a_quick_error_is_no_win() {
    let mut pairs = table();
    for (pair, outcome) in
        [(1, Outcome::ServerError), (2, Outcome::Unreachable), (3, Outcome::Cancelled), (4, Outcome::ClientError)]
    {
        pairs.primary(&exchange(pair, 10, Outcome::Ok), at(0));
        pairs.copy(&copy(pair, 1, outcome, 0), at(1));
    }
    pairs.primary(&exchange(5, 10, Outcome::ServerError), at(0));
    pairs.copy(&copy(5, 10, Outcome::Ok, 0), at(1));
    pairs.primary(&exchange(6, 10, Outcome::ServerError), at(0));
    pairs.copy(&copy(6, 10, Outcome::ServerError, 0), at(1));
    let total = report(&pairs, 0, PairFigure::Total).unwrap();
    assert_eq!((total.wins, total.losses, total.candidate_failed, total.baseline_failed, total.both_failed), (1, 4, 4, 1, 1));
    let forward = report(&pairs, 0, PairFigure::Stage(Stage::Forward)).unwrap();
    assert_eq!((forward.candidate_failed, forward.baseline_failed, forward.both_failed), (4, 1, 0));
}

#[test]
fn a_request_whose_client_left_says_nothing() {
    let mut pairs = table();
    pairs.primary(&exchange(1, 10, Outcome::Cancelled), at(0));
    pairs.copy(&copy(1, 5, Outcome::Ok, 0), at(1));
    pairs.tick(at(10_002));
    assert_eq!((pairs.paired(0), pairs.unpaired()), (0, 1));
    assert!(pairs.waiting.is_empty() && pairs.arrivals.is_empty());
}

#[test]
fn what_waits_is_bounded_in_time_and_number() {
    let mut pairs = table();
    for pair in 1..=MAX_WAITING as u64 + 100 {
        pairs.copy(&copy(pair, 5, Outcome::Ok, 0), at(0));
    }
    assert_eq!((pairs.waiting.len(), pairs.arrivals.len(), pairs.unpaired()), (MAX_WAITING, MAX_WAITING, 100));
    pairs.tick(at(10_000));
    assert_eq!(pairs.waiting.len(), MAX_WAITING, "not yet");
    pairs.tick(at(10_001));
    assert_eq!((pairs.waiting.len(), pairs.arrivals.len(), pairs.unpaired()), (0, 0, MAX_WAITING as u64 + 100));
}

#[test]
fn cards_are_bounded_and_the_rest_is_counted() {
    let mut pairs = table();
    let of_route = |mut exchange: Exchange, route: u64| {
        exchange.ledger.series = SeriesKey { route: label(route), ..exchange.ledger.series };
        exchange
    };
    for pair in 1..=MAX_CARDS as u64 + 10 {
        pairs.primary(&of_route(exchange(pair, 10, Outcome::Ok), pair), at(0));
        pairs.copy(&copy(pair, 5, Outcome::Ok, 0), at(1));
    }
    assert_eq!((pairs.cards.len(), pairs.overflowed()), (MAX_CARDS, 10));
    assert!(pairs.memory_bytes() < 64 << 20, "{}", pairs.memory_bytes());
}

#[test]
fn what_copies_cost_is_seen_in_requests_that_are_copied() {
    let mut pairs = table();
    for n in 0..200 {
        let (copied, plain) = (exchange(n + 1, 12, Outcome::Ok), exchange(0, 10, Outcome::Ok));
        pairs.primary(&copied, at(n * 10));
        pairs.primary(&plain, at(n * 10 + 5));
    }
    pairs.primary(&exchange(0, 1, Outcome::ServerError), at(2_001));
    let [card] = &pairs.contention()[..] else { panic!("one route") };
    let (figure, report) = &card.figures[0];
    assert_eq!((*figure, report.pairs, report.losses), (PairFigure::Total, 200, 200), "each request is used once");
    assert!(
        (report.baseline_ns.p50.value.unwrap() - 10e6).abs() < 1e5 && (report.candidate_ns.p50.value.unwrap() - 12e6).abs() < 1e5
    );
}
