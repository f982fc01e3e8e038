//! Lists, and names that the user chooses: the messages for a bad element, an unknown key and a misspelt one.

use super::{case, faults};
use crate::config::schema::Schema;
use crate::config::*;
use lapwing_settings::fields_of;

const FILE: &str = "(file l.yaml)";

/// The faults of `key: value` in the section `section`, without their origin.
fn told(section: &str, value: &str) -> Vec<String> {
    let faults = faults(&format!("{section}: {{{value}}}"));
    faults.lines().map(|line| line.trim_end_matches(FILE).trim_end().to_owned()).collect()
}

const RULE: &str = "must be a rule: route, and at least one of model, rows, entities, input_tokens, output_tokens and elements";
const SPAN_RULE: &str = "must be a rule: name, attribute (and value) and/or deployment, and stage";
const AMOUNT: &str = "must be a section with one of json, header, length and fixed";
const FLOPS: &str = "must be a section of FLOPs by unit, as in {per_row: 2.4e6}";

#[test]
fn an_element_of_the_wrong_kind_is_one_fault_that_says_what_is_expected() {
    for (section, value, expected) in [
        ("protocol", "custom: [5]", format!("protocol.custom[0]: 5: {RULE}")),
        ("protocol", "custom: [[a]]", format!("protocol.custom[0]: a list: {RULE}")),
        ("protocol", "custom: {route: /x}", "protocol.custom: a section: must be a list".to_owned()),
        ("protocol", "custom: [{route: /x, rows: 5}]", format!("protocol.custom[0].rows: 5: {AMOUNT}")),
        ("protocol", "custom: [{route: /x, rows: [/a]}]", format!("protocol.custom[0].rows: a list: {AMOUNT}")),
        ("protocol", "custom: [{route: [x], rows: {fixed: 1}}]", "protocol.custom[0].route: a list: must be text".to_owned()),
        ("protocol", "flops: {m: 5}", format!("protocol.flops.m: 5: {FLOPS}")),
        ("protocol", "flops: {m.1: [5]}", format!("protocol.flops.m.1: a list: {FLOPS}")),
        ("protocol", "flops: [5]", "protocol.flops: a list: must be a section of keys".to_owned()),
        ("protocol", "tokenizers: {m.1: [a]}", "protocol.tokenizers.m.1: a list: must be the path of a file".to_owned()),
        ("attribution", "spans: [5]", format!("attribution.spans[0]: 5: {SPAN_RULE}")),
        ("attribution", "spans: {name: a}", "attribution.spans: a section: must be a list".to_owned()),
        ("attribution", "server_timing: [a]", "attribution.server_timing: a list: must be a section of keys".to_owned()),
        #[cfg(feature = "engine")]
        ("engine", "models: {m.1: {a: b}}", "engine.models.m.1: a section: must be the path of a file".to_owned()),
        #[cfg(feature = "engine")]
        ("engine", "models: [a.onnx]", "engine.models: a list: must be a section of keys".to_owned()),
    ] {
        assert_eq!(told(section, value), [expected], "{section}: {value}");
    }
    let stage = told("attribution", "server_timing: {tok.en: [a]}");
    assert!(stage.len() == 1 && stage[0].starts_with("attribution.server_timing.tok.en: a list: must be "), "{stage:?}");
}

#[test]
fn the_elements_behind_a_bad_one_are_looked_at_too() {
    let told = told("protocol", "custom: [5, {route: x, rows: {fixed: 1}}]");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].starts_with("protocol.custom[1].route: x: must be a path"), "{told:?}");
}

