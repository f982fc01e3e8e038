//! docs/CONFIGURATION.md, examples/lapwing.schema.json and examples/lapwing.yaml cannot rot: they are held against the types.

use std::path::Path as FilePath;

use serde_json::{Value as Json, json};

use crate::config::file_schema::{accepts, properties, ranges, value_part};
use crate::config::schema::Schema;
use crate::config::*;

fn root(name: &str) -> std::path::PathBuf {
    FilePath::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

#[cfg(feature = "engine")]
#[test]
fn the_page_and_the_schema_in_the_repository_are_those_of_the_types() {
    let read = |name: &str| std::fs::read_to_string(root(name)).unwrap();
    let page = read("docs/CONFIGURATION.md");
    let filled = SettingTables::of::<Config>(&crate::app::cli::setting_flags()).fill(&page).unwrap();
    let stale = page.lines().zip(filled.lines()).find(|(is, should)| is != should);
    assert!(page == filled, "`lapwing schema --markdown docs/CONFIGURATION.md` gives another page: {stale:#?}");
    let schema: Json = serde_json::from_str(&read("examples/lapwing.schema.json")).unwrap();
    assert!(schema == json_schema_of_file(), "examples/lapwing.schema.json is not what `lapwing schema` prints");
}

/// The keys that one of both has alone, by path.
fn keys_of_one(node: &Json, forms: &Schema, path: &str, found: &mut Vec<String>) {
    let node = value_part(node);
    match forms {
        Schema::Section { keys, .. } => {
            assert_eq!(node["additionalProperties"], false, "{path} takes unknown keys");
            let properties = properties(node).cloned().unwrap_or_default();
            found.extend(
                properties.keys().filter(|key| !keys.iter().any(|(own, _)| own == *key)).map(|key| format!("{path}.{key}")),
            );
            for (key, inner) in keys {
                match properties.get(key) {
                    Some(node) => keys_of_one(node, inner, &format!("{path}.{key}"), found),
                    None => found.push(format!("{path}.{key}")),
                }
            }
        }
        Schema::List { element, .. } => keys_of_one(&node["items"], element, &format!("{path}[]"), found),
        Schema::Named { value, .. } => keys_of_one(&node["additionalProperties"], value, &format!("{path}.*"), found),
        Schema::Number => assert!(accepts(node, "number") || accepts(node, "integer"), "{path} takes no number: {node}"),
        Schema::Flag => assert!(accepts(node, "boolean"), "{path} takes no switch: {node}"),
        Schema::Text | Schema::Literal | Schema::Secret => {
            let is_choice = node["enum"].is_array() || node["oneOf"].is_array();
            assert!(is_choice || accepts(node, "string") || accepts(node, "number"), "{path} takes no text: {node}");
        }
    }
}

#[test]
fn the_schema_has_the_keys_that_the_loader_reads() {
    let (mut schema, forms) = (json_schema_of_file(), Schema::of::<Config>());
    let mut found = Vec::new();
    keys_of_one(&schema, &forms, "", &mut found);
    assert!(found.is_empty(), "not in both: {found:?}");
    schema["properties"]["proxy"]["properties"].as_object_mut().unwrap().remove("workers");
    schema["properties"]["protocol"]["properties"]["custom"]["items"]["properties"]["colour"] = json!({"type": "string"});
    keys_of_one(&schema, &forms, "", &mut found);
    assert_eq!(found, [".protocol.custom[].colour", ".proxy.workers"]);
}

#[test]
fn keys_are_described_and_have_their_defaults_and_ranges() {
    let schema = json_schema_of_file();
    let of = |path: &str| path.split('.').fold(&schema, |node, key| &value_part(node)["properties"][key]);
    assert_eq!(of("proxy.workers")["minimum"], 0);
    assert_eq!((&of("proxy.workers")["maximum"], &of("proxy.workers")["default"]), (&json!(64), &json!(0)));
    let timeout = of("proxy.connect_timeout");
    assert!(timeout["description"].as_str().unwrap().ends_with("Range: 1ms to 10m."), "{timeout}");
    assert_eq!(timeout["default"], "5s");
    assert_eq!(value_part(of("proxy.max_header_bytes"))["maximum"], 1 << 20);
    assert_eq!(value_part(of("metrics.native_schema"))["minimum"], -4);
    assert!(of("upstream").get("default").is_none(), "it is required");
    let optimum = &value_part(of("cost.models"))["additionalProperties"]["properties"];
    assert_eq!(optimum["ns_per_unit"]["maximum"], json!(1_000_000_000_000_i64));
    let quota = &value_part(of("shadow.quotas"))["items"]["properties"]["per_minute"];
    assert_eq!((&quota["minimum"], &quota["maximum"]), (&json!(1), &json!(60_000)));
    let mut undescribed = Vec::new();
    described(&schema, "", &mut undescribed);
    assert!(undescribed.is_empty(), "no comment: {undescribed:?}");
}

fn described(node: &Json, path: &str, missing: &mut Vec<String>) {
    let node = value_part(node);
    for (key, inner) in properties(node).into_iter().flatten() {
        let path = format!("{path}.{key}");
        if inner["description"].as_str().is_none_or(str::is_empty) {
            missing.push(path.clone());
        }
        described(inner, &path, missing);
    }
    for part in ["items", "additionalProperties"].iter().filter(|part| node[**part].is_object()) {
        described(&node[*part], path, missing);
    }
}

#[test]
fn what_is_within_a_range_is_read_and_what_is_beyond_is_not() {
    let ranges = ranges::<Config>();
    assert!(ranges.contains_key("cost.models.*.ns_per_unit"), "lists and names have an element: {ranges:?}");
    for (key, (low, high)) in ranges.iter().filter(|(key, _)| !key.contains(['*', '['])) {
        // to the edge and no further
        let sources = |value: &str| {
            let (upstream, quiet) = (("LAPWING_UPSTREAM", "http://m:1"), ("LAPWING_ATTRIBUTION__QUIET", "0s"));
            // memory for the largest answers, or the smallest answers for least memory
            let bytes = key == "cache.max_bytes";
            let cache = if bytes { ("LAPWING_CACHE__MAX_ENTRY", "1KiB") } else { ("LAPWING_CACHE__MAX_BYTES", "4GiB") };
            let env = [upstream, quiet, cache, ("LAPWING_TRIAL__DROP", "0s"), (&sources::variable(key), value)];
            Sources { env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(), ..Sources::default() }
        };
        let edges = if key == "engine.min_wait" { vec![low] } else { vec![low, high] };
        for edge in edges {
            assert!(load(&sources(edge)).is_ok(), "{key}: {edge}: {:?}", load(&sources(edge)));
        }
        let refused = |value: &str| {
            let faults = load(&sources(value)).unwrap_err();
            assert!(faults[0].reason.contains("between"), "{key}: {value}: {faults:?}");
        };
        refused(&more(high));
        if !low.starts_with(['0', '-']) {
            refused(&low.replace(|c: char| c.is_ascii_digit(), "0"));
        }
    }
}

/// Just above `text`.
fn more(text: &str) -> String {
    if let Ok(number) = text.parse::<u64>() {
        return (number + 1).to_string();
    }
    if let Some(percent) = text.strip_suffix('%') {
        return format!("{percent}.1%");
    }
    match (text.parse::<lapwing_settings::Size>(), text.parse::<lapwing_settings::Period>()) {
        (Ok(size), _) => (size.get() + 1).to_string(),
        (_, Ok(_)) => format!("{text}1ns"),
        _ => panic!("{text}"),
    }
}

#[test]
fn a_page_that_has_no_place_for_a_key_is_refused() {
    let tables = SettingTables::of::<Config>(&["proxy.workers".to_owned()].into());
    let text = tables.markdown();
    assert!(text.contains("\n`proxy.workers`† ⚑ | number | `0` | 0–64 | How many threads"), "{text}");
    let page = "a\n<!-- settings: top level -->\nold\n<!-- end of settings -->\nb\n";
    assert!(tables.fill(page).unwrap_err().starts_with("no table for tls."), "{:?}", tables.fill(page));
    assert!(tables.fill("<!-- settings: proxy -->").unwrap_err().contains("has no"));
}

#[test]
fn the_example_has_neither_faults_nor_warnings() {
    let sources = Sources { file: Some(root("examples/lapwing.yaml")), ..Sources::default() };
    let loaded = load(&sources).unwrap();
    assert_eq!(loaded.warnings, [""; 0]);
    assert_eq!(loaded.config.attribution.spans.len(), 3);
    assert!(!loaded.render().contains("change-me"));
}
