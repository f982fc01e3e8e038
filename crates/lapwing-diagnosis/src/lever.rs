//! A lever that would help, by what was measured of it elsewhere: here it is only judged and put into words.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{duration, percent};

/// Fewer requests than this say nothing of a p99 of their half.
const NEEDED_REQUESTS: u64 = 500;
/// The p99 of small requests is to fall by this share at least.
const LEAST_GAIN: f64 = 0.1;

/// A lever that is not on, and would help.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeverAdvice {
    /// Its name, as `trial.lever` has it.
    pub lever: String,
    /// What it would bring, in a sentence.
    pub sentence: String,
    /// What turns it on, and what proves it.
    pub change: String,
    /// The share that it would take off the p99 of small requests, `0..=1`.
    pub gain: f64,
    /// Of how many requests.
    pub requests: u64,
    /// How long they took to come, in seconds.
    pub covered_seconds: f64,
}

/// Latencies of the same requests with a lever and without it, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayedLatencies {
    /// The mean.
    pub mean_ns: u64,
    /// The p99 of the half that asks for least.
    pub small_p99_ns: u64,
    /// The p99 of the twentieth that asks for most.
    pub large_p99_ns: u64,
}

impl LeverAdvice {
    /// What `dispatch` would bring, if the replay of so many requests shows a gain: a p99 of small requests that is a tenth lower, and a mean that
    /// is no higher.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "two digits are shown")]
    pub fn dispatch(requests: u64, covered_ns: u64, without: &ReplayedLatencies, with: &ReplayedLatencies) -> Option<Self> {
        let change = |without: u64, with: u64| if without == 0 { 0.0 } else { with as f64 / without as f64 - 1.0 };
        let gain = -change(without.small_p99_ns, with.small_p99_ns);
        if requests < NEEDED_REQUESTS || gain < LEAST_GAIN || with.mean_ns > without.mean_ns {
            return None;
        }
        let [before, after, covered] = [without.small_p99_ns, with.small_p99_ns, covered_ns].map(|ns| duration(ns as f64));
        let large = match change(without.large_p99_ns, with.large_p99_ns) {
            more if more >= 0.01 => format!(", and add {} to that of the largest", percent(more)),
            _ => String::new(),
        };
        let count = thousands(requests);
        Some(Self {
            lever: "dispatch".to_owned(),
            sentence: format!(
                "dispatch would take {} off the p99 of small requests ({before} to {after}){large}, by {count} requests of the last {covered} replayed",
                percent(gain)
            ),
            change: "set dispatch.mode to on, or prove it with trial.lever: dispatch".to_owned(),
            gain,
            requests,
            covered_seconds: covered_ns as f64 / 1e9,
        })
    }
}

/// 2048 as `2,048`.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut groups: Vec<&str> = if first > 0 { vec![&digits[..first]] } else { Vec::new() };
    groups.extend((first..digits.len()).step_by(3).map(|at| &digits[at..at + 3]));
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    const fn latencies(mean: u64, small: u64, large: u64) -> ReplayedLatencies {
        ReplayedLatencies { mean_ns: mean * MS, small_p99_ns: small * MS, large_p99_ns: large * MS }
    }

    #[test]
    fn a_gain_is_named_with_its_price_and_what_to_do() {
        let advice = |with| LeverAdvice::dispatch(2_048, 40_000 * MS, &latencies(100, 412, 800), &with);
        let advised = advice(latencies(80, 284, 880)).unwrap();
        assert_eq!(
            advised.sentence,
            "dispatch would take 31 % off the p99 of small requests (412 ms to 284 ms), and add 10 % to that of the largest, by 2,048 requests of the last 40 s replayed"
        );
        assert_eq!(advised.change, "set dispatch.mode to on, or prove it with trial.lever: dispatch");
        assert!(!advice(latencies(80, 284, 800)).unwrap().sentence.contains("add"));
    }

    #[test]
    fn nothing_is_advised_that_brings_little_or_rests_on_few() {
        let without = latencies(100, 412, 800);
        assert_eq!(LeverAdvice::dispatch(2_048, MS, &without, &latencies(100, 400, 800)), None, "3 %");
        assert_eq!(LeverAdvice::dispatch(2_048, MS, &without, &latencies(101, 284, 800)), None, "the mean is higher");
        assert_eq!(LeverAdvice::dispatch(499, MS, &without, &latencies(80, 284, 800)), None, "few");
        assert_eq!(LeverAdvice::dispatch(2_048, MS, &latencies(0, 0, 0), &latencies(0, 0, 0)), None);
    }

    #[test]
    fn numbers_have_commas() {
        assert_eq!([7, 512, 2_048, 1_234_567].map(thousands), ["7", "512", "2,048", "1,234,567"]);
    }
}
