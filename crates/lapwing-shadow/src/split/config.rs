//! The section `split`: one of several upstreams takes a share of the requests, and is judged by them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use lapwing_settings::{Checks, Form, Period, Ratio, Section, Share, SplitKey, Switch};

/// How many steps a ramp has at most.
const MAX_STEPS: usize = 16;

/// The section `split`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// The upstream on trial, by its name in `upstreams`; without one nothing is split. Requests that no route takes go to it by the share,
    /// or to the others, the baseline.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub candidate: String,
    /// What decides the side: `header:NAME`, `cookie:NAME`, `trace`, the trace id, or `json:POINTER`, of the body (`hold`). A request without it goes to the baseline.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub key: SplitKey,
    /// The share of keys that the candidate gets, where there is no ramp.
    pub share: Share,
    /// Shares instead of `share`, each greater than the one before, which the candidate gets one after the other. Needs a limit in `stop_on`.
    pub ramp: Vec<Share>,
    /// How long each of them lasts at least.
    pub step: Period,
    /// From when on the candidate gets nothing more.
    pub stop_on: StopOn,
    /// Whether outputs are compared: of the requests that `shadow.sample` draws, each side gets copies of those that the other answers. All of
    /// the section `shadow` holds for them.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub compare: bool,
}

/// The limits of a split. One counts as exceeded when the whole interval is beyond it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct StopOn {
    /// How many times as long as the baseline's its requests may take: the median of the ratio within matched pairs.
    pub p50_ratio: Switch<Ratio>,
    /// The same of the ratio of both sides' p99.
    pub p99_ratio: Switch<Ratio>,
    /// By how much the share of its requests that fail may exceed the baseline's.
    pub errors: Switch<Share>,
    /// The share of compared outputs that may differ. Needs `compare`.
    pub mismatch: Switch<Share>,
}

impl StopOn {
    /// Whether there is no limit.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        !self.p50_ratio.is_on() && !self.p99_ratio.is_on() && !self.errors.is_on() && !self.mismatch.is_on()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            candidate: String::new(),
            key: SplitKey::default(),
            share: "5%".parse().unwrap_or_else(|_| unreachable!("a share")),
            ramp: Vec::new(),
            step: Period::from_secs(600),
            stop_on: StopOn::default(),
            compare: false,
        }
    }
}

impl Config {
    /// Whether anything is split.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.candidate.is_empty()
    }

    /// Whether outputs are compared.
    #[must_use]
    pub fn compares(&self) -> bool {
        self.compare && self.is_on()
    }

    /// The shares one after the other.
    pub(crate) fn shares(&self) -> &[Share] {
        if self.ramp.is_empty() { std::slice::from_ref(&self.share) } else { &self.ramp }
    }

    /// Reports the faults that the names of the `upstreams` show.
    pub fn check_with<'n>(&self, upstreams: impl Iterator<Item = &'n str> + Clone, checks: &mut Checks) {
        if self.is_on() && !upstreams.clone().any(|name| name == self.candidate) {
            let known = upstreams.collect::<Vec<_>>().join(", ");
            let reason = if known.is_empty() {
                "needs `upstreams`, and is one of them".to_owned()
            } else {
                format!("is none of `upstreams`: {known}")
            };
            checks.fault("split.candidate", &self.candidate, reason);
        } else if self.is_on() && upstreams.count() < 2 {
            checks.fault("split.candidate", &self.candidate, "is the only upstream: there is no baseline");
        }
    }
}

