//! How reports become stages: names, span rules, and the bounds of the pending join and of the receiver.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cache_hit::CacheHitConfig;
use super::expect::SpanExpectation;
use super::join_settings::JoinSettings;
use super::rules::SpanRule;
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// `Server-Timing` names beyond the defaults, and the stage that each counts as.
    pub server_timing: BTreeMap<String, Stage>,
    /// Span rules, tried in order before the defaults.
    pub spans: Vec<SpanRule>,
    /// Where the upstream says what its feature cache answered.
    pub cache_hit: CacheHitConfig,
    /// Whether a finished request waits for its spans. Default `auto`.
    pub expect_spans: SpanExpectation,
    /// How long it waits at most. Default 6 s, above the 5 s of exporters at their defaults; 10 ms to 5 min.
    pub grace: Period,
    /// How long after its latest span a request counts as complete. Default 250 ms; 0 to `grace`.
    pub quiet: Period,
    /// Requests that wait at once; beyond that the oldest is merged early. Default 8192; 1 to 1,000,000.
    pub max_pending: usize,
    /// Spans kept of one request; further ones are counted and dropped. Default 128; 1 to 4096.
    pub max_spans_per_exchange: usize,
    /// Spans kept whose request is not known yet. Default 8192; 0 to 1,000,000.
    pub max_orphan_spans: usize,
    /// The largest OTLP message, in bytes after decompression. Default 4 MiB, which is gRPC's own limit; 64 KiB to 256 MiB.
    pub otlp_max_body: Size,
    /// Received OTLP messages that wait to be joined. Default 256; 1 to 65,536.
    pub otlp_queue: usize,
    /// OTLP messages that wait to be forwarded to `otlp_forward`. Default 512; 1 to 65,536.
    pub forward_queue: usize,
    /// How often forwarding a message is tried before it is counted as lost. Default 4; 1 to 10.
    pub forward_attempts: u32,
    /// Whether the model server's own statistics are polled, and where. Default `auto`.
    pub poll: Poll,
    /// The shortest interval between polls. Default 5 s; 1 s to 10 min.
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
