//! Trials as the aggregator feeds them: closed ledgers in the order in which they end, by a clock of the test's own.

mod runs;

use std::collections::BTreeMap;

use super::*;
use crate::switchback::block::LogHistogram;
use lapwing_ledger::{ExchangeKind, Outcome, Unit};
use lapwing_settings::ConfigCell;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

struct Fixture {
    cell: ConfigCell<Config>,
    levers: Levers,
    trials: LeverTrials,
    /// Requests in flight by their end and a number.
    in_flight: BTreeMap<(u64, u64), Ledger>,
    sent: u64,
}

fn config(text: &str) -> Config {
    serde_json::from_str(text).unwrap()
}

fn at(ns: u64) -> Stamp {
    Stamp::default().plus(ns)
}

fn request(started: u64, ns: u64, outcome: Outcome) -> Ledger {
    let mut ledger = Ledger::open(at(started), 0);
    (ledger.outcome, ledger.total_ns) = (outcome, ns);
    ledger
}

impl Fixture {
    fn new(text: &str, seed: u64) -> Self {
        let cell = ConfigCell::new(config(text));
        let levers = Levers::default();
        let trials = LeverTrials::new(cell.handle(), levers.clone(), seed, at(0));
        Self { cell, levers, trials, in_flight: BTreeMap::new(), sent: 0 }
    }

    /// Whether `least_requests` is on; round robin is configured.
    fn is_on(&self) -> bool {
        self.levers.least_requests.is_on(false)
    }

    fn send(&mut self, ledger: Ledger) {
        self.sent += 1;
        self.in_flight.insert((ledger.started.as_ns() + ledger.total_ns, self.sent), ledger);
    }

    /// Takes what has ended by `now`, and looks.
    fn tick(&mut self, now: u64) {
        while self.in_flight.first_key_value().is_some_and(|((end, _), _)| *end <= now) {
            self.in_flight.pop_first().iter().for_each(|(_, ledger)| self.trials.take(ledger));
        }
        self.trials.tick(at(now));
    }

    /// Plays a request each `gap_ms` until `until`, looking every 20 ms; what it takes and how it ends depends on whether the lever is on.
    fn play(&mut self, from: u64, until: u64, gap_ms: u64, mut of: impl FnMut(bool, u64) -> (u64, Outcome)) {
        let mut now = from;
        while now < until {
            if (now - from).is_multiple_of(gap_ms * MS) {
                let (ns, outcome) = of(self.is_on(), now);
                self.send(request(now, ns, outcome));
            }
            if now.is_multiple_of(20 * MS) {
                self.tick(now);
            }
            now += MS;
        }
        self.tick(until);
    }

    fn snapshot(&self, now: u64) -> TrialSnapshot {
        self.trials.snapshot(at(now)).unwrap()
    }
}

const SHORT: &str = r#"{"lever": "least_requests", "block": "2s", "drop": "200ms"}"#;

