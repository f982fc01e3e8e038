//! Which exchanges are sent, and how many they represent.

use super::*;
use lapwing_ledger::{CopyCause, PairId, SamplingThreshold};
use lapwing_metrics::Counter;

/// Every error, everything over budget, and of the rest what the share takes, within three standard deviations of it.
#[test]
fn what_has_a_reason_is_always_taken_and_weights_add_up_to_all() {
    const ALL: u64 = 20_000;
    let setup = Setup::new();
    let share = 0.05;
    let (mut sampler, mut queued) = setup.sampler(share);
    let mut taken = Vec::new();
    let (mut errors, mut over) = (0_u64, 0_u64);
    for n in 0..ALL {
        let (outcome, total) = match n % 100 {
            0 => (Outcome::ServerError, 5 * MS),
            1 => (Outcome::ClientError, 5 * MS),
            2 => (Outcome::Ok, 150 * MS),
            3 => (Outcome::Cancelled, 5 * MS),
            _ => (Outcome::Ok, 5 * MS),
        };
        errors += u64::from(outcome.is_error());
        over += u64::from(total > 100 * MS);
        sampler.offer(&setup.exchange(ROUTE, trace(n), outcome, total), Stamp::from_ns(1).unwrap());
        taken.extend(drain(&mut queued));
    }
    let of = |reason| taken.iter().filter(|one| one.reason == reason).count() as u64;
    assert_eq!((of(SamplingReason::Error), of(SamplingReason::OverBudget)), (errors, over));
    let rest = (ALL - errors - over) as f64;
    let (drawn, sigma) = (of(SamplingReason::Share) as f64, (rest * share * (1.0 - share)).sqrt());
    assert!((drawn - rest * share).abs() <= 3.0 * sigma, "{drawn} of {rest}, σ {sigma}");
    let threshold = SamplingThreshold::of_share(share);
    let chosen = |one: &&SampledExchange| one.reason == SamplingReason::Share;
    assert!(
        taken.iter().filter(chosen).all(|one| threshold.samples(one.exchange.ledger.trace) && one.threshold == Some(threshold))
    );
    let estimated: f64 = taken.iter().filter_map(|one| Some(one.threshold?.adjusted_count())).sum();
    assert!((estimated - ALL as f64).abs() <= 3.0 * sigma / share, "{estimated}");
    assert!(taken.iter().all(|one| (one.reason == SamplingReason::OverBudget) == (one.over_budget == ["p99"])));
    assert_eq!(setup.counters.get(Counter::TracesDropped), 0);
}

#[test]
fn the_slowest_of_each_route_in_a_minute_is_sent_once_and_counts_for_nothing() {
    let setup = Setup::new();
    let (mut sampler, mut queued) = setup.sampler(0.0);
    let start = Stamp::now();
    for (n, total) in [3, 9, 4].into_iter().enumerate() {
        sampler.offer(&setup.exchange(ROUTE, trace(n as u64), Outcome::Ok, total * MS), start);
    }
    sampler.offer(&setup.exchange("GET /b", trace(7), Outcome::Ok, MS), start);
    // sent for its own reason already, and slower than all others of its route
    sampler.offer(&setup.exchange("GET /c", trace(8), Outcome::Ok, MS), start);
    sampler.offer(&setup.exchange("GET /c", trace(9), Outcome::ServerError, 2 * MS), start);
    assert_eq!(drain(&mut queued).len(), 1);
    sampler.tick(start.plus(59_000 * MS));
    assert!(drain(&mut queued).is_empty());
    sampler.tick(start.plus(61_000 * MS));
    let mut slowest = drain(&mut queued);
    slowest.sort_by_key(|one| one.exchange.ledger.total_ns);
    let seen: Vec<_> = slowest.iter().map(|one| (one.reason, one.threshold, one.exchange.ledger.total_ns)).collect();
    assert_eq!(seen, [(SamplingReason::Slowest, None, MS), (SamplingReason::Slowest, None, 9 * MS)]);
    sampler.flush();
    assert!(drain(&mut queued).is_empty(), "each once");
}

#[test]
fn a_pair_whose_outputs_differ_is_sent_when_that_is_known() {
    let setup = Setup::new();
    let (mut sampler, mut queued) = setup.sampler(0.0);
    let pair = |n| PairId::new(n).unwrap();
    for n in 1..=3 {
        let mut exchange = setup.exchange(ROUTE, trace(n), Outcome::Ok, n * MS);
        (exchange.ledger.pair, exchange.ledger.copied) = (Some(pair(n)), Some(CopyCause::Share));
        sampler.offer(&exchange, Stamp::now());
    }
    sampler.mismatch(pair(3));
    sampler.mismatch(pair(3));
    sampler.mismatch(pair(9));
    let sent = drain(&mut queued);
    assert_eq!((sent.len(), sent[0].reason, sent[0].exchange.ledger.pair), (1, SamplingReason::ShadowMismatch, Some(pair(3))));
    sampler.flush();
    assert!(drain(&mut queued).is_empty(), "the slowest was sent as a mismatch");
    // of more than 1024 that wait the oldest gives way
    for n in 10..=1_034 {
        let mut exchange = setup.exchange("GET /b", trace(n), Outcome::Ok, MS);
        (exchange.ledger.pair, exchange.ledger.copied) = (Some(pair(n)), Some(CopyCause::Share));
        sampler.offer(&exchange, Stamp::now());
    }
    sampler.mismatch(pair(10));
    sampler.mismatch(pair(11));
    assert_eq!(drain(&mut queued).len(), 1);
}

#[test]
fn a_full_queue_costs_exchanges_and_each_is_counted() {
    let setup = Setup::new();
    let (mut sampler, mut queued) = setup.sampler(1.0);
    for n in 0..3_000 {
        sampler.offer(&setup.exchange(ROUTE, trace(n), Outcome::Ok, MS), Stamp::now());
    }
    let kept = drain(&mut queued).len() as u64;
    assert!((1_000..=2_048).contains(&kept), "{kept}");
    assert_eq!(setup.counters.get(Counter::TracesDropped), 3_000 - kept);
    // an exchange without a trace has no place in a backend of traces
    sampler.offer(&setup.exchange(ROUTE, TraceId::default(), Outcome::Ok, MS), Stamp::now());
    assert!(drain(&mut queued).is_empty());
}
