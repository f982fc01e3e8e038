//! The section `cache` of a downstream.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::DownstreamKind;
use lapwing_cache::CacheScope;
use lapwing_settings::{Checks, FieldName, Form, Period, Record, Size};

/// The most prefixes, and the most paths.
const MAX_RULES: usize = 64;
/// The longest of them.
const MAX_RULE_BYTES: usize = 1024;
/// The most fields in the key.
const MAX_VARY: usize = 16;
/// The memory must have room for so many of the largest answers.
const ENTRIES: u64 = 8;

/// What the section holds.
pub(crate) const DOWNSTREAM_CACHE: Record = Record {
    what: "a section, as in {mode: on, prefixes: [\"features:\"], ttl: 10s}",
    keys: &[
        ("mode", Form::Text),
        ("prefixes", Form::Texts),
        ("paths", Form::Texts),
        ("ttl", Form::Text),
        ("max_bytes", Form::Text),
        ("max_entry", Form::Text),
        ("absent", Form::Text),
        ("vary", Form::Texts),
        ("scope", Form::Text),
    ],
    stand_in: &[],
};

/// Whether a store's answers are kept and given again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DownstreamCacheMode {
    /// They are not, and nothing is counted.
    #[default]
    Off,
    /// They are kept and not given: it is counted how often they would have been, and how often the store said something else.
    Observe,
    /// They are.
    On,
}

/// What becomes of an answer that says that something is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeptAbsence {
    /// It is not kept: what is written elsewhere for the first time is seen at once.
    #[default]
    Pass,
    /// It is kept as others are.
    Keep,
}

/// The section `downstreams[].cache`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
#[schemars(title = "downstream cache")]
pub struct DownstreamCache {
    /// Whether answers are kept and given again.
    pub mode: DownstreamCacheMode,
    /// Redis: a reading command is answered from memory if all its keys begin with one of these; an empty one is every key.
    pub prefixes: Vec<String>,
    /// HTTP: paths whose `GET`s are answered from memory, with `*` for anything. `/get-online-features` stands for Feast's `POST` too.
    pub paths: Vec<String>,
    /// How old an answer may be. What is written elsewhere is seen after that.
    pub ttl: Period,
    /// The memory for answers, with all that keeps them.
    pub max_bytes: Size,
    /// The largest answer that is kept.
    pub max_entry: Size,
    /// Redis: what becomes of an answer that says that something is not there.
    pub absent: KeptAbsence,
    /// HTTP: header fields that change an answer, beside `Content-Type`, `Content-Encoding` and those that begin with `Accept`.
    pub vary: Vec<FieldName>,
    /// HTTP: who may be given the answer that somebody else was given.
    pub scope: CacheScope,
}

impl Default for DownstreamCache {
    fn default() -> Self {
        Self {
            mode: DownstreamCacheMode::Off,
            prefixes: Vec::new(),
            paths: Vec::new(),
            ttl: Period::from_secs(10),
            max_bytes: Size::mib(64),
            max_entry: Size::kib(64),
            absent: KeptAbsence::Pass,
            vary: Vec::new(),
            scope: CacheScope::Authorization,
        }
    }
}

