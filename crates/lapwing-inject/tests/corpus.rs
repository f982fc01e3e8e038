//! Manifests as people publish them (`tests/fixtures/manifests`): what is found in each, that only the sidecar comes in, that a second run
//! changes nothing, and that removal gives the text back.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fs;
use std::path::PathBuf;

use lapwing_inject::{InjectOptions, InjectVerdict, Manifest, Way, inject, remove};
use serde_json::Value;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/manifests")
}

/// A row of the answer key, which was written by hand.
struct Expected {
    file: String,
    title: String,
    container: String,
    port: String,
    way: String,
    refused: String,
}

fn expected() -> Vec<Expected> {
    let text = fs::read_to_string(folder().join("expected.tsv")).unwrap();
    let row = |line: &str| {
        let [file, kind, name, container, _server, port, way, refused] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let [file, container, port, way, refused] = [file, container, port, way, refused].map(str::to_owned);
        Expected { file, title: format!("{kind}/{name}"), container, port, way, refused }
    };
    text.lines().skip(1).map(row).collect()
}

#[test]
fn each_server_is_found_with_its_port_and_way() {
    let mut faults = Vec::new();
    for row in expected() {
        let text = fs::read_to_string(folder().join(&row.file)).unwrap();
        let made = inject(&text, &InjectOptions::default()).unwrap();
        let report = made.reports.iter().find(|report| report.title == row.title);
        let done = report.filter(|report| report.verdict == InjectVerdict::Injected).map(|report| report.lines.join("; "));
        let wanted = [format!("in container {}, port {} (", row.container, row.port), format!("way {}", row.way)];
        let is_right = match &done {
            Some(lines) => row.refused == "-" && wanted.iter().all(|wanted| lines.contains(wanted)),
            None => row.refused != "-",
        };
        if !is_right {
            faults.push(format!("{} {}: {wanted:?}, refused {}, is {report:?}", row.file, row.title, row.refused));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Each way, and all else that an injection may add.
fn every_option() -> Vec<InjectOptions> {
    let ways = [None, Some(Way::Named), Some(Way::Redirect), Some(Way::Service)];
    let mut all: Vec<InjectOptions> = ways.into_iter().map(|way| InjectOptions { way, ..InjectOptions::default() }).collect();
    all.push(InjectOptions { gpu: true, share_processes: true, memory: "2Gi".parse().unwrap(), ..InjectOptions::default() });
    all.push(InjectOptions { reporting: true, config_map: Some("settings".parse().unwrap()), ..InjectOptions::default() });
    all
}

/// Every file that can be injected, with each way that it can be.
fn injected() -> Vec<(String, InjectOptions, String, String)> {
    let mut all = Vec::new();
    let mut files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files.iter().filter(|path| path.extension().is_some_and(|kind| kind == "yaml" || kind == "json")) {
        let text = fs::read_to_string(path).unwrap();
        for options in every_option() {
            let made = inject(&text, &options).unwrap();
            if made.reports.iter().any(|report| report.verdict == InjectVerdict::Injected) {
                let name = format!("{} {options:?}", path.file_name().unwrap().to_str().unwrap());
                all.push((name, options, text.clone(), made.text));
            }
        }
    }
    assert!(all.len() > 200, "{} injections", all.len());
    all
}

#[test]
fn a_second_run_changes_nothing_and_removal_gives_the_text_back() {
    for (name, options, before, after) in injected() {
        let again = inject(&after, &options).unwrap();
        assert!(again.text == after, "{name}");
        assert!(again.reports.iter().all(|report| report.verdict != InjectVerdict::Injected), "{name}: {:?}", again.reports);
        // a word that had quotes, and was a number meanwhile, comes back without
        let back = remove(&after).unwrap().text;
        let different = back.lines().zip(before.lines()).find(|(back, before)| back.replace('"', "") != before.replace('"', ""));
        assert!(different.is_none() && back.lines().count() == before.lines().count(), "{name}: {different:?}");
    }
}

/// The places at which two values differ, of those that are in the first: what is new below is not among them.
fn changed(before: &Value, after: &Value, path: &str, found: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                match after.get(key) {
                    Some(after) => changed(value, after, &format!("{path}/{key}"), found),
                    None => found.push(format!("{path}/{key} is gone")),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() <= after.len() => {
            for (at, (before, after)) in before.iter().zip(after).enumerate() {
                changed(before, after, &format!("{path}/{at}"), found);
            }
        }
        _ if before == after => {}
        (Value::Null, _) => {}
        _ => found.push(path.to_owned()),
    }
}

#[test]
fn nothing_else_changes() {
    for (name, options, before, after) in injected() {
        let mut found = Vec::new();
        for (before, after) in Manifest::read(&before).unwrap().values().zip(Manifest::read(&after).unwrap().values()) {
            changed(before, after, "", &mut found);
        }
        // the named way: the port's number and the probes that named it; the way by Services: where these lead
        let may_take_name = matches!(options.way, None | Some(Way::Named));
        let may_lead = options.way != Some(Way::Redirect);
        let is_meant = |path: &String| {
            let named = ["/containerPort", "/httpGet/port", "/tcpSocket/port"].iter().any(|end| path.ends_with(end));
            (named && may_take_name) || (path.ends_with("/targetPort") && may_lead)
        };
        found.retain(|path| !is_meant(path));
        assert_eq!(found, Vec::<String>::new(), "{name}");
    }
}
