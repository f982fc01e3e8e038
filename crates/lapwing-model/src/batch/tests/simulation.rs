//! The batcher under simulated traffic: it loses and starves no call, and is better than fixed batches.

use super::super::{CallCost, Config, Item, Next, Tuning, Waiting};
use super::simulator::{Gaps, Lengths, Outcome, Scenario, Server, fixed};
use lapwing_engine::clock::Stamp;

/// Roughly MiniLM on one core: 0.125 ms per token.
const CORE: Server = Server { fixed_ns: 1e6, unit_ns: 125e3, padded: false };
/// The same on a device where a launch costs as much as 600 tokens.
const DEVICE: Server = Server { fixed_ns: 1.2e6, unit_ns: 2e3, padded: false };
const ROOM: usize = 1 << 20;

fn adaptive() -> Config {
    Config { queue_calls: ROOM, ..Config::default() }
}

fn scenario(server: Server, lengths: Lengths, gaps: Gaps, load: f64) -> Scenario {
    Scenario { server, lengths, gaps, load, calls: 3000, patience: None, seed: 11 }
}

fn run(scenario: Scenario, config: Config) -> Outcome {
    scenario.run(config, Tuning::default())
}

#[test]
fn nothing_is_lost_and_no_wait_is_longer_than_allowed() {
    for server in [CORE, DEVICE] {
        for lengths in [Lengths::Bimodal, Lengths::Uniform, Lengths::Row] {
            for gaps in [Gaps::Poisson, Gaps::Bursts(20, 0), Gaps::Bursts(8, 50_000), Gaps::Clients(16, 1e5)] {
                for config in [adaptive(), fixed(ROOM)] {
                    let out = run(scenario(server, lengths, gaps, 0.6), config);
                    assert_eq!((out.calls.len(), out.refused), (3000, 0));
                    assert!(
                        out.calls.iter().all(|call| call.given == 1 && call.ran.is_some_and(|(start, _)| start >= call.arrived))
                    );
                    assert!(out.batches.iter().all(|batch| batch.start.since(batch.could) <= config.max_wait_ns));
                }
            }
        }
    }
}

#[test]
fn a_lonely_call_starts_at_once() {
    let out = run(scenario(CORE, Lengths::Bimodal, Gaps::Poisson, 0.01), adaptive());
    let at_once = out.calls.iter().filter(|call| call.ran.is_some_and(|(start, _)| start == call.arrived)).count();
    assert!(at_once * 100 >= out.calls.len() * 97, "{at_once}");
    let fixed = run(scenario(CORE, Lengths::Bimodal, Gaps::Poisson, 0.01), fixed(ROOM));
    assert!(fixed.latency_ms(0.5, |_| true) > out.latency_ms(0.5, |_| true) + 4.0, "where fixed batches wait for 5 ms");
}

#[test]
fn a_volley_is_waited_for() {
    let volleys = scenario(DEVICE, Lengths::Bimodal, Gaps::Bursts(8, 50_000), 0.02);
    let (waits, never) = (run(volleys, adaptive()), run(volleys, Config { max_wait_ns: 0, ..adaptive() }));
    assert!(waits.mean_ms() < 0.85 * never.mean_ms(), "{} against {}", waits.mean_ms(), never.mean_ms());
    let poisson = scenario(DEVICE, Lengths::Bimodal, Gaps::Poisson, 0.3);
    let (waits, never) = (run(poisson, adaptive()), run(poisson, Config { max_wait_ns: 0, ..adaptive() }));
    assert!(waits.mean_ms() < 1.01 * never.mean_ms(), "no harm where there is nothing to wait for");
}

#[test]
fn clients_that_call_again_fall_into_step() {
    let clients = scenario(Server { fixed_ns: 240e3, unit_ns: 25e3, padded: false }, Lengths::Row, Gaps::Clients(8, 3e4), 1.0);
    let (waits, never) = (run(clients, adaptive()), run(clients, Config { max_wait_ns: 0, ..adaptive() }));
    assert!(waits.rows_per_s() > 1.1 * never.rows_per_s(), "{} against {}", waits.rows_per_s(), never.rows_per_s());
}

#[test]
fn a_call_past_its_deadline_is_given_back_and_never_run() {
    let hurried = Scenario { patience: Some(4.0), ..scenario(CORE, Lengths::Bimodal, Gaps::Bursts(20, 0), 0.8) };
    let out = run(hurried, adaptive());
    assert!(out.calls.iter().all(|call| call.given == 1));
    let expired = out.calls.iter().filter(|call| call.ran.is_none()).count();
    assert!(expired > 10, "{expired}: the scenario must overload the server");
    assert!(
        out.calls.iter().all(|call| call.ran.is_none_or(|(start, _)| call.deadline.is_some_and(|deadline| start < deadline)))
    );
}

#[test]
fn a_full_queue_refuses() {
    let out = run(scenario(CORE, Lengths::Uniform, Gaps::Poisson, 3.0), Config { queue_calls: 10, ..adaptive() });
    let ran = out.calls.iter().filter(|call| call.ran.is_some()).count();
    assert!(out.refused > 1000 && ran > 500);
    assert_eq!(out.refused + ran, out.calls.len());
}

#[test]
fn a_long_call_in_a_flood_of_short_ones_is_passed_by_few_batches() {
    // short calls come faster than they can be served: by cost alone, a long one would never run
    let flood = scenario(CORE, Lengths::Bimodal, Gaps::Poisson, 2.0);
    let tuning = Tuning { stretch: 1e9, ..Tuning::default() };
    let out = flood.run(adaptive(), tuning);
    let mut youngest = vec![Stamp::default(); out.batches.len()];
    for call in &out.calls {
        youngest[call.batch] = youngest[call.batch].max(call.arrived);
    }
    let passed = |call: &super::simulator::Call| {
        let there = |at: &&Stamp| **at > call.arrived;
        youngest[..call.batch].iter().filter(there).count()
    };
    let most = out.calls.iter().map(passed).max().unwrap();
    assert_eq!(most, tuning.overtakes as usize, "exactly as often as allowed");
}

