//! The words, the exit code and the flags, with diagnoses made by hand.

use super::words::ROUTES;
use super::*;
use lapwing_diagnosis::{
    BoundVerdict, Cause, Evidence, FailureKind, FailureVerdict, GapCause, HostLoad, LatencyBound, LeverAdvice, MeasuredBudget,
    Missing, RouteDiagnosis, RouteOutcomes, TailShare, TelemetryGap,
};

fn verdict() -> BoundVerdict {
    BoundVerdict {
        bound: LatencyBound::Queue,
        cause: Cause::Bursts,
        share: 0.612,
        share_interval: [0.55, 0.667],
        confidence: 0.98,
        doubt: None,
        sentence: "61 % of the time above budget is queue in the upstream".to_owned(),
        evidence: vec![
            Evidence { what: "requests in a burst".into(), value: 40.0, unit: "requests".into(), threshold: Some(8.0) },
            Evidence { what: "time between bursts".into(), value: 10.25, unit: "seconds".into(), threshold: None },
            Evidence { what: "p99 over p50".into(), value: 3.4, unit: "ratio".into(), threshold: Some(2.0) },
            Evidence { what: "hits".into(), value: 0.25, unit: "ratio".into(), threshold: None },
            Evidence { what: "arrivals".into(), value: f64::NAN, unit: "per second".into(), threshold: None },
        ],
        fixes: vec!["raise instances".into(), "more hardware".into()],
        rule: "queue-bursts".to_owned(),
    }
}

fn slow() -> RouteDiagnosis {
    let stage = |stage: &str, share_of_excess| TailShare {
        stage: stage.to_owned(),
        body_ns: 1e6,
        tail_ns: 4e7,
        share_of_p50: 0.1,
        share_of_p99: 0.5,
        share_of_excess,
        excess_interval: [share_of_excess - 0.05, share_of_excess + 0.05],
    };
    RouteDiagnosis {
        route: "POST /v2/models/{model}/infer".to_owned(),
        model: "ranker".to_owned(),
        upstream: "http://u".to_owned(),
        requests: 3000,
        p50_ns: 40_000_000,
        p99_ns: 212_000_000,
        budget: Some(MeasuredBudget {
            quantile: "p99".to_owned(),
            limit_ns: 200_000_000,
            measured_ns: 212_000_000,
            excess_ns: 1_500_000_000,
        }),
        status: Status::OverBudget,
        summary: "p99 is 212 ms against a budget of 200 ms.".to_owned(),
        verdicts: vec![verdict()],
        missing: vec![Missing { what: "the server's batches".into(), how: "poll its statistics".into() }],
        tail: vec![stage("forward", 0.2), stage("queue", 0.6), stage("ingress", -0.02)],
        exchanges: vec!["4bf92f3577b34da6a3ce929d0e0e4736".to_owned()],
        ..RouteDiagnosis::default()
    }
}

fn of(status: Status, requests: u64) -> RouteDiagnosis {
    RouteDiagnosis { route: "GET /x".to_owned(), requests, status, ..RouteDiagnosis::default() }
}

fn all(routes: Vec<RouteDiagnosis>) -> Diagnosis {
    Diagnosis { window_seconds: 300.0, routes, ..Diagnosis::default() }
}

#[test]
fn a_verdict_reads_with_its_numbers_and_fixes() {
    let text = words(&all(vec![slow(), of(Status::Healthy, 5)]));
    let expected = "\
POST /v2/models/{model}/infer, model ranker (http://u): over budget
  3000 requests, p50 40.0 ms, p99 212 ms; budget p99 200 ms, measured 212 ms, 1.50 s above it in all
  p99 is 212 ms against a budget of 200 ms.
  1. queue-bound (bursts): 61.2 % of the time in question (55.0 % to 66.7 %), confidence 98.0 %; rule queue-bursts
     61 % of the time above budget is queue in the upstream
     - requests in a burst: 40 requests, held against 8 requests
     - time between bursts: 10.2 s
     - p99 over p50: 3.40×, held against 2×
     - hits: 25.0 %
     - arrivals: not known
     first: raise instances
     then: more hardware
  not known: the server's batches; poll its statistics
  queue             1.00 ms around the median,  40.0 ms in the tail: 60.0 % of the excess (55.0 % to 65.0 %)
  forward           1.00 ms around the median,  40.0 ms in the tail: 20.0 % of the excess (15.0 % to 25.0 %)
  see /exchanges?trace_id=4bf92f3577b34da6a3ce929d0e0e4736

GET /x (): healthy
  5 requests, p50 0 ns, p99 0 ns
";
    assert_eq!(text, expected);
}