impl Section for Config {
    const FORMS: &'static [(&'static str, Form)] = &[("ramp", Form::Texts), ("stop_on", Form::Section(StopOn::FORMS))];

    fn check(&self, checks: &mut Checks) {
        if self.ramp.len() > MAX_STEPS {
            checks.fault("ramp", self.ramp.len(), format!("must be at most {MAX_STEPS} steps"));
        }
        for (at, share) in self.ramp.iter().enumerate() {
            let before = at.checked_sub(1).and_then(|before| self.ramp.get(before));
            if share.get() <= before.map_or(0.0, |before| before.get()) {
                let least = before.map_or_else(|| "0%".to_owned(), ToString::to_string);
                checks.fault(&format!("ramp[{at}]"), share, format!("must be above {least}: a ramp rises"));
            }
        }
        if !self.ramp.is_empty() && self.stop_on.is_empty() {
            checks.fault("ramp", self.ramp.len(), "needs a limit in stop_on: it would rise whatever happens");
        }
        // a configuration that is printed has every key
        if !self.ramp.is_empty() && self.share != Self::default().share {
            checks.fault("share", self.share, "cannot be given with ramp, whose steps are the shares");
        }
        checks.range("step", &self.step, Period::from_secs(10)..=Period::from_secs(7 * 24 * 3600));
        if let Switch::On(limit) = &self.stop_on.mismatch
            && !self.compare
        {
            checks.fault("stop_on.mismatch", limit, "needs compare: true: without it no outputs are compared");
        }
        checks.section("stop_on", |checks| self.stop_on.check(checks));
    }
}

impl Section for StopOn {
    fn check(&self, checks: &mut Checks) {
        let ratios = Ratio::of_hundredths(100)..=Ratio::of_hundredths(10_000);
        checks.switch_range("p50_ratio", &self.p50_ratio, ratios.clone());
        checks.switch_range("p99_ratio", &self.p99_ratio, ratios);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(split: serde_json::Value, upstreams: &[&str]) -> Vec<String> {
        let mut checks = Checks::default();
        let config: Config = serde_json::from_value(split).unwrap();
        checks.section("split", |checks| config.check(checks));
        config.check_with(upstreams.iter().copied(), &mut checks);
        checks.into_faults().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_fault_names_its_key_and_what_to_do() {
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        let two = ["a", "b"];
        for whole in [
            r#"{}"#,
            r#"{"candidate": "b"}"#,
            r#"{"candidate": "b", "share": "0%", "key": "cookie:sid"}"#,
            r#"{"candidate": "b", "ramp": ["1%", 0.05, "100%"], "step": "10s", "stop_on": {"p99_ratio": 1.1, "errors": "1%"}}"#,
        ] {
            assert_eq!(faults(json(whole), &two), Vec::<String>::new(), "{whole}");
        }
        for (text, says) in [
            (r#"{"candidate": "c"}"#, "split.candidate: c: is none of `upstreams`: a, b"),
            (r#"{"candidate": "b", "ramp": ["1%"]}"#, "split.ramp: 1: needs a limit in stop_on"),
            (
                r#"{"candidate": "b", "ramp": ["5%", "5%"], "stop_on": {"errors": "1%"}}"#,
                "split.ramp[1]: 5%: must be above 5%: a ramp rises",
            ),
            (r#"{"candidate": "b", "ramp": ["0%", "5%"], "stop_on": {"errors": "1%"}}"#, "split.ramp[0]: 0%: must be above 0%"),
            (
                r#"{"candidate": "b", "share": "1%", "ramp": ["5%"], "stop_on": {"errors": "1%"}}"#,
                "split.share: 1%: cannot be given with ramp",
            ),
            (r#"{"candidate": "b", "step": "9s"}"#, "split.step: 9s: must be between 10s and"),
            (r#"{"candidate": "b", "stop_on": {"mismatch": "1%"}}"#, "split.stop_on.mismatch: 1%: needs compare: true"),
            (r#"{"candidate": "b", "stop_on": {"p99_ratio": 0.9}}"#, "split.stop_on.p99_ratio: 0.9: must be between 1 and 100"),
        ] {
            let found = faults(json(text), &two);
            assert!(found.len() == 1 && found[0].contains(says), "{text}: {found:?}");
        }
        assert!(faults(json(r#"{"candidate": "b"}"#), &[])[0].contains("needs `upstreams`"));
        assert!(faults(json(r#"{"candidate": "b"}"#), &["b"])[0].contains("is the only upstream"));
    }
}
