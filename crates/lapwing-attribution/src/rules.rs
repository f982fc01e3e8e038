//! Maps names to stages: Server-Timing metrics, OTLP span names and span attributes.
//!
//! Names are compared without case, `-`, `_`, `.` and spaces. The user's configuration wins over the defaults, and a span's own
//! `lapwing.stage` attribute wins over everything. Totals (`total`, `request`, `app`, `handler`) map to no stage. A Server-Timing
//! look-up happens on the request path: it is one hash and, for names up to 64 bytes, no allocation.

use std::borrow::Cow;

use arrayvec::ArrayVec;
use rustc_hash::FxHashMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::cache_hit::CacheHitConfig;
use super::synonyms::SYNONYMS;
use lapwing_ledger::Stage;

/// The span attribute by which an upstream names the stage itself.
pub const STAGE_ATTRIBUTE: &str = "lapwing.stage";
/// Longer names are folded on the heap.
const NAME_BYTES: usize = 64;

/// Maps spans to a stage. All given parts must match; a rule with neither name nor attribute nor deployment matches nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "rule")]
pub struct SpanRule {
    /// The span's name, ignoring case; `*` stands for any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// An attribute that the span must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    /// The value of that attribute, as text; `*` stands for any text. Any value if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// A deployment of Ray Serve; `*` stands for any text. Only the spans of its replicas match, never the wait for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    /// The stage of spans that match.
    #[schemars(with = "ReportedStage")]
    pub stage: Stage,
}

/// The JSON Schema of a stage that a report may name.
pub(crate) struct ReportedStage;

impl JsonSchema for ReportedStage {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ReportedStage".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<_> = Stage::ALL.into_iter().filter(|stage| !stage.is_observed_only()).map(Stage::name).collect();
        json_schema!({"title": "stage", "enum": names})
    }
}

/// The names of stages, prepared for look-up.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Folded names of Server-Timing metrics: the defaults, overlaid by the user's.
    metrics: FxHashMap<Box<[u8]>, Stage>,
    /// Folded default names, for spans.
    defaults: FxHashMap<Box<[u8]>, Stage>,
    spans: Vec<SpanRule>,
    /// Where the upstream says what its feature cache answered.
    cache_hit: CacheHitConfig,
}

impl Default for Rules {
    fn default() -> Self {
        Self::new(std::iter::empty::<(&str, Stage)>(), [])
    }
}

impl Rules {
    /// The defaults, overlaid by the user's `server_timing` names and preceded by the user's `spans` rules (first match wins).
    #[must_use]
    pub fn new<N: AsRef<str>>(
        server_timing: impl IntoIterator<Item = (N, Stage)>,
        spans: impl IntoIterator<Item = SpanRule>,
    ) -> Self {
        let defaults: FxHashMap<Box<[u8]>, Stage> = SYNONYMS
            .iter()
            .flat_map(|(stage, names)| names.iter().map(|name| (Box::from(name.as_bytes()), *stage)))
            .chain(Stage::ALL.into_iter().map(|stage| (Box::from(stage.name().as_bytes()), stage)))
            // Lapwing alone measures them: another proxy's metrics, and Envoy's spans `ingress` and `egress`, divide nothing
            .filter(|(_, stage)| !matches!(stage, Stage::Ingress | Stage::Egress | Stage::Upstream))
            .collect();
        let mut metrics = defaults.clone();
        for (name, stage) in server_timing {
            metrics.insert(folded(name.as_ref()).collect(), stage);
        }
        Self { metrics, defaults, spans: spans.into_iter().collect(), cache_hit: CacheHitConfig::default() }
    }

    /// These rules, and `cache_hit` for what a feature cache answered.
    #[must_use]
    pub fn with_cache_hit(self, cache_hit: CacheHitConfig) -> Self {
        Self { cache_hit, ..self }
    }