#[test]
fn blocks_alternate_and_requests_count_where_they_began() {
    let unguarded = r#"{"p50_ratio": "off", "p99_ratio": "off", "errors": "off", "throughput_ratio": "off"}"#;
    let mut fixture = Fixture::new(&SHORT.replace('}', &format!(r#", "stop_on": {unguarded}}}"#)), 3);
    let mut seen = [0_u64; 2];
    fixture.play(0, 60 * SECOND, 10, |is_on, _| {
        seen[usize::from(!is_on)] += 1;
        (if is_on { 30 * MS } else { 10 * MS }, Outcome::Ok)
    });
    let snapshot = fixture.snapshot(60 * SECOND);
    assert!(seen.iter().all(|requests| *requests > 1_200), "{seen:?}");
    assert!(snapshot.on.blocks + snapshot.off.blocks >= 28 && snapshot.blocks.len() >= 28);
    let [on, off] = [&snapshot.on, &snapshot.off].map(|side| (side.p50_ns.unwrap() / 1e6, side.requests_per_s));
    // in bins of 0.8 %
    assert!((on.0 - 30.0).abs() < 0.3 && (off.0 - 10.0).abs() < 0.1, "{on:?} {off:?}");
    assert!((on.1 - 100.0).abs() < 3.0 && (off.1 - 100.0).abs() < 3.0, "{on:?} {off:?}");
    for block in &snapshot.blocks {
        let p50 = block.side.p50_ns.unwrap() / 1e6;
        assert!(if block.is_on { p50 > 25.0 } else { p50 < 12.0 }, "{block:?}");
    }
    let [judged_on, judged_off, dropped, outlasting] = snapshot.status.requests.map(|(_, n)| n);
    assert!(judged_on + judged_off + dropped + outlasting <= seen.iter().sum());
    assert!((500..700).contains(&dropped) && (20..200).contains(&outlasting), "{dropped} {outlasting}");
    assert!(snapshot.next_in_ns.unwrap() <= 2 * SECOND && snapshot.state != TrialState::Over);
}

#[test]
fn harm_turns_the_lever_off_for_good_and_a_changed_setting_begins_anew() {
    let mut fixture = Fixture::new(SHORT, 1);
    let harm = |is_on: bool, now: u64| (if is_on { 13 * MS } else { 10 * MS } + now % 7 * MS / 10, Outcome::Ok);
    fixture.play(0, 120 * SECOND, 10, harm);
    let snapshot = fixture.snapshot(120 * SECOND);
    let TrialState::Stopped(reason) = &snapshot.state else { panic!("{:?}", snapshot.state) };
    assert!(reason.contains("p50 is 1.") && reason.contains("the limit is 1×"), "{reason}");
    assert!(!fixture.is_on() && snapshot.status.is_stopped && !snapshot.status.is_on);
    assert!(!fixture.levers.least_requests.is_on(true), "whatever is configured");
    fixture.play(120 * SECOND, 130 * SECOND, 10, |is_on, _| {
        assert!(!is_on);
        (10 * MS, Outcome::Ok)
    });
    fixture.cell.replace(config(SHORT));
    fixture.trials.tick(at(140 * SECOND));
    assert!(fixture.trials.status().unwrap().is_stopped, "the same settings change nothing");
    fixture.cell.replace(config(r#"{"lever": "quick_ack"}"#));
    fixture.trials.tick(at(150 * SECOND));
    let status = fixture.trials.status().unwrap();
    assert!(status.lever == "quick_ack" && !status.is_stopped && fixture.levers.least_requests.is_on(true));
    fixture.cell.replace(config("{}"));
    fixture.trials.tick(at(160 * SECOND));
    assert!(fixture.trials.status().is_none() && fixture.trials.snapshot(at(160 * SECOND)).is_none());
    assert!(fixture.levers.quick_ack.is_on(true) && !fixture.levers.quick_ack.is_on(false));
}

#[test]
fn a_lever_with_which_everything_fails_is_off_at_once() {
    let mut fixture = Fixture::new(r#"{"lever": "least_requests"}"#, 5);
    let mut failed = 0;
    fixture.play(0, 300 * SECOND, 10, |is_on, _| {
        failed += u64::from(is_on);
        (MS, if is_on { Outcome::ServerError } else { Outcome::Ok })
    });
    let snapshot = fixture.snapshot(300 * SECOND);
    let TrialState::Stopped(reason) = &snapshot.state else { panic!("{:?}", snapshot.state) };
    assert!(reason.starts_with("most requests failed in each of 2 blocks in which it was on"), "{reason}");
    assert!(failed <= 2 * 24, "{failed} requests");
    let mut outage = Fixture::new(r#"{"lever": "least_requests"}"#, 5);
    outage.play(0, 300 * SECOND, 10, |_, _| (MS, Outcome::Unreachable));
    assert_eq!(outage.snapshot(300 * SECOND).state, TrialState::Running, "it is not the lever's fault");
    assert!(outage.snapshot(300 * SECOND).doubts.iter().any(|doubt| doubt.contains("most of their requests failed")));
}

#[test]
fn a_trial_ends_by_itself_with_its_verdicts() {
    let mut fixture = Fixture::new(r#"{"lever": "least_requests", "block": "1s", "drop": "0s", "max_time": "200s"}"#, 2);
    fixture.play(0, 205 * SECOND, 5, |is_on, now| (if is_on { 8 * MS } else { 10 * MS } + now % 11 * MS / 20, Outcome::Ok));
    let snapshot = fixture.snapshot(205 * SECOND);
    assert_eq!((&snapshot.state, snapshot.next_in_ns, fixture.is_on()), (&TrialState::Over, None, false));
    assert!(fixture.levers.least_requests.is_on(true), "it is as configured");
    let verdicts = snapshot.effects.map(|effect| effect.verdict);
    assert_eq!(verdicts[0], TrialVerdict::Better, "{:?}", snapshot.effects);
    assert_eq!(verdicts[2], TrialVerdict::Same, "{:?}", snapshot.effects);
    assert_eq!(snapshot.doubts, Vec::<String>::new());
}

#[test]
fn what_says_nothing_of_a_side_is_left_out() {
    let mut fixture = Fixture::new(r#"{"lever": "least_requests", "block": "10s"}"#, 1);
    let took = |started: u64, ns: u64, outcome| request(started, ns, outcome);
    for (started, ns, outcome) in [
        (SECOND, MS, Outcome::Ok), // in the beginning of its block
        (3 * SECOND, MS, Outcome::Rejected),
        (3 * SECOND, MS, Outcome::Cancelled),
        (3 * SECOND, MS, Outcome::ClientError),
        (3 * SECOND, MS, Outcome::Shed),
        (4 * SECOND, 2 * MS, Outcome::Ok),
    ] {
        fixture.trials.take(&took(started, ns, outcome));
    }
    let mut work = took(5 * SECOND, 2 * MS, Outcome::Ok);
    work.work.set(Unit::Row, 8, lapwing_ledger::Basis::Counted);
    work.work.primary = Some(Unit::Row);
    fixture.trials.take(&work);
    for set in [|ledger: &mut Ledger| ledger.kind = ExchangeKind::Stream, |ledger: &mut Ledger| ledger.is_copy = true] {
        let mut ledger = took(3 * SECOND, MS, Outcome::Ok);
        set(&mut ledger);
        fixture.trials.take(&ledger);
    }
    fixture.trials.tick(at(10 * SECOND));
    fixture.trials.take(&took(9 * SECOND, 1_500 * MS, Outcome::Ok));
    fixture.trials.tick(at(11 * SECOND));
    fixture.trials.take(&took(9 * SECOND, 5 * SECOND, Outcome::Ok));
    let snapshot = fixture.snapshot(12 * SECOND);
    let block = &snapshot.blocks[0].side;
    assert_eq!((block.requests, block.failed, block.units, block.left, block.outlasting), (4, 2, 8, 1, 1));
    assert_eq!(block.requests_per_s, 0.5);
    let counted = snapshot.status.requests;
    assert_eq!((counted[2], counted[3]), (("dropped", 1), ("outlasting", 2)));
    assert!(snapshot.doubts[0].contains("p50: 1 of 1 blocks have too few requests"), "{:?}", snapshot.doubts);
    assert_eq!(LogHistogram::default().total(), 0);
}