#[test]
fn a_sentence_that_the_summary_has_is_not_repeated() {
    let mut route = slow();
    route.summary = format!("Over. {}.", route.verdicts[0].sentence);
    let text = words(&all(vec![route]));
    assert_eq!(text.matches("is queue in the upstream").count(), 1, "{text}");
}

#[test]
fn an_empty_diagnosis_says_so() {
    assert_eq!(words(&all(Vec::new())), "not enough evidence: no request of this kind in the last 300 s\n");
}

#[test]
fn what_is_missing_and_how_requests_end_come_first() {
    let failure = |is_trouble, sentence: &str| FailureVerdict {
        kind: FailureKind::UpstreamFailing,
        is_trouble,
        count: 4,
        of: 4,
        share: 1.0,
        share_interval: [0.5, 1.0],
        mean_seconds: 0.1,
        latest_seconds_ago: Some(2.0),
        sentence: sentence.to_owned(),
        fixes: vec!["read its log".to_owned()],
        exchanges: vec!["4bf9".to_owned()],
    };
    let mut route = of(Status::Failing, 0);
    route.outcomes =
        RouteOutcomes { ended: 4, well: 0, failures: vec![failure(true, "it fails: 4 of 4"), failure(false, "so do few")] };
    let gap = TelemetryGap {
        cause: GapCause::SpansUnmatched,
        sentence: "650 of 650 spans".to_owned(),
        count: 650,
        of: Some(650),
        change: "continue traceparent".to_owned(),
    };
    let host = HostLoad { busy_share: 0.5, steal_share: 0.0, pressure_share: None };
    let lever = LeverAdvice {
        lever: "dispatch".to_owned(),
        sentence: "dispatch would take 31 % off\u{202e}".to_owned(),
        change: "set dispatch.mode to on".to_owned(),
        gain: 0.31,
        requests: 2_048,
        covered_seconds: 40.0,
    };
    let text = words(&Diagnosis {
        missing: vec![gap],
        levers: vec![lever],
        host: Some(host),
        ..all(vec![route, of(Status::SlowTail, 9)])
    });
    let expected = "\
missing: 650 of 650 spans
  change: continue traceparent

dispatch would take 31 % off\\u{202e}: set dispatch.mode to on

GET /x (): failing
  ! it fails: 4 of 4; the latest 2.00 s ago
     first: read its log
     see /exchanges?trace_id=4bf9
  - so do few; the latest 2.00 s ago
  no request ended well

GET /x (): slow tail (no budget; held against three times what requests of the same work usually take)
  9 requests, p50 0 ns, p99 0 ns

processors of this machine: 50.0 % busy, 0.0 % taken by the hypervisor; the kernel does not count how often a process waited for one (no PSI)
";
    assert_eq!(text, expected);
}

#[test]
fn a_bound_is_named_once() {
    use LatencyBound::{ColdStart, Network, Pauses};
    let named = [(Pauses, Cause::Pauses), (ColdStart, Cause::ColdStart), (Network, Cause::SlowClient), (Network, Cause::Unknown)];
    let named = named.map(|(bound, cause)| bound.words(cause));
    assert_eq!(named, ["pauses-bound", "cold-start-bound", "network-bound (slow client)", "network-bound"]);
}