    /// The field or attribute that says what a feature cache answered.
    pub(crate) const fn cache_hit(&self) -> &CacheHitConfig {
        &self.cache_hit
    }

    /// The attribute of spans that says what a feature cache answered, if one is configured.
    pub(crate) fn cache_attribute(&self) -> Option<&str> {
        self.cache_hit.span_attribute.on().map(String::as_str)
    }

    /// The stage of a Server-Timing metric; `None` for totals and unknown names.
    #[must_use]
    pub fn server_timing(&self, name: &str) -> Option<Stage> {
        look_up(&self.metrics, name)
    }

    /// The stage of a span; `attribute` returns the span's attributes as text.
    #[must_use]
    pub fn span<'a>(&self, name: &str, attribute: impl Fn(&str) -> Option<Cow<'a, str>>) -> Option<Stage> {
        self.own(name, attribute).or_else(|| self.by_default(name))
    }

    /// The stage that the span itself or the user's rules assign.
    pub(crate) fn own<'a>(&self, name: &str, attribute: impl Fn(&str) -> Option<Cow<'a, str>>) -> Option<Stage> {
        self.first(&attribute, |rule| rule.deployment.is_none() && rule.matches(name, &attribute))
    }

    /// The same for the span of a replica of `deployment`.
    pub(crate) fn of_replica<'a>(
        &self,
        name: &str,
        deployment: Option<&str>,
        attribute: impl Fn(&str) -> Option<Cow<'a, str>>,
    ) -> Option<Stage> {
        let fits = |rule: &SpanRule| rule.deployment.as_ref().is_none_or(|p| deployment.is_some_and(|found| matches(p, found)));
        self.first(&attribute, |rule| fits(rule) && rule.matches(name, &attribute))
    }

    /// The same for a span that only leads to other spans and has their attributes: only a rule for spans whose name begins like
    /// this one's applies, because a rule by attribute, or for any name, means the spans below.
    pub(crate) fn of_route<'a>(&self, name: &str, attribute: impl Fn(&str) -> Option<Cow<'a, str>>) -> Option<Stage> {
        let is_for_it = |rule: &SpanRule| rule.name.as_ref().is_some_and(|name| !name.starts_with('*'));
        self.first(&attribute, |rule| rule.deployment.is_none() && is_for_it(rule) && rule.matches(name, &attribute))
    }

    /// The stage of the span's own attribute, else of the first rule that `fits`.
    fn first<'a>(&self, attribute: impl Fn(&str) -> Option<Cow<'a, str>>, fits: impl Fn(&SpanRule) -> bool) -> Option<Stage> {
        if let Some(own) = attribute(STAGE_ATTRIBUTE)
            && let Some(stage) = look_up(&self.defaults, &own)
        {
            return Some(stage);
        }
        self.spans.iter().find(|rule| fits(rule)).map(|rule| rule.stage)
    }

    /// The stage by the whole name, else by its last part (`pipeline.tokenize`); never by the end of a route or a sentence, nor by
    /// the method that HTTP clients and servers name their spans after, which is no postprocessing.
    pub(crate) fn by_default(&self, name: &str) -> Option<Stage> {
        let known = |word: &str| if word == "POST" { None } else { look_up(&self.defaults, word) };
        known(name).or_else(|| {
            let (_, last) = name.rsplit_once(['.', ':'])?;
            let is_identifier = !name.contains(|c: char| c == '/' || c.is_whitespace());
            is_identifier.then(|| known(last)).flatten()
        })
    }
}

impl SpanRule {
    /// Whether name and attribute match.
    fn matches<'a>(&self, name: &str, attribute: impl Fn(&str) -> Option<Cow<'a, str>>) -> bool {
        if self.name.is_none() && self.attribute.is_none() && self.deployment.is_none() {
            return false;
        }
        let name_fits = self.name.as_ref().is_none_or(|pattern| matches(pattern, name));
        name_fits
            && self.attribute.as_ref().is_none_or(|key| {
                attribute(key).is_some_and(|found| self.value.as_ref().is_none_or(|pattern| matches(pattern, &found)))
            })
    }
}

