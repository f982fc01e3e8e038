//! Configuration of the comparison: tolerances, ignored fields, and what a route needs otherwise.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::paths::PathPattern;
use lapwing_settings::{AbsoluteTolerance, Checks, Form, Record, Section, Size};

/// The most paths in a list, and the most steps that a pattern may have (`PathPattern`).
const MAX_PATHS: usize = 64;

/// How far numbers may be apart.
const TOLERANCE: &[(&str, Form)] = &[("absolute", Form::Text), ("relative", Form::Number)];

/// The same in an element of `routes`.
const TOLERANCE_RECORD: Record = Record {
    what: "a section with absolute and relative, as in {absolute: 1e-3, relative: 1e-3}",
    keys: TOLERANCE,
    stand_in: &[],
};

/// An element of `routes`.
const ROUTE: Record = Record {
    what: "a section with route, and what differs there",
    keys: &[
        ("route", Form::Text),
        ("tolerance", Form::Record(&TOLERANCE_RECORD)),
        ("tensors", Form::Text),
        ("names", Form::Named(&Form::Text)),
        ("top_k", Form::Number),
        ("cosine", Form::Number),
        ("divergence", Form::Number),
        ("text", Form::Text),
        ("similarity", Form::Number),
        ("ignore", Form::Texts),
        ("unordered", Form::Texts),
    ],
    stand_in: &[("route", "/")],
};

/// The section `shadow.compare`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// How far numbers of tensors and JSON may be apart.
    pub tolerance: Tolerance,
    /// What decides whether tensors agree.
    pub tensors: TensorRule,
    /// The target's name of a tensor, by the upstream's.
    pub names: BTreeMap<String, String>,
    /// How many of a row's greatest values are compared.
    pub top_k: usize,
    /// The least cosine similarity at which embeddings agree, and tensors under `tensors: cosine`.
    pub cosine: f64,
    /// The greatest Kullback-Leibler divergence, in nats, at which rows agree under `tensors: divergence`.
    pub divergence: f64,
    /// What decides whether texts agree.
    pub text: TextRule,
    /// The least share of tokens that need no edit, under `text: similarity`.
    pub similarity: f64,
    /// JSON paths that are not compared, as `$.created`, `$.choices[].id` or `$..timestamp`; at most 64, as in the other lists of
    /// paths.
    pub ignore: Vec<String>,
    /// JSON paths of arrays whose order does not matter.
    pub unordered: Vec<String>,
    /// The largest body, after decompression, that is compared.
    pub max_decoded: Size,
    /// How many differing answers are kept with both payloads, by target and route, for the same machine or the token.
    pub keep_samples: usize,
    /// JSON paths whose values are `***` in kept payloads.
    pub redact: Vec<String>,
    /// What differs on some routes; the first that fits counts. What a rule does not name is as above; lists are added.
    pub routes: Vec<RouteRules>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tolerance: Tolerance::default(),
            tensors: TensorRule::default(),
            names: BTreeMap::new(),
            top_k: 1,
            cosine: 0.999,
            divergence: 0.01,
            text: TextRule::default(),
            similarity: 0.9,
            ignore: Vec::new(),
            unordered: Vec::new(),
            max_decoded: Size::mib(16),
            keep_samples: 0,
            redact: Vec::new(),
            routes: Vec::new(),
        }
    }
}

/// How far a number may be from the primary's `p`: at most `absolute + relative · |p|`, as in `numpy.isclose(candidate, p)`. Integers
/// must be the
/// same, unless either is given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Tolerance {
    /// The part that does not depend on the number. `auto` is 1e-3 of the field's scale (docs/SHADOW.md); integers must then be
    /// equal, unless `relative` is changed.
    pub absolute: AbsoluteTolerance,
    /// The part that grows with the upstream's number.
    pub relative: f64,
}

impl Tolerance {
    /// The share of the scale, and of the number, unless they are given.
    pub(crate) const DEFAULT: f64 = 1e-3;

    /// These bounds.
    #[must_use]
    pub const fn of(absolute: f64, relative: f64) -> Self {
        Self { absolute: AbsoluteTolerance::Of(absolute), relative }
    }
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { absolute: AbsoluteTolerance::Auto, relative: Self::DEFAULT }
    }
}

/// What decides whether two numeric tensors of one shape agree. All of it is measured in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TensorRule {
    /// Every element is within the tolerance.
    #[default]
    Tolerance,
    /// Every row has the same `top_k` greatest elements.
    TopK,
    /// Every row has at least this cosine similarity.
    Cosine,
    /// Every row is a distribution whose divergence from the primary's is at most this. Rows that are none are held to the tolerance.
    Divergence,
}

/// What decides whether two texts agree. All of it is measured in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TextRule {
    /// They are the same, byte by byte.
    #[default]
    Exact,
    /// They are the same but for case and white space.
    Normalised,
    /// Their token edit similarity is at least `similarity`.
    Similarity,
}