#[test]
fn words_are_bounded_and_move_no_cursor() {
    let hostile = "\x1b[2J\u{202e}\n".repeat(200);
    let mut route = slow();
    for text in [&mut route.route, &mut route.model, &mut route.upstream, &mut route.summary] {
        text.clone_from(&hostile);
    }
    let mut bad = verdict();
    (bad.sentence, bad.rule, bad.fixes) = (hostile.clone(), hostile.clone(), vec![hostile.clone(); 20]);
    bad.evidence = vec![Evidence { what: hostile.clone(), value: 1.5, unit: hostile.clone(), threshold: Some(-1.0) }; 20];
    route.verdicts = vec![bad; 8];
    route.missing = vec![Missing { what: hostile.clone(), how: hostile.clone() }; 20];
    route.exchanges = vec![hostile.clone(); 20];
    route.tail.iter_mut().for_each(|of| of.stage.clone_from(&hostile));
    let text = words(&all(vec![route; ROUTES + 8]));
    assert!(text.chars().all(|char| char == '\n' || !char.is_control()) && !text.contains('\u{202e}'));
    assert!(text.len() < 2 << 20, "{}", text.len());
    assert!(text.ends_with("\n8 more routes lost less time; as JSON they are all there\n"));
}

#[test]
fn scripts_are_told_by_the_exit_code() {
    use Status::{Failing, Healthy, NotEnoughEvidence, OverBudget, SlowTail};
    for (routes, code) in [
        (vec![], NOT_ENOUGH_EVIDENCE),
        (vec![of(Healthy, 9)], HEALTHY),
        (vec![of(NotEnoughEvidence, 9)], NOT_ENOUGH_EVIDENCE),
        (vec![of(OverBudget, 9)], OVER_BUDGET),
        (vec![of(Healthy, 1000), of(NotEnoughEvidence, 1000), of(OverBudget, 1)], OVER_BUDGET),
        (vec![of(Healthy, 1000), of(SlowTail, 1)], OVER_BUDGET),
        (vec![of(OverBudget, 1000), of(Failing, 0)], FAILING),
        // a probe of 5 % of the requests does not hide the verdict, the half of the traffic does
        (vec![of(Healthy, 95), of(NotEnoughEvidence, 5)], HEALTHY),
        (vec![of(Healthy, 94), of(NotEnoughEvidence, 6)], NOT_ENOUGH_EVIDENCE),
        (vec![of(Healthy, 0), of(NotEnoughEvidence, 0)], NOT_ENOUGH_EVIDENCE),
        (vec![of(Healthy, u64::MAX), of(Healthy, u64::MAX)], HEALTHY),
    ] {
        assert_eq!(exit_code(&all(routes.clone())), code, "{routes:?}");
    }
}

#[test]
fn an_answer_reads_back_as_it_was_written() {
    let mut diagnosis = all(vec![slow()]);
    diagnosis.routes[0].verdicts[0].evidence.pop();
    assert_eq!(read(&serde_json::to_vec(&diagnosis).unwrap()), Ok(diagnosis));
    assert!(read(b"<html>").unwrap_err().starts_with("the answer is not that of /diagnosis: "));
    assert!(read(b"{\"series\": []}").is_err());
}

#[test]
fn the_flags_are_read() {
    #[derive(clap::Parser, Debug)]
    struct Line {
        #[command(flatten)]
        args: DiagnoseArgs,
    }
    let parsed = |line: &str| <Line as clap::Parser>::try_parse_from(line.strip_prefix("lapwing ").unwrap().split(' '));
    let args = |line: &str| parsed(line).unwrap().args;
    let plain = args("lapwing diagnose");
    assert_eq!((plain.window, plain.wait, plain.json, plain.admin.address()), (None, None, false, "127.0.0.1:9464"));
    let full = args("lapwing diagnose --admin :1 --wait 1m30s --window 10s --json --token-file t");
    assert_eq!((full.window.as_deref(), full.wait, full.json), (Some("10s"), Some(Period::from_secs(90)), true));
    for wrong in ["--wait 5", "--wait soon", "--window all", "--window 2m"] {
        assert!(parsed(&format!("lapwing diagnose {wrong}")).is_err(), "{wrong}");
    }
}