#[test]
fn unknown_keys_of_elements_are_met_with_keys_of_elements() {
    let rule = |keys: &str| format!("custom: [{{route: /x, model: {{fixed: 2}}, {keys}}}]");
    for (section, value, meant) in [
        ("protocol", rule("rowz: {fixed: 1}"), Some("protocol.custom[0].rows")),
        ("protocol", rule("inputTokens: {fixed: 1}"), Some("protocol.custom[0].input_tokens")),
        ("protocol", rule("rows: {fixed: 1, form: response}"), Some("protocol.custom[0].rows.from")),
        ("protocol", rule("rows: {fixed: 1, headr: x}"), Some("protocol.custom[0].rows.header")),
        ("protocol", rule("stage: forward"), None),
        ("protocol", rule("colour: red"), None),
        ("protocol", "flops: {m.1: {per_row: 1, per_input_tokn: 1}}".to_owned(), Some("protocol.flops.m.1.per_input_token")),
        ("protocol", "flops: {m: {per_row: 1, stage: 1}}".to_owned(), None),
        ("attribution", "spans: [{nmae: a, stage: queue}]".to_owned(), Some("attribution.spans[0].name")),
        ("attribution", "spans: [{name: a, stage: queue, attributes: b}]".to_owned(), Some("attribution.spans[0].attribute")),
        ("attribution", "spans: [{name: a, stage: queue, rows: 1}]".to_owned(), None),
        ("attribution", "foo: 1".to_owned(), None),
        ("attribution", "graze: 1s".to_owned(), Some("attribution.grace")),
    ] {
        let told = told(section, &value);
        let reason = meant.map_or("unknown key".to_owned(), |key| format!("unknown key; did you mean `{key}`?"));
        assert!(told.iter().any(|line| line.ends_with(&reason)), "{section}: {value}: {told:?}");
    }
    let variable = case("", &[("LAPWING_PROXY_WORKERS", "2")], &[("upstream", "http://m:1")]);
    let told = load(&variable.sources).unwrap_err()[0].to_string();
    assert_eq!(told, "proxy_workers: unknown key; did you mean `LAPWING_PROXY__WORKERS`? (env LAPWING_PROXY_WORKERS)");
}

/// The default of a key that holds a list or names is empty, so its section must declare what it holds.
#[test]
fn every_list_and_every_section_of_names_has_a_form() {
    fn assert_forms(defaults: &serde_json::Value, schema: &Schema, path: &str) {
        for (key, node) in schema.keys() {
            let (default, path) = (&defaults[key], format!("{path}.{key}"));
            match node {
                Schema::Named { .. } => assert_eq!(default, &serde_json::json!({}), "{path}"),
                Schema::List { .. } => assert_eq!(default, &serde_json::json!([]), "{path}"),
                Schema::Section { .. } => assert!(default != &serde_json::json!({}) || key == "engine", "{path} needs a form"),
                _ => assert!(!default.is_array() && !default.is_object(), "{path} needs a form"),
            }
            assert_forms(default, node, &path);
        }
    }
    assert_forms(&serde_json::to_value(Config::default()).unwrap(), &Schema::of::<Config>(), "");
}

/// A field that is not written where it has its default would be unknown to the schema.
#[test]
fn the_schema_has_every_field() {
    let keys = |schema: &Schema| schema.keys().map(|(key, _)| key.to_owned()).collect::<Vec<_>>();
    let schema = Schema::of::<Config>();
    let below = |key: &str| keys(schema.at(&schema.path(key).0).unwrap());
    let sorted = |mut fields: Vec<&'static str>| {
        fields.sort_unstable();
        fields
    };
    assert_eq!(keys(&schema), sorted(fields_of::<Config>()));
    assert_eq!(below("proxy"), sorted(fields_of::<lapwing_proxy::Config>()));
    assert_eq!(below("proxy.amend"), sorted(fields_of::<lapwing_protocol::amend::AmendOptions>()));
    assert_eq!(below("protocol"), sorted(fields_of::<lapwing_protocol::Config>()));
    assert_eq!(below("attribution"), sorted(fields_of::<lapwing_attribution::Config>()));
    assert_eq!(below("metrics"), sorted(fields_of::<lapwing_metrics::Config>()));
    #[cfg(feature = "engine")]
    {
        assert_eq!(below("engine"), sorted(fields_of::<crate::serving::Config>()));
        assert_eq!(keys(&Schema::of::<EngineConfig>()), sorted(fields_of::<EngineConfig>()));
    }
}

#[test]
fn paths_through_names_with_dots_are_found() {
    let schema = Schema::of::<Config>();
    for (text, steps) in [
        ("upstreams.a.1.tls.ca", &["upstreams", "a.1", "tls", "ca"][..]),
        ("upstreams.a.tls", &["upstreams", "a", "tls"]),
        ("upstreams.x.url.weight", &["upstreams", "x.url", "weight"]),
        ("upstreams.a.nothing", &["upstreams", "a.nothing"]),
        ("telemetry.headers.x.y", &["telemetry", "headers", "x.y"]),
        ("protocol.flops.org/m-1.5.per_row", &["protocol", "flops", "org/m-1.5", "per_row"]),
    ] {
        let found: Vec<_> = schema.path(text).0.into_iter().map(|step| format!("{step:?}")).collect();
        let wanted: Vec<_> = steps.iter().map(|step| format!("Key({step:?})")).collect();
        assert_eq!(found, wanted, "{text}");
    }
}