#[test]
fn adaptive_batches_beat_fixed_padded_ones() {
    for server in [CORE, DEVICE] {
        for lengths in [Lengths::Bimodal, Lengths::Uniform] {
            for (gaps, load) in [(Gaps::Poisson, 0.3), (Gaps::Poisson, 0.6), (Gaps::Bursts(20, 0), 0.5), (Gaps::Poisson, 3.0)] {
                let ragged = run(scenario(server, lengths, gaps, load), adaptive());
                let padded = run(scenario(Server { padded: true, ..server }, lengths, gaps, load), fixed(ROOM));
                let (p99, other) = (ragged.latency_ms(0.99, |_| true), padded.latency_ms(0.99, |_| true));
                assert!(p99 < other, "{server:?} {lengths:?} {gaps:?} {load}: {p99} against {other}");
                let (rows, other) = (ragged.rows_per_s(), padded.rows_per_s());
                assert!(rows > 0.999 * other, "{server:?} {lengths:?} {gaps:?} {load}: {rows} against {other}");
                assert!(ragged.waste() < 1e-9 && padded.waste() > 0.05 && ragged.batch_calls() >= 1.0);
            }
        }
    }
}

#[test]
fn at_too_much_load_the_fixed_cost_is_a_small_share() {
    let dense = Server { fixed_ns: 240e3, unit_ns: 25e3, padded: false };
    for (server, lengths) in [(CORE, Lengths::Bimodal), (DEVICE, Lengths::Bimodal), (dense, Lengths::Row)] {
        let out = run(scenario(server, lengths, Gaps::Poisson, 3.0), adaptive());
        let most = 1e9 / (server.unit_ns * lengths.mean());
        assert!(out.rows_per_s() > 0.9 * most, "{} of {most}", out.rows_per_s());
    }
}

#[test]
fn a_wrong_belief_that_batches_save_nothing_is_given_up() {
    let mut waiting = Waiting::new(adaptive(), Tuning::default());
    for units in (1..50).cycle().take(200) {
        waiting.observe(CallCost { rows: units, tokens: 0 }, 300_000 * units as u64);
    }
    assert!(waiting.fit().line().is_some_and(|line| line.fixed_ns < 1.0));
    let (mut into, mut expired, mut now, mut batches) = (Vec::new(), Vec::new(), Stamp::default().plus(1), 0);
    for i in 0..4000 {
        let cost = CallCost { rows: 1, tokens: 0 };
        waiting.push(Item { payload: i, cost, arrived: now, deadline: None }).unwrap();
    }
    while waiting.poll(now, false, &mut into, &mut expired) == Next::Run {
        let took = 250_000 + 10_000 * into.len() as u64;
        waiting.observe(CallCost { rows: into.len(), tokens: 0 }, took);
        now = now.plus(took);
        batches += 1;
    }
    assert!(waiting.fit().line().is_some_and(|line| line.fixed_ns > 200_000.0));
    assert!(waiting.is_empty() && batches < 100, "{batches}");
}

/// Empties a queue that does not wait for more calls; returns the calls of each batch.
fn drained(tuning: Tuning, calls: &[(usize, u64, Option<u64>)]) -> Vec<Vec<usize>> {
    let mut waiting = Waiting::new(adaptive(), tuning);
    for units in (1..100).cycle().take(200) {
        waiting.observe(CallCost { rows: 1, tokens: units }, 1_000_000 + 125_000 * units as u64);
    }
    let at = |ns: u64| Stamp::default().plus(ns + 1);
    for (payload, &(tokens, arrived, deadline)) in calls.iter().enumerate() {
        let (cost, deadline) = (CallCost { rows: 1, tokens }, deadline.map(at));
        waiting.push(Item { payload, cost, arrived: at(arrived), deadline }).unwrap();
    }
    let (mut into, mut expired, mut batches) = (Vec::new(), Vec::new(), Vec::new());
    while waiting.poll(at(1_000_000), true, &mut into, &mut expired) == Next::Run {
        batches.push(into.iter().map(|item| item.payload).collect());
    }
    batches
}

#[test]
fn a_short_call_passes_a_long_one_that_came_a_little_earlier_but_not_one_that_waited_in_proportion() {
    // 512 tokens take 65 ms and are due 130 ms after their arrival, 16 take 3 ms and are due after 6 ms
    assert_eq!(drained(Tuning::default(), &[(512, 0, None), (16, 100_000_000, None)]), [[1], [0]]);
    assert_eq!(drained(Tuning::default(), &[(512, 0, None), (16, 126_000_000, None)]), [[0], [1]]);
    assert_eq!(drained(Tuning { stretch: 0.0, ..Tuning::default() }, &[(512, 0, None), (16, 0, None)]), [[0], [1]]);
}

#[test]
fn a_deadline_puts_a_call_forward() {
    assert_eq!(drained(Tuning::default(), &[(16, 0, None), (512, 0, Some(70_000_000))]), [[1], [0]]);
    // the short ones fill a batch together: with 152 tokens or more, the fixed millisecond is at most a twentieth
    let short = [(16, 0, None); 12];
    assert_eq!(drained(Tuning::default(), &short).iter().map(Vec::len).collect::<Vec<_>>(), [9, 3]);
}
