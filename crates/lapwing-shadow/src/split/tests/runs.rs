//! Whole splits under traffic: users who are not alike, load that drifts, a candidate that is the same, slower, or fails. The long runs are
//! for `tests/run --long`:
//!
//! ```sh
//! cargo test --release -p lapwing-shadow --lib split::tests::runs -- --ignored --nocapture
//! ```

use super::*;
use crate::seeded_random::SeededRandom;

#[derive(Clone, Copy)]
struct Traffic {
    per_second: u64,
    /// How many users there are; 0: each request has a key of its own.
    users: u64,
    /// How many times as long the candidate takes.
    slower: f64,
    /// Of a thousand requests to the candidate, and of those to the baseline, how many fail.
    failing: [u64; 2],
}

const BASE: Traffic = Traffic { per_second: 200, users: 0, slower: 1.0, failing: [0; 2] };

/// When a split by `settings` stopped, in seconds, and why; `None` within `seconds`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds of some milliseconds")]
fn stopped(settings: &str, traffic: Traffic, seconds: u64, seed: u64) -> Option<(u64, String)> {
    let (mut fixture, mut random) = (Fixture::new(settings), SeededRandom::new(seed));
    let mut drift = 0.0;
    for n in 0..traffic.per_second * seconds {
        let user = if traffic.users == 0 { n + 1 } else { 1 + random.next() % traffic.users };
        let mut own = SeededRandom::new(seed ^ user.wrapping_mul(0x5851_f42d_4c95_7f2d));
        let is_candidate = own.uniform() < fixture.split.status().share;
        // half a second's memory, and users that differ by a fifth
        drift = 0.99 * drift + 0.02 * random.normal();
        let spread = if traffic.users == 0 { 0.0 } else { 0.2 * own.normal() };
        let mut ms = 20.0 * (drift + spread + 0.2 * random.normal()).exp();
        if is_candidate {
            ms *= traffic.slower;
        }
        let has_failed = random.next() % 1_000 < traffic.failing[usize::from(!is_candidate)];
        let outcome = if has_failed { Outcome::ServerError } else { Outcome::Ok };
        let started = at(n * SECOND / traffic.per_second);
        let key = u32::try_from(user).unwrap();
        fixture.take(Placed { key, is_candidate, started, ns: (ms * MS as f64) as u64, outcome });
        if n % (traffic.per_second / 10) == 0 {
            fixture.split.tick(started);
            if let Some(reason) = fixture.split.ramp.stopped() {
                return Some((started.as_ns() / SECOND, reason.to_owned()));
            }
        }
    }
    None
}

/// Any difference with confidence stops it.
const STRICT: &str = r#"{"candidate": "int8", "share": "25%", "stop_on": {"p50_ratio": 1, "p99_ratio": 1, "errors": "0%"}}"#;
const RAMP: &str =
    r#"{"candidate": "int8", "ramp": ["5%", "25%"], "step": "2m", "stop_on": {"p50_ratio": 1.03, "errors": "1%"}}"#;

fn false_stops(traffic: Traffic, seconds: u64, runs: u64) -> usize {
    (0..runs).filter(|seed| stopped(STRICT, traffic, seconds, *seed).is_some()).count()
}

#[test]
fn a_candidate_that_is_the_same_goes_on() {
    assert_eq!(false_stops(Traffic { failing: [10, 10], ..BASE }, 60, 3), 0);
}

#[test]
fn a_tenth_slower_is_found_and_ramped_back() {
    let (second, reason) = stopped(RAMP, Traffic { slower: 1.1, ..BASE }, 300, 1).expect("it stops");
    assert!(reason.contains("p50 of the candidate is 1.") && reason.contains("the limit is 1.03×"), "{second} s: {reason}");
}

#[test]
fn a_candidate_that_fails_is_stopped_soon() {
    let (second, reason) =
        stopped(r#"{"candidate": "int8", "stop_on": {"errors": "1%"}}"#, Traffic { failing: [1_000, 5], ..BASE }, 60, 1)
            .expect("it stops");
    assert!(second <= 40 && reason.contains("requests to the candidate failed (100.00 %)"), "{second} s: {reason}");
}

#[test]
fn a_few_users_prove_nothing() {
    // those of the candidate differ from the others, whatever serves them
    let slower = Traffic { users: 30, slower: 1.05, ..BASE };
    assert_eq!(stopped(RAMP, slower, 120, 1), None, "two of thirty users");
}

#[test]
#[ignore = "minutes: tests/run --long"]
fn two_hundred_runs_of_the_same_stop_rarely_and_of_a_slower_one_always() {
    for (name, traffic) in [
        ("keys of their own", BASE),
        ("1,000 users", Traffic { users: 1_000, ..BASE }),
        ("100 users", Traffic { users: 100, ..BASE }),
    ] {
        let stops = false_stops(Traffic { failing: [10, 10], ..traffic }, 300, 200);
        println!("the same, {name}: {stops} of 200 stopped within 5 min");
        assert!(stops <= 10, "{name}: {stops}");
    }
    let mut seconds: Vec<u64> = (0..200)
        .map(|seed| stopped(RAMP, Traffic { slower: 1.1, ..BASE }, 300, seed).map_or(u64::MAX, |(second, _)| second))
        .collect();
    seconds.sort_unstable();
    println!("+10 %: stopped after {} s at the median, {} s at the latest", seconds[100], seconds[199]);
    assert!(seconds[199] <= 300);
}