/// The name's bytes in lower case, without the characters that spellings of one name differ in.
fn folded(name: &str) -> impl Iterator<Item = u8> {
    name.bytes().filter(|b| !matches!(b, b'-' | b'_' | b'.' | b' ')).map(|b| b.to_ascii_lowercase())
}

fn look_up(table: &FxHashMap<Box<[u8]>, Stage>, name: &str) -> Option<Stage> {
    let mut short = ArrayVec::<u8, NAME_BYTES>::new();
    if folded(name).try_for_each(|b| short.try_push(b)).is_ok() {
        return table.get(short.as_slice()).copied();
    }
    table.get(folded(name).collect::<Vec<u8>>().as_slice()).copied()
}

/// Whether `text` matches `pattern`, where `*` stands for any text and ASCII case is ignored.
fn matches(pattern: &str, text: &str) -> bool {
    let (p, t) = (pattern.as_bytes(), text.as_bytes());
    let (mut at_p, mut at_t) = (0, 0);
    let mut star: Option<(usize, usize)> = None; // the position of the last star, and how much text it covers
    while at_t < t.len() {
        if p.get(at_p) == Some(&b'*') {
            star = Some((at_p, at_t));
            at_p += 1;
        } else if p.get(at_p).is_some_and(|b| b.eq_ignore_ascii_case(&t[at_t])) {
            at_p += 1;
            at_t += 1;
        } else if let Some((star_p, star_t)) = star {
            star = Some((star_p, star_t + 1));
            at_p = star_p + 1;
            at_t = star_t + 1;
        } else {
            return false;
        }
    }
    p[at_p..].iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> Option<Cow<'static, str>> {
        None
    }

    fn rule(name: Option<&str>, attribute: Option<&str>, value: Option<&str>, stage: Stage) -> SpanRule {
        let [name, attribute, value] = [name, attribute, value].map(|part| part.map(str::to_owned));
        SpanRule { name, attribute, value, deployment: None, stage }
    }

    #[test]
    fn the_defaults_know_the_stages_by_their_usual_names_however_spelt() {
        let rules = Rules::default();
        for (name, stage) in [
            ("feature_hydration", Some(Stage::Hydration)),
            ("FeatureHydration", Some(Stage::Hydration)),
            ("pre-process", Some(Stage::Preprocessing)),
            ("tokenize", Some(Stage::Preprocessing)),
            ("Queue-Wait", Some(Stage::Queue)),
            ("model_forward", Some(Stage::Forward)),
            ("model.forward", Some(Stage::Forward)),
            ("post processing", Some(Stage::Postprocessing)),
            ("downstream", Some(Stage::Downstream)),
            ("total", None),
            ("app", None),
            ("request", None),
            ("handler", None),
            ("", None),
        ] {
            assert_eq!(rules.server_timing(name), stage, "{name}");
            assert_eq!(rules.span(name, none), stage, "{name}");
        }
    }

    #[test]
    fn the_users_names_win_over_the_defaults_and_may_be_long() {
        let long = "a_name_of_more_than_sixty_four_bytes_that_somebody_nevertheless_gave_to_a_metric";
        let rules = Rules::new([("Compute", Stage::Queue), (long, Stage::Hydration)], []);
        assert_eq!(rules.server_timing("compute"), Some(Stage::Queue));
        assert_eq!(rules.server_timing(long), Some(Stage::Hydration));
        assert_eq!(rules.server_timing(&long[1..]), None);
        assert_eq!(rules.span("compute", none), Some(Stage::Forward));
    }

    #[test]
    fn a_span_is_known_by_its_last_part_but_a_route_is_not() {
        let rules = Rules::default();
        assert_eq!(rules.span("Pipeline.tokenize", none), Some(Stage::Preprocessing));
        assert_eq!(rules.span("torch::forward", none), Some(Stage::Forward));
        assert_eq!(rules.span("POST /v1/predict", none), None);
        assert_eq!(rules.span("svc.Model/v1.predict", none), None);
    }

    #[test]
    fn a_method_is_no_stage_and_no_other_proxy_says_what_ingress_is() {
        let rules = Rules::default();
        for name in ["POST", "http.POST", "ingress", "egress", "upstream", "envoy.ingress"] {
            assert_eq!(rules.span(name, none), None, "{name}");
        }
        assert_eq!(rules.span("request", |_| Some(Cow::Borrowed("ingress"))), None);
        assert_eq!(rules.span("post", none), Some(Stage::Postprocessing));
        assert_eq!(rules.server_timing("POST"), Some(Stage::Postprocessing));
        assert_eq!(rules.server_timing("ingress"), None);
        assert_eq!(rules.server_timing("egress"), None);
    }

    #[test]
    fn the_spans_own_attribute_wins_then_the_first_rule_then_the_name() {
        let rules = Rules::new(
            std::iter::empty::<(&str, Stage)>(),
            [
                rule(Some("vec*look*"), None, None, Stage::Hydration),
                rule(None, Some("db.system"), Some("redis"), Stage::Hydration),
                rule(Some("forward"), Some("warm"), None, Stage::Queue),
                rule(None, None, Some("x"), Stage::Egress),
            ],
        );
        let with = |key: &'static str, value: &'static str| move |k: &str| (k == key).then_some(Cow::Borrowed(value));
        assert_eq!(rules.span("VectorLookup", none), Some(Stage::Hydration));
        assert_eq!(rules.span("GET", with("db.system", "redis")), Some(Stage::Hydration));
        assert_eq!(rules.span("GET", with("db.system", "mysql")), None);
        assert_eq!(rules.span("forward", with("warm", "true")), Some(Stage::Queue));
        assert_eq!(rules.span("forward", none), Some(Stage::Forward));
        assert_eq!(rules.span("vectorlookup", with(STAGE_ATTRIBUTE, "Postprocessing")), Some(Stage::Postprocessing));
        assert_eq!(rules.span("forward", with(STAGE_ATTRIBUTE, "nonsense")), Some(Stage::Forward));
    }

    #[test]
    fn a_rule_for_a_deployment_is_for_its_replicas_alone() {
        let deployment = |pattern: &str, stage| SpanRule { deployment: Some(pattern.into()), ..rule(None, None, None, stage) };
        let rules = Rules::new(
            std::iter::empty::<(&str, Stage)>(),
            [
                deployment("Tok*", Stage::Preprocessing),
                rule(None, Some("deployment"), Some("Old"), Stage::Hydration),
                rule(Some("route_to_replica Slow*"), None, None, Stage::Downstream),
                rule(Some("*Any*"), None, None, Stage::Postprocessing),
            ],
        );
        let with = |value: &'static str| move |k: &str| (k == "deployment").then_some(Cow::Borrowed(value));
        assert_eq!(rules.of_replica("replica", Some("Tokenise"), with("Tokenise")), Some(Stage::Preprocessing));
        assert_eq!(rules.of_replica("replica", Some("Old"), with("Old")), Some(Stage::Hydration));
        assert_eq!(rules.of_replica("replica", None, none), None);
        assert_eq!(rules.own("replica", with("Tokenise")), None);
        for (name, deployment, stage) in [
            ("route_to_replica Tokenise", "Tokenise", None),
            ("route_to_replica Old", "Old", None),
            ("route_to_replica Any", "Any", None),
            ("route_to_replica Slow", "Slow", Some(Stage::Downstream)),
        ] {
            assert_eq!(rules.of_route(name, with(deployment)), stage, "{name}");
        }
    }

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abcdef", false),
            ("*ab", "aab", true),
            ("", "", true),
            ("", "a", false),
            ("abc", "ABC", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }
}
