//! The section `shadow`: which requests are copied, where to, and the bounds of it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::header_names::is_never_kept;
use super::mapping::{MAPPING, MAX_MAPPINGS, MappingRule};
use super::quota::{self, RouteQuota};
use lapwing_settings::{Checks, FieldName, Form, Period, Record, Section, ShadowTarget, Share, Size, Switch};

/// The name of the upstream as a target, when it is asked a second time.
pub const UPSTREAM_AGAIN: &str = "upstream";
/// The name of the candidate of a live split as a target.
pub(crate) const SPLIT_CANDIDATE: &str = "split-candidate";
/// The name of its baseline as a target.
pub(crate) const SPLIT_BASELINE: &str = "split-baseline";

/// When a copy is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CopyOrder {
    /// Once the upstream has answered, so both never run at once.
    #[default]
    After,
    /// As soon as the request is complete.
    Concurrent,
}

impl CopyOrder {
    /// The name in the configuration and on every surface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::After => "after",
            Self::Concurrent => "concurrent",
        }
    }
}

/// Whether something goes into copies and recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CopyRule {
    /// It does.
    Keep,
    /// It is left out.
    Remove,
}

/// Requests that may be sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "selection")]
pub struct OnlyThese {
    /// The route, as `/stats` names it.
    pub route: Option<String>,
    /// The model, if the path names it.
    pub model: Option<String>,
}

const ONLY: Record =
    Record { what: "a route and/or a model: route, model", keys: &[("route", Form::Text), ("model", Form::Text)], stand_in: &[] };

/// The section `shadow`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// The targets by name, at most 8: a server, or `engine:` and an ONNX file. `--shadow [NAME=]TARGET` adds one.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub targets: BTreeMap<String, ShadowTarget>,
    /// The share of requests that are copied.
    pub sample: Share,
    /// A header: requests that carry it are copied whatever the share.
    pub header: Switch<FieldName>,
    /// If there are any, only these requests are copied.
    pub only: Vec<OnlyThese>,
    /// Routes that are safe to repeat whatever is sent to them, as `/stats` names them, with `*` for any text. Of others only
    /// recognised calls are copied (docs/SHADOW.md).
    pub routes: Vec<String>,
    /// Routes, at most 32, of whose cost classes some copies a minute are taken besides the share. Needs `order: after`.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub quotas: Vec<RouteQuota>,
    /// When a copy is sent.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub order: CopyOrder,
    /// How long a target may take to answer; or `timeout_factor`, if that is longer.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub timeout: Period,
    /// How many times as long as the upstream a target may take for the same request.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub timeout_factor: u32,
    /// How many copies each target has in flight. Further ones wait up to a second, or not while none gets its turn, then are
    /// dropped.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub concurrency: usize,
    /// How many copied requests may wait for their body or answer.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub max_waiting: usize,
    /// The memory of all copied bodies, of requests and answers together.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub budget: Size,
    /// The largest body that is copied.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub max_body: Size,
    /// Which headers copies and recordings have, or not, besides a list (docs/SHADOW.md): by name or with `*` for any text. A name
    /// wins over a pattern, and of patterns one that removes.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub headers: BTreeMap<String, CopyRule>,
    /// Which query parameters and members of bodies are secrets, or are none (`keep`), besides those whose name says so
    /// (docs/SHADOW.md): by name or with `*` for any text.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub fields: BTreeMap<String, CopyRule>,
    /// The share of copied requests that go to the upstream a second time, so that what differs by itself is known.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub noise: Share,
    /// What turns another API's JSON into tensors of models that the engine runs (docs/SHADOW.md), at most 64. The first that fits
    /// counts.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub mappings: Vec<MappingRule>,
    /// How outputs are compared.
    #[schemars(extend("x-fixed-at-start" = true))]
    pub compare: lapwing_compare::outputs::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            targets: BTreeMap::new(),
            sample: "5%".parse().unwrap_or_else(|_| unreachable!("a share")),
            header: Switch::Off,
            only: Vec::new(),
            routes: Vec::new(),
            quotas: Vec::new(),
            order: CopyOrder::default(),
            timeout: Period::from_secs(30),
            timeout_factor: 3,
            concurrency: 8,
            max_waiting: 1024,
            budget: Size::mib(64),
            max_body: Size::mib(8),
            headers: BTreeMap::new(),
            fields: BTreeMap::new(),
            noise: "0%".parse().unwrap_or_else(|_| unreachable!("a share")),
            mappings: Vec::new(),
            compare: lapwing_compare::outputs::Config::default(),
        }
    }
}

