//! The section `trial`: a lever is on in some blocks of time and off in others, and stays off if it does harm.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lever::TrialLever;
use lapwing_settings::{Checks, Form, Period, Ratio, Section, Share, Switch};

/// The section `trial`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// What is tried.
    pub lever: TrialLever,
    /// How long it is on or off.
    pub block: Period,
    /// How much of a block's beginning is not counted; at most half.
    pub drop: Period,
    /// How long the trial lasts.
    pub max_time: Period,
    /// From when on the lever stays off.
    pub stop_on: HarmLimits,
}

/// The limits of a trial. One counts as exceeded when the whole interval is beyond it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct HarmLimits {
    /// On to off, at most.
    pub p50_ratio: Switch<Ratio>,
    /// The same.
    pub p99_ratio: Switch<Ratio>,
    /// How many more may fail.
    pub errors: Switch<Share>,
    /// Units of work a second, or requests: at least.
    pub throughput_ratio: Switch<Ratio>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lever: TrialLever::Off,
            block: Period::from_secs(20),
            drop: Period::from_secs(2),
            max_time: Period::from_secs(3600),
            stop_on: HarmLimits::default(),
        }
    }
}

impl Default for HarmLimits {
    /// Anything that is certain to be worse.
    fn default() -> Self {
        let same = Switch::On(Ratio::of_hundredths(100));
        let errors = Switch::On("0%".parse().unwrap_or_else(|_| unreachable!("a share")));
        Self { p50_ratio: same, p99_ratio: same, errors, throughput_ratio: same }
    }
}

impl Config {
    /// Reports the faults that the number of `upstreams` shows.
    pub fn check_with(&self, upstreams: usize, checks: &mut Checks) {
        if self.lever.chooses_upstreams() && upstreams < 2 {
            checks.fault("trial.lever", self.lever.name(), "chooses between `upstreams`, and needs at least two");
        }
    }
}

impl Section for Config {
    const FORMS: &'static [(&'static str, Form)] = &[("stop_on", Form::Section(HarmLimits::FORMS))];

    fn check(&self, checks: &mut Checks) {
        checks.range("block", &self.block, Period::from_secs(1)..=Period::from_secs(3600));
        if checks.is_sound("block") && self.drop.as_nanos() > self.block.as_nanos() / 2 {
            checks.fault("drop", self.drop, format!("must be at most half of block, which is {}", self.block));
        }
        checks.range("max_time", &self.max_time, Period::from_secs(60)..=Period::from_secs(7 * 24 * 3600));
        checks.section("stop_on", |checks| self.stop_on.check(checks));
    }
}

impl Section for HarmLimits {
    fn check(&self, checks: &mut Checks) {
        let more = Ratio::of_hundredths(100)..=Ratio::of_hundredths(400);
        checks.switch_range("p50_ratio", &self.p50_ratio, more.clone());
        checks.switch_range("p99_ratio", &self.p99_ratio, more);
        checks.switch_range("throughput_ratio", &self.throughput_ratio, Ratio::of_hundredths(25)..=Ratio::of_hundredths(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(trial: &str, upstreams: usize) -> Vec<String> {
        let mut checks = Checks::default();
        let config: Config = serde_json::from_str(trial).unwrap();
        checks.section("trial", |checks| config.check(checks));
        config.check_with(upstreams, &mut checks);
        checks.into_faults().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_fault_names_its_key_and_what_to_do() {
        for whole in [
            r#"{}"#,
            r#"{"lever": "quick_ack"}"#,
            r#"{"lever": "least_requests", "block": "5s", "drop": "0s", "max_time": "10m"}"#,
            r#"{"lever": "round_robin", "stop_on": {"p50_ratio": "off", "p99_ratio": 1.1, "errors": "1%", "throughput_ratio": 0.9}}"#,
        ] {
            assert_eq!(faults(whole, 2), Vec::<String>::new(), "{whole}");
        }
        for (text, upstreams, says) in [
            (
                r#"{"lever": "least_requests"}"#,
                0,
                "trial.lever: least_requests: chooses between `upstreams`, and needs at least two",
            ),
            (r#"{"lever": "round_robin"}"#, 1, "trial.lever: round_robin: chooses between"),
            (r#"{"block": "500ms", "drop": "0s"}"#, 2, "trial.block: 500ms: must be between 1s and"),
            (r#"{"block": "3s"}"#, 2, "trial.drop: 2s: must be at most half of block, which is 3s"),
            (r#"{"max_time": "1s"}"#, 2, "trial.max_time: 1s: must be between"),
            (r#"{"stop_on": {"p50_ratio": 0.9}}"#, 2, "trial.stop_on.p50_ratio: 0.9: must be between 1 and 4"),
            (r#"{"stop_on": {"throughput_ratio": 1.1}}"#, 2, "trial.stop_on.throughput_ratio: 1.1: must be between 0.25 and 1"),
        ] {
            let found = faults(text, upstreams);
            assert!(found.len() == 1 && found[0].contains(says), "{text}: {found:?}");
        }
        assert!(serde_json::from_str::<Config>(r#"{"lever": "fast"}"#).is_err());
    }
}
