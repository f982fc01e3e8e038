//! A lever that would help, by what was measured of it elsewhere: here it is only judged and put into words.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{duration, percent};

/// Fewer requests than this say nothing of a p99 of their half.
const NEEDED_REQUESTS: u64 = 500;
/// The p99 of small requests is to fall by this share at least.
const LEAST_GAIN: f64 = 0.1;
/// A cache is to answer this share of requests at least.
const LEAST_HITS: f64 = 0.05;

/// A lever that is not on, and would help.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LeverAdvice {
    /// Its name, as `trial.lever` has it.
    pub lever: String,
    /// What it would bring, in a sentence.
    pub sentence: String,
    /// What turns it on, and what proves it.
    pub change: String,
    /// `0..=1`. Of `dispatch` the share that it would take off the p99 of small requests; of `cache` the share of requests that it would answer.
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

/// A cache that needs less is given what `max_bytes` is by default: it must have room for eight of the largest answers.
const LEAST_ROOM: u64 = 8 << 20;

/// What a cache of a size would bring whose answers are given for a time, by requests that passed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheWorth {
    /// Its size, in bytes.
    pub max_bytes: u64,
    /// For how long it gives an answer, in seconds.
    pub ttl_s: u64,
    /// Of how many requests.
    pub requests: u64,
    /// How long they took to come, in nanoseconds.
    pub covered_ns: u64,
    /// The share that it would have answered, `0..=1`.
    pub hit_rate: f64,
    /// What those took at the upstream, in nanoseconds.
    pub saved_ns: f64,
    /// How often the answer to a question was compared with an earlier one to the same.
    pub compared: u64,
    /// How often it was the same.
    pub same: u64,
}

impl CacheWorth {
    /// What it would save in an hour, in nanoseconds; 0 until it is known how long the requests took to come.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    pub fn saved_ns_an_hour(&self) -> f64 {
        if self.covered_ns == 0 { 0.0 } else { self.saved_ns * 3.6e12 / self.covered_ns as f64 }
    }

    /// The same in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { max_bytes, ttl_s, requests, hit_rate, compared, same, .. } = *self;
        let shown = match compared {
            0 => "no question came again while its answer was good".to_owned(),
            _ => format!(
                "the upstream gave the same answer to the same question in {} of {} tries",
                thousands(same),
                thousands(compared)
            ),
        };
        format!(
            "{} and {} would answer {} of {} requests and save {} of the upstream's time an hour; {shown}",
            time_to_live(ttl_s),
            size(max_bytes),
            percent(hit_rate),
            thousands(requests),
            duration(self.saved_ns_an_hour())
        )
    }
}

impl LeverAdvice {
    /// What `cache` would bring, if that is a twentieth of the requests at least.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "two digits are shown")]
    pub fn cache(worth: &CacheWorth) -> Option<Self> {
        let CacheWorth { max_bytes, ttl_s, requests, covered_ns, hit_rate, .. } = *worth;
        let room = if max_bytes < LEAST_ROOM { String::new() } else { format!(", max_bytes: {}MiB", max_bytes >> 20) };
        (requests >= NEEDED_REQUESTS && hit_rate >= LEAST_HITS).then(|| Self {
            lever: "cache".to_owned(),
            sentence: format!("cache: {}", worth.sentence()),
            change: format!("set cache: {{mode: on, ttl: {ttl_s}s{room}}}, or prove it with trial.lever: cache"),
            gain: hit_rate,
            requests,
            covered_seconds: covered_ns as f64 / 1e9,
        })
    }

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

/// 120 seconds as `2 min`.
#[must_use]
pub fn time_to_live(seconds: u64) -> String {
    match seconds {
        s if s >= 86_400 && s % 86_400 == 0 => format!("{} d", s / 86_400),
        s if s >= 3_600 && s % 3_600 == 0 => format!("{} h", s / 3_600),
        s if s >= 60 && s % 60 == 0 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

/// 64 · 2²⁰ as `64 MiB`.
fn size(bytes: u64) -> String {
    match bytes >> 20 {
        mib if mib >= 1_024 && mib % 1_024 == 0 => format!("{} GiB", mib / 1_024),
        mib => format!("{mib} MiB"),
    }
}

/// 2048 as `2,048`.
#[must_use]
pub fn thousands(number: u64) -> String {
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
    fn a_cache_is_named_with_what_it_answers_and_how_sure_that_is() {
        let worth = CacheWorth {
            max_bytes: 64 << 20,
            ttl_s: 120,
            requests: 9_800,
            covered_ns: 1_800_000 * MS,
            hit_rate: 0.41,
            saved_ns: 155e9,
            compared: 4_000,
            same: 4_000,
        };
        let advised = LeverAdvice::cache(&worth).unwrap();
        assert_eq!(
            advised.sentence,
            "cache: 2 min and 64 MiB would answer 41 % of 9,800 requests and save 310 s of the upstream's time an hour; \
             the upstream gave the same answer to the same question in 4,000 of 4,000 tries"
        );
        assert_eq!(advised.change, "set cache: {mode: on, ttl: 120s, max_bytes: 64MiB}, or prove it with trial.lever: cache");
        assert_eq!((advised.gain, advised.covered_seconds), (0.41, 1_800.0));
        let small = LeverAdvice::cache(&CacheWorth { max_bytes: 1 << 20, ..worth }).unwrap().change;
        assert_eq!(small, "set cache: {mode: on, ttl: 120s}, or prove it with trial.lever: cache");
        let large = CacheWorth { max_bytes: 4 << 30, ttl_s: 86_400, ..worth };
        assert!(large.sentence().starts_with("1 d and 4 GiB would answer"), "{}", large.sentence());
        let hour = CacheWorth { ttl_s: 3_600, compared: 0, same: 0, covered_ns: 0, ..worth }.sentence();
        assert!(
            hour.starts_with("1 h and") && hour.contains("save 0 ns of") && hour.ends_with("while its answer was good"),
            "{hour}"
        );
        assert_eq!(LeverAdvice::cache(&CacheWorth { hit_rate: 0.04, ..worth }), None);
        assert_eq!(LeverAdvice::cache(&CacheWorth { requests: 499, ..worth }), None);
    }

    #[test]
    fn numbers_have_commas() {
        assert_eq!([7, 512, 2_048, 1_234_567].map(thousands), ["7", "512", "2,048", "1,234,567"]);
    }
}
