//! docs/CONFIGURATION.md and examples/lapwing.yaml cannot rot: they are held against the configuration itself.

use std::collections::BTreeMap;
use std::path::Path as FilePath;

use crate::config::path::Path;
use crate::config::*;

fn root(name: &str) -> std::path::PathBuf {
    FilePath::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The rows of keys: kind, default, range, variable.
fn rows() -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(root("docs/CONFIGURATION.md")).unwrap();
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains("`LAPWING_") && line.starts_with("| `")) {
        let cells: Vec<String> = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        assert_eq!(cells.len(), 5, "{line}");
        let key = cells[0].split('`').nth(1).unwrap().to_owned();
        assert!(rows.insert(key.clone(), cells).is_none(), "{key} stands there twice");
    }
    if !cfg!(feature = "engine") {
        rows.retain(|key, _| !key.starts_with("engine."));
        // the section itself, which has no keys here
        rows.insert("engine".to_owned(), ["`engine`", "", "`{}`", "", "`LAPWING_ENGINE`"].map(str::to_owned).into());
    }
    rows
}

#[test]
fn the_document_has_every_key_with_its_default_and_variable() {
    let rows = rows();
    let defaults = serde_json::to_value(Config::default()).unwrap();
    let mut keys = Vec::new();
    ordered::Ordered::of(&Config::default()).leaves(&Path::default(), &mut |path| keys.push(path.to_string()));
    for key in &keys {
        let row = rows.get(key).unwrap_or_else(|| panic!("docs/CONFIGURATION.md does not tell of {key}"));
        let default = key.split('.').fold(&defaults, |at, key| &at[key]);
        let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
        let told = if key == "upstream" { "none: required".to_owned() } else { format!("`{default}`") };
        assert_eq!(row[2], told, "the default of {key}");
        assert_eq!(row[4], format!("`{}`", sources::variable(key)));
    }
    let unknown: Vec<_> = rows.keys().filter(|key| !keys.contains(key)).collect();
    assert!(unknown.is_empty(), "no such keys: {unknown:?}");
}

#[test]
fn the_ranges_of_the_document_are_those_of_the_checks() {
    let number = |text: &str| text.replace([',', ' '], "").replace("min", "m");
    for (key, row) in rows() {
        let Some((low, high)) = row[3].split_once(" to ").filter(|_| !row[3].contains('`')) else { continue };
        let high = number(high);
        let unit = if high.ends_with(['m', 'h']) { "s" } else { "" };
        let low = if low == "0" { format!("0{unit}") } else { number(low) };
        // to the edge and no further
        let sources = |value: &str| {
            let env =
                [("LAPWING_UPSTREAM", "http://m:1"), ("LAPWING_ATTRIBUTION__QUIET", "0s"), (&sources::variable(&key), value)];
            Sources { env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(), ..Sources::default() }
        };
        for edge in [&low, &high] {
            assert!(load(&sources(edge)).is_ok(), "{key}: {edge}: {:?}", load(&sources(edge)));
        }
        let refused = |value: &str| {
            let faults = load(&sources(value)).unwrap_err();
            assert!(faults[0].reason.contains("between"), "{key}: {value}: {faults:?}");
        };
        refused(&more(&high));
        if !low.starts_with('0') {
            refused(&low.replace(|c: char| c.is_ascii_digit(), "0"));
        }
    }
}

/// Just above `text`.
fn more(text: &str) -> String {
    if text.parse::<u64>().is_ok() {
        return (text.parse::<u64>().unwrap() + 1).to_string();
    }
    match text.parse::<lapwing_settings::Size>() {
        Ok(size) => (size.get() + 1).to_string(),
        Err(_) => format!("{text}1ns"),
    }
}

#[test]
fn the_example_has_neither_faults_nor_warnings() {
    let sources = Sources { file: Some(root("examples/lapwing.yaml")), ..Sources::default() };
    let loaded = load(&sources).unwrap();
    assert_eq!(loaded.warnings, [""; 0]);
    assert_eq!(loaded.config.attribution.spans.len(), 3);
    assert!(!loaded.render().contains("change-me"));
}