/// What differs on a route. A key that is not given is that of the section; lists are added to those of the section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
#[schemars(title = "rule")]
pub struct RouteRules {
    /// A path, or a method and a path, with `*` for any text: `POST /v2/models/*/infer`.
    pub route: String,
    /// How far numbers may be apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<Tolerance>,
    /// What decides whether tensors agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensors: Option<TensorRule>,
    /// The candidate's name of a tensor, by the primary's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, String>,
    /// How many of the greatest values of a row are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<usize>,
    /// The least cosine similarity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cosine: Option<f64>,
    /// The greatest divergence, in nats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divergence: Option<f64>,
    /// What decides whether texts agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<TextRule>,
    /// The least token edit similarity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub similarity: Option<f64>,
    /// Further paths that are not compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<String>,
    /// Further arrays whose order does not matter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unordered: Vec<String>,
}

impl Section for Config {
    const FORMS: &'static [(&'static str, Form)] = &[
        ("tolerance", Form::Section(TOLERANCE)),
        ("names", Form::Named(&Form::Text)),
        ("ignore", Form::Texts),
        ("unordered", Form::Texts),
        ("redact", Form::Texts),
        ("routes", Form::List(&ROUTE)),
    ];

    fn check(&self, checks: &mut Checks) {
        check_tolerance(checks, "", Some(&self.tolerance));
        checks.range("top_k", &self.top_k, 1..=32);
        checks.range("cosine", &self.cosine, -1.0..=1.0);
        checks.range("divergence", &self.divergence, 0.0..=1000.0);
        checks.range("similarity", &self.similarity, 0.0..=1.0);
        checks.range("max_decoded", &self.max_decoded, Size::kib(1)..=Size::mib(1024));
        checks.range("keep_samples", &self.keep_samples, 0..=64);
        check_paths(checks, "ignore", &self.ignore);
        check_paths(checks, "unordered", &self.unordered);
        check_paths(checks, "redact", &self.redact);
        for (index, route) in self.routes.iter().enumerate() {
            route.check(checks, &format!("routes[{index}]"));
        }
    }
}

impl RouteRules {
    fn check(&self, checks: &mut Checks, path: &str) {
        let at = |key: &str| format!("{path}.{key}");
        let (method, route) = self.route.split_once(' ').map_or(("POST", self.route.as_str()), |(m, p)| (m, p.trim_start()));
        if !route.starts_with(['/', '*'])
            || method.is_empty()
            || !method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'*')
        {
            checks.fault(&at("route"), &self.route, "must be a path or a method and a path, as in POST /v2/models/*/infer");
        }
        check_tolerance(checks, &format!("{path}."), self.tolerance.as_ref());
        checks.optional_range(&at("top_k"), self.top_k.as_ref(), 1..=32);
        checks.optional_range(&at("cosine"), self.cosine.as_ref(), -1.0..=1.0);
        checks.optional_range(&at("divergence"), self.divergence.as_ref(), 0.0..=1000.0);
        checks.optional_range(&at("similarity"), self.similarity.as_ref(), 0.0..=1.0);
        check_paths(checks, &at("ignore"), &self.ignore);
        check_paths(checks, &at("unordered"), &self.unordered);
    }
}

fn check_tolerance(checks: &mut Checks, section: &str, tolerance: Option<&Tolerance>) {
    let absolute = tolerance.and_then(|tolerance| tolerance.absolute.given());
    checks.optional_range(&format!("{section}tolerance.absolute"), absolute.as_ref(), 0.0..=1e9);
    checks.optional_range(&format!("{section}tolerance.relative"), tolerance.map(|tolerance| &tolerance.relative), 0.0..=1.0);
}

fn check_paths(checks: &mut Checks, key: &str, paths: &[String]) {
    if paths.len() > MAX_PATHS {
        checks.fault(key, paths.len(), format!("must be at most {MAX_PATHS} paths"));
    }
    for (index, path) in paths.iter().enumerate() {
        if let Err(reason) = PathPattern::parse(path) {
            checks.fault(&format!("{key}[{index}]"), path, reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn faults(config: &Config) -> Vec<String> {
        let mut checks = Checks::new(BTreeSet::new());
        config.check(&mut checks);
        checks.into_faults().iter().map(|fault| fault.path.clone()).collect()
    }

    #[test]
    fn the_keys_of_a_route_are_its_fields() {
        ROUTE.assert_describes::<RouteRules>();
        TOLERANCE_RECORD.assert_describes::<Tolerance>();
    }

    #[test]
    fn every_fault_is_named() {
        assert_eq!(faults(&Config::default()), [""; 0]);
        let route = RouteRules {
            route: "score".into(),
            tolerance: Some(Tolerance::of(f64::NAN, 0.0)),
            top_k: Some(0),
            ignore: vec!["$.a".into(), "a".into()],
            ..RouteRules::default()
        };
        let config = Config {
            tolerance: Tolerance::of(-1.0, 2.0),
            top_k: 33,
            cosine: 1.1,
            similarity: f64::NAN,
            keep_samples: 65,
            redact: vec!["$.a[".into()],
            routes: vec![route],
            ..Config::default()
        };
        let expected = [
            "tolerance.absolute",
            "tolerance.relative",
            "top_k",
            "cosine",
            "similarity",
            "keep_samples",
            "redact[0]",
            "routes[0].route",
            "routes[0].tolerance.absolute",
            "routes[0].top_k",
            "routes[0].ignore[1]",
        ];
        assert_eq!(faults(&config), expected);
    }
}
