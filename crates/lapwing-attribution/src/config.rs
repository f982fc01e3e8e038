//! How reports become stages: names, span rules, and the bounds of the pending join and of the receiver.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cache_hit::CacheHitConfig;
use super::expect::SpanExpectation;
use super::join_settings::JoinSettings;
use super::rules::{ReportedStage, Rules, SpanRule};
use lapwing_ledger::Stage;
use lapwing_settings::{Checks, Form, Period, Poll, Record, Section, Size};

/// A span rule.
const SPAN_RULE: Record = Record {
    what: "a rule: name, attribute (and value) and/or deployment, and stage",
    keys: &[
        ("name", Form::Literal),
        ("attribute", Form::Literal),
        ("value", Form::Literal),
        ("deployment", Form::Literal),
        ("stage", Form::Text),
    ],
    stand_in: &[("stage", "forward")],
};

/// The section `attribution`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// `Server-Timing` names in addition to the known ones, and the stage of each; case, `-`, `_`, `.` and spaces do not matter.
    #[schemars(with = "BTreeMap<String, ReportedStage>")]
    pub server_timing: BTreeMap<String, Stage>,
    /// Rules that give spans a stage. The first that matches decides, before the defaults; a span's attribute `lapwing.stage`
    /// overrides every rule.
    pub spans: Vec<SpanRule>,
    /// Where the upstream says what its feature cache answered.
    pub cache_hit: CacheHitConfig,
    /// Whether a finished request waits for its spans.
    pub expect_spans: SpanExpectation,
    /// How long it waits at most. OpenTelemetry's exporters send every 5 s by default.
    pub grace: Period,
    /// How long after its latest span a request that has the spans of its like is complete (docs/STAGES.md); at most `grace`.
    pub quiet: Period,
    /// How many requests may wait; beyond that the oldest is merged early.
    pub max_pending: usize,
    /// How many spans of one request are kept; further ones are dropped and counted.
    pub max_spans_per_exchange: usize,
    /// How many spans are kept whose request is not known yet.
    pub max_orphan_spans: usize,
    /// The largest OTLP message, after decompression.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub otlp_max_body: Size,
    /// How many received OTLP messages may wait to be joined.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub otlp_queue: usize,
    /// How many OTLP messages may wait to be forwarded.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub forward_queue: usize,
    /// How often forwarding a message is tried.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub forward_attempts: u32,
    /// Whether the model server's own statistics are polled, and where.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub poll: Poll,
    /// The shortest time between two polls.
    pub poll_interval: Period,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            server_timing: BTreeMap::new(),
            spans: Vec::new(),
            cache_hit: CacheHitConfig::default(),
            expect_spans: SpanExpectation::default(),
            grace: Period::from_secs(6),
            quiet: Period::from_millis(250),
            max_pending: 8192,
            max_spans_per_exchange: 128,
            max_orphan_spans: 8192,
            otlp_max_body: Size::mib(4),
            otlp_queue: 256,
            forward_queue: 512,
            forward_attempts: 4,
            poll: Poll::Auto,
            poll_interval: Period::from_secs(5),
        }
    }
}

impl Config {
    /// The mapping of names to stages.
    #[must_use]
    pub fn rules(&self) -> Rules {
        let names = self.server_timing.iter().map(|(name, stage)| (name.as_str(), *stage));
        Rules::new(names, self.spans.iter().cloned()).with_cache_hit(self.cache_hit.clone())
    }

    /// How spans are joined.
    #[must_use]
    pub fn join(&self) -> JoinSettings {
        JoinSettings {
            grace_ns: self.grace.as_nanos(),
            quiet_ns: self.quiet.as_nanos(),
            max_pending: self.max_pending,
            max_spans_per_exchange: self.max_spans_per_exchange,
            max_orphan_spans: self.max_orphan_spans,
            expect: self.expect_spans,
            ..JoinSettings::default()
        }
    }
}

impl Section for Config {
    const FORMS: &'static [(&'static str, Form)] =
        &[("server_timing", Form::Named(&Form::Text)), ("spans", Form::List(&SPAN_RULE))];

    fn check(&self, checks: &mut Checks) {
        checks.range("grace", &self.grace, Period::from_millis(10)..=Period::from_secs(300));
        if self.quiet > self.grace && checks.is_sound("grace") {
            checks.fault("quiet", self.quiet, format!("must be at most grace, which is {}", self.grace));
        }
        checks.range("max_pending", &self.max_pending, 1..=1_000_000);
        checks.range("max_spans_per_exchange", &self.max_spans_per_exchange, 1..=4096);
        checks.range("max_orphan_spans", &self.max_orphan_spans, 0..=1_000_000);
        checks.range("otlp_max_body", &self.otlp_max_body, Size::kib(64)..=Size::mib(256));
        checks.range("otlp_queue", &self.otlp_queue, 1..=65_536);
        checks.range("forward_queue", &self.forward_queue, 1..=65_536);
        checks.range("forward_attempts", &self.forward_attempts, 1..=10);
        checks.range("poll_interval", &self.poll_interval, Period::from_secs(1)..=Period::from_secs(600));
        self.cache_hit.check(checks);
        for (name, stage) in &self.server_timing {
            reportable(checks, &format!("server_timing.{name}"), *stage);
        }
        for (index, rule) in self.spans.iter().enumerate() {
            rule.check(checks, &format!("spans[{index}]"));
        }
    }
}

impl SpanRule {
    fn check(&self, checks: &mut Checks, path: &str) {
        reportable(checks, &format!("{path}.stage"), self.stage);
        let text = |key: &str, text: &Option<String>, checks: &mut Checks| {
            if text.as_deref() == Some("") {
                checks.fault(&format!("{path}.{key}"), "\"\"", "is empty");
            }
        };
        text("name", &self.name, checks);
        text("attribute", &self.attribute, checks);
        text("deployment", &self.deployment, checks);
        match (&self.name, &self.attribute, &self.value) {
            (None, None, None) if self.deployment.is_none() => {
                checks.fault(path, "", "needs a name, an attribute or a deployment to match");
            }
            (_, None, Some(value)) => {
                checks.fault(&format!("{path}.value"), value, "needs the attribute that it is the value of")
            }
            _ => {}
        }
    }
}

fn reportable(checks: &mut Checks, path: &str, stage: Stage) {
    if stage.is_observed_only() {
        checks.fault(path, stage.name(), "is measured by Lapwing itself and cannot be reported");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_rule_are_its_fields() {
        SPAN_RULE.assert_describes::<SpanRule>();
    }
}
