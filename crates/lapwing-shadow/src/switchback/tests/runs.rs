//! Whole trials under load that is not independent from request to request: it drifts by the second and by the minute, and has bursts and outages. The long
//! runs are for `tests/run --long`:
//!
//! ```sh
//! cargo test --release -p lapwing-shadow --lib switchback::tests::runs -- --ignored --nocapture
//! ```

use super::*;
use crate::seeded_random::SeededRandom;

/// What moves besides the lever.
#[derive(Clone, Copy, Debug)]
struct Load {
    per_second: u64,
    /// The spread of the logarithm of a request's time; 0.3: p99 is twice p50.
    spread: f64,
    /// Drifts: how long each remembers, in seconds, and its spread.
    drifts: [(f64, f64); 2],
    /// Bursts: how many in an hour, in each of which requests take three times as long for 5 s, and a tenth fail.
    bursts: f64,
    /// Of a thousand requests, how many fail.
    failing: u64,
}

const CALM: Load = Load { per_second: 200, spread: 0.3, drifts: [(0.5, 0.1), (30.0, 0.0)], bursts: 0.0, failing: 2 };
const DRIFTING: Load = Load { drifts: [(0.5, 0.14), (30.0, 0.1)], ..CALM };
const BURSTS: Load = Load { bursts: 120.0, ..DRIFTING };
const SLOW_DRIFT: Load = Load { drifts: [(20.0, 0.2), (300.0, 0.3)], ..CALM };

/// What a lever does.
#[derive(Clone, Copy, Debug)]
struct Effect {
    slower: f64,
    failing: u64,
}

const NONE: Effect = Effect { slower: 1.0, failing: 0 };
const TENTH: Effect = Effect { slower: 1.1, ..NONE };

/// When a trial stopped, in seconds, and why; and whether any verdict said better or worse at any time within `seconds`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "nanoseconds of some milliseconds"
)]
fn run(settings: &str, load: Load, effect: Effect, seconds: u64, seed: u64) -> (Option<(u64, String)>, bool) {
    let (mut fixture, mut random) = (Fixture::new(settings, seed ^ 0x5bd1), SeededRandom::new(seed));
    let mut drifts = load.drifts.map(|(_, spread)| spread * random.normal());
    let (mut burst_until, mut is_decided) = (0, false);
    for n in 0..load.per_second * seconds {
        let started = n * SECOND / load.per_second;
        for (drift, (memory, spread)) in drifts.iter_mut().zip(load.drifts) {
            let keeps = (-1.0 / (memory * load.per_second as f64)).exp();
            *drift = keeps * *drift + (1.0 - keeps * keeps).sqrt() * spread * random.normal();
        }
        if random.uniform() < load.bursts / 3_600.0 / load.per_second as f64 {
            burst_until = started + 5 * SECOND;
        }
        let is_on = fixture.is_on();
        let mut ms = 20.0 * (drifts.iter().sum::<f64>() + load.spread * random.normal()).exp();
        let mut failing = load.failing;
        if started < burst_until {
            (ms, failing) = (3.0 * ms, failing + 100);
        }
        if is_on {
            (ms, failing) = (effect.slower * ms, failing + effect.failing);
        }
        let outcome = if random.next() % 1_000 < failing { Outcome::ServerError } else { Outcome::Ok };
        fixture.send(request(started, (ms * MS as f64) as u64, outcome));
        if n % (load.per_second / 10) == 0 {
            fixture.tick(started);
            let before = fixture.trials.running.as_ref().map(|trial| trial.verdicts());
            is_decided |=
                before.is_some_and(|all| all.iter().any(|one| matches!(one, TrialVerdict::Better | TrialVerdict::Worse)));
            if fixture.trials.status().is_some_and(|status| status.is_stopped) {
                let TrialState::Stopped(reason) = fixture.snapshot(started).state else { continue };
                return (Some((started / SECOND, reason)), is_decided);
            }
        }
    }
    (None, is_decided)
}

const DEFAULTS: &str = r#"{"lever": "least_requests", "max_time": "2h"}"#;
const FIVE_SECONDS: &str = r#"{"lever": "least_requests", "block": "5s", "drop": "1s", "max_time": "2h"}"#;

const TWO_SECONDS: &str = r#"{"lever": "least_requests", "block": "2s", "drop": "200ms", "max_time": "2h"}"#;

#[test]
fn a_lever_that_does_nothing_goes_on() {
    for seed in 0..3 {
        assert_eq!(run(FIVE_SECONDS, BURSTS, NONE, 200, seed), (None, false));
    }
}

#[test]
fn a_tenth_slower_is_found_and_turned_off() {
    let (second, reason) = run(FIVE_SECONDS, CALM, TENTH, 300, 1).0.expect("it stops");
    assert!(reason.contains("p50 is 1."), "{second} s: {reason}");
}

#[test]
fn failures_of_a_few_are_found() {
    let (second, reason) = run(FIVE_SECONDS, CALM, Effect { failing: 50, ..NONE }, 300, 1).0.expect("it stops");
    assert!(reason.contains("errors is +"), "{second} s: {reason}");
}

#[test]
#[ignore = "minutes: tests/run --long"]
fn two_hundred_runs_of_what_does_nothing_stop_rarely() {
    for (name, load) in [("calm", CALM), ("drifting", DRIFTING), ("bursts", BURSTS), ("slow drift", SLOW_DRIFT)] {
        // fewer requests a second only make the runs shorter
        let load = Load { per_second: 50, ..load };
        for (blocks, settings, seconds) in [("20 s", DEFAULTS, 3_600), ("5 s", FIVE_SECONDS, 1_200), ("2 s", TWO_SECONDS, 600)] {
            let runs: Vec<_> = (0..200).map(|seed| run(settings, load, NONE, seconds, seed)).collect();
            let stops = runs.iter().filter(|(stopped, _)| stopped.is_some()).count();
            let decided = runs.iter().filter(|(_, is_decided)| *is_decided).count();
            println!("nothing, {name}, blocks of {blocks}, {seconds} s: {stops} of 200 stopped, {decided} better or worse");
            assert!(decided <= 10, "{name}");
        }
    }
}

#[test]
#[ignore = "minutes: tests/run --long"]
fn two_hundred_runs_of_what_is_a_tenth_slower_stop_within_five_minutes() {
    for (name, load) in [("calm", CALM), ("drifting", DRIFTING), ("bursts", BURSTS), ("slow drift", SLOW_DRIFT)] {
        for (blocks, settings) in [("20 s", DEFAULTS), ("5 s", FIVE_SECONDS), ("2 s", TWO_SECONDS)] {
            let mut seconds: Vec<u64> =
                (0..200).map(|seed| run(settings, load, TENTH, 900, seed).0.map_or(901, |(second, _)| second)).collect();
            seconds.sort_unstable();
            let soon = seconds.iter().filter(|second| **second <= 300).count();
            println!(
                "+10 %, {name}, blocks of {blocks}: {soon} of 200 within 300 s; p50 {} s, p90 {} s (901: not in 900)",
                seconds[100], seconds[180]
            );
            assert!(name != "calm" || soon >= 180, "{soon}");
        }
    }
}