/// Reports the faults of the section at `key`, of a downstream of this kind.
pub(crate) fn check_downstream_cache(key: &str, kind: DownstreamKind, cache: &DownstreamCache, checks: &mut Checks) {
    let is_on = cache.mode != DownstreamCacheMode::Off;
    let (rules, others, name) = match kind {
        DownstreamKind::Redis => (&cache.prefixes, &cache.paths, "prefixes"),
        DownstreamKind::Http => (&cache.paths, &cache.prefixes, "paths"),
        DownstreamKind::Grpc => {
            if is_on {
                checks.fault(&format!("{key}.mode"), "", "must be off: calls over gRPC are not read");
            }
            return;
        }
    };
    let other = if name == "paths" { "prefixes" } else { "paths" };
    if !others.is_empty() {
        checks.fault(&format!("{key}.{other}"), others.len(), format!("do not apply to this kind: give {name}"));
    }
    if is_on && rules.is_empty() {
        let example = if name == "paths" { "[/get-online-features]" } else { "[\"features:\"]" };
        checks.fault(&format!("{key}.{name}"), "", format!("must say what is kept, as in {example}"));
    }
    if rules.len() > MAX_RULES {
        checks.fault(&format!("{key}.{name}"), rules.len(), format!("must be at most {MAX_RULES}"));
    }
    for (at, rule) in rules.iter().enumerate() {
        if rule.len() > MAX_RULE_BYTES {
            checks.fault(&format!("{key}.{name}[{at}]"), rule.len(), format!("must have at most {MAX_RULE_BYTES} bytes"));
        } else if name == "paths" && !rule.starts_with(['/', '*']) {
            checks.fault(&format!("{key}.{name}[{at}]"), rule, "is no path: begin it with / or *");
        } else if rules[..at].contains(rule) {
            checks.fault(&format!("{key}.{name}[{at}]"), rule, "is there twice");
        }
    }
    checks.range(&format!("{key}.ttl"), &cache.ttl, Period::from_millis(1)..=Period::from_secs(86_400));
    checks.range(&format!("{key}.max_bytes"), &cache.max_bytes, Size::kib(64)..=Size::mib(1 << 20));
    checks.range(&format!("{key}.max_entry"), &cache.max_entry, Size(64)..=Size::mib(64));
    if cache.max_entry.get().saturating_mul(ENTRIES) > cache.max_bytes.get() {
        let reason = format!("must be at most an eighth of max_bytes, {}: give that more, or this less", cache.max_bytes);
        checks.fault(&format!("{key}.max_entry"), cache.max_entry, reason);
    }
    if cache.vary.len() > MAX_VARY {
        checks.fault(&format!("{key}.vary"), cache.vary.len(), format!("must be at most {MAX_VARY}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_the_record_are_the_fields() {
        DOWNSTREAM_CACHE.assert_describes::<DownstreamCache>();
    }

    #[test]
    fn each_fault_names_its_field_and_what_to_do() {
        let faults = |kind, text: &str| {
            let mut checks = Checks::new(Default::default());
            check_downstream_cache("cache", kind, &serde_json::from_str(text).unwrap(), &mut checks);
            checks.into_faults().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        use DownstreamKind::{Grpc, Http, Redis};
        for (kind, text) in [
            (Redis, r#"{"mode": "on", "prefixes": ["a:", ""], "ttl": "500ms", "absent": "keep"}"#),
            (Http, r#"{"mode": "observe", "paths": ["/get-online-features", "*/7"], "vary": ["x-a"], "scope": "shared"}"#),
            (Grpc, "{}"),
        ] {
            assert_eq!(faults(kind, text), [""; 0], "{text}");
        }
        for (kind, text, beginning) in [
            (Grpc, r#"{"mode": "on"}"#, "cache.mode: must be off"),
            (Redis, r#"{"mode": "on"}"#, "cache.prefixes: must say what is kept"),
            (Redis, r#"{"paths": ["/a"]}"#, "cache.paths: 1: do not apply to this kind: give prefixes"),
            (Redis, r#"{"prefixes": ["a", "a"]}"#, "cache.prefixes[1]: a: is there twice"),
            (Http, r#"{"paths": ["a"]}"#, "cache.paths[0]: a: is no path"),
            (Http, r#"{"ttl": "0s"}"#, "cache.ttl: 0s: must be between"),
            (Http, r#"{"max_bytes": "1KiB"}"#, "cache.max_bytes: 1KiB: must be between"),
            (Http, r#"{"max_bytes": "1MiB", "max_entry": "512KiB"}"#, "cache.max_entry: 512KiB: must be at most an eighth"),
        ] {
            let found = faults(kind, text);
            assert!(found.first().is_some_and(|fault| fault.starts_with(beginning)), "{beginning}: {found:?}");
        }
    }
}
