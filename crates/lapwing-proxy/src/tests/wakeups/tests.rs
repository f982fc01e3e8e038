//! Runs the model: some hundred cases of each mix of protocols, and by name as many as wanted. `LAPWING_WAKEUP_FIRST` is the first seed,
//! `LAPWING_WAKEUP_CASES` how many follow; `LAPWING_WAKEUP_TRACE` writes what happens in each to stderr.

use super::case::{Kind, Mix, run};

/// Seeds of each mix and kind in the normal run.
const CASES: u64 = 60;
/// And in the long one.
const MANY: u64 = 15_000;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs the cases of one mix of protocols, without and with a queue.
fn run_all(is_h2_client: bool, is_h2_upstream: bool, cases: u64) {
    for is_queued in [false, true] {
        run_mix(Mix { is_h2_client, is_h2_upstream, is_queued }, cases);
    }
}

fn run_mix(mix: Mix, cases: u64) {
    let (first, cases) = (variable("LAPWING_WAKEUP_FIRST").unwrap_or(0), variable("LAPWING_WAKEUP_CASES").unwrap_or(cases));
    let (mut steps, mut queued, mut faults) = (0, 0, Vec::new());
    for seed in first..first + cases {
        for kind in [Kind::Whole, Kind::Leaving] {
            match run(seed, mix, kind) {
                Ok((taken, waited)) => (steps, queued) = (steps + taken, queued + waited),
                Err(fault) => {
                    println!("{}", fault.lines().next().unwrap_or_default());
                    faults.push(fault);
                }
            }
        }
    }
    println!("{} cases, {steps} steps, {queued} requests waited, {} faults", 2 * cases, faults.len());
    assert!(faults.is_empty(), "{} of {} cases: {}", faults.len(), 2 * cases, faults[0]);
    assert!(if mix.is_queued { queued >= cases / 10 } else { queued == 0 }, "{mix:?}: {queued} requests waited");
}

#[test]
fn nothing_stalls_between_http1_and_http1() {
    run_all(false, false, CASES);
}

#[test]
fn nothing_stalls_between_http1_and_http2() {
    run_all(false, true, CASES);
}

#[test]
fn nothing_stalls_between_http2_and_http1() {
    run_all(true, false, CASES);
}

#[test]
fn nothing_stalls_between_http2_and_http2() {
    run_all(true, true, CASES);
}

#[test]
#[ignore = "takes an hour of two processors: 240,000 cases of all mixes"]
fn nothing_stalls_in_many_cases() {
    std::thread::scope(|scope| {
        for (is_h2_client, is_h2_upstream) in [(false, false), (false, true), (true, false), (true, true)] {
            scope.spawn(move || run_all(is_h2_client, is_h2_upstream, MANY));
        }
    });
}