/// How many targets there may be.
const MAX_TARGETS: usize = 8;
/// The longest name of a target, in bytes.
const MAX_NAME: usize = 64;

impl Config {
    /// Whether anything is copied.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.targets.is_empty()
    }

    /// Checks the names and patterns of `routes`, `headers` and `fields`.
    fn check_names(&self, checks: &mut Checks) {
        for (index, route) in self.routes.iter().enumerate() {
            let parts = route.split_once(' ').filter(|(method, path)| {
                http::Method::from_bytes(method.as_bytes()).is_ok() && (path.starts_with('/') || path.starts_with('*'))
            });
            if parts.is_none() {
                checks.fault(
                    &format!("routes[{index}]"),
                    route,
                    "must be a method and a path, as in POST /score or POST /score/*",
                );
            }
        }
        for (name, rule) in &self.headers {
            let path = format!("headers.{name}");
            if http::HeaderName::try_from(name.replace('*', "x")).is_err() {
                checks.fault(&path, name, "is not a header's name, nor a pattern of one");
            } else if *rule == CopyRule::Keep && is_never_kept(name) {
                checks.fault(
                    &path,
                    name,
                    "cannot be kept: it is about the request's own connection or trace, and a copy has its own",
                );
            }
        }
        for name in self.fields.keys().filter(|name| name.trim().is_empty()) {
            checks.fault(&format!("fields.{name}"), name, "is not a name");
        }
    }
}

impl Section for Config {
    const FORMS: &'static [(&'static str, Form)] = &[
        ("targets", Form::Named(&Form::Text)),
        ("only", Form::List(&ONLY)),
        ("routes", Form::Texts),
        ("quotas", Form::List(&quota::QUOTA)),
        ("headers", Form::Named(&Form::Text)),
        ("fields", Form::Named(&Form::Text)),
        ("mappings", Form::List(&MAPPING)),
        ("compare", Form::Section(lapwing_compare::outputs::Config::FORMS)),
    ];

    fn check(&self, checks: &mut Checks) {
        if self.targets.len() > MAX_TARGETS {
            checks.fault("targets", self.targets.len(), format!("there may be {MAX_TARGETS} targets"));
        }
        for name in self.targets.keys() {
            let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
            if name.is_empty() || name.len() > MAX_NAME || !is_plain {
                checks.fault(&format!("targets.{name}"), name, format!("a name has 1 to {MAX_NAME} letters, digits, - or _"));
            } else if name == UPSTREAM_AGAIN {
                checks.fault(&format!("targets.{name}"), name, "is the name of the upstream when it is asked a second time");
            } else if [SPLIT_CANDIDATE, SPLIT_BASELINE].contains(&name.as_str()) {
                checks.fault(&format!("targets.{name}"), name, "is the name of a side of a live split (split.compare)");
            }
        }
        for (index, only) in self.only.iter().enumerate() {
            if only.route.is_none() && only.model.is_none() {
                checks.fault(&format!("only[{index}]"), "", "needs a route or a model");
            }
        }
        quota::check(&self.quotas, &self.routes, checks);
        if !self.quotas.is_empty() && self.order == CopyOrder::Concurrent {
            checks.fault(
                "quotas",
                self.quotas.len(),
                "needs order: after, because a cost class is known once the request is answered",
            );
        }
        self.check_names(checks);
        if self.mappings.len() > MAX_MAPPINGS {
            checks.fault("mappings", self.mappings.len(), format!("must be at most {MAX_MAPPINGS}"));
        }
        for (index, mapping) in self.mappings.iter().enumerate() {
            mapping.check(checks, &format!("mappings[{index}]"), &self.routes, &self.targets);
        }
        checks.section("compare", |checks| self.compare.check(checks));
        checks.range("timeout", &self.timeout, Period::from_millis(1)..=Period::from_secs(3600));
        checks.range("timeout_factor", &self.timeout_factor, 1..=100);
        checks.range("concurrency", &self.concurrency, 1..=1024);
        checks.range("max_waiting", &self.max_waiting, 1..=65_536);
        checks.range("budget", &self.budget, Size::mib(1)..=Size::mib(16 * 1024));
        checks.range("max_body", &self.max_body, Size::kib(1)..=Size::mib(1024));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_records_are_their_fields() {
        ONLY.assert_describes::<OnlyThese>();
        quota::QUOTA.assert_describes::<RouteQuota>();
        MAPPING.assert_describes::<MappingRule>();
    }
}
