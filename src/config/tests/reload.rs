//! A configuration that is loaded again: what is in force then, and what the user is told.

use super::*;

const BEFORE: &str = "upstream: http://m:1\nlog: info\nproxy: {workers: 2, max_header_bytes: 32KiB}\n\
                      otlp_forward: http://o:1\notlp_forward_headers: {authorization: first-secret}\n";

/// What is in force once `after` has replaced [`BEFORE`].
fn reloaded(after: &str) -> Result<Reloaded, String> {
    let before = case(BEFORE, &[], &[]).loaded();
    let after = case(after, &[], &[]);
    reload(&after.sources, &before).map_err(|faults| after.text(&faults))
}

fn named(paths: &[String]) -> Vec<&str> {
    paths.iter().map(String::as_str).collect()
}

#[test]
fn new_values_are_in_force_and_what_is_fixed_at_the_start_keeps_its_own() {
    let after = "upstream: http://other:1\nlog: warn\nproxy: {workers: 4, connect_timeout: 1s}\nrespond_server_timing: true\n\
                 otlp_forward: http://o:1\notlp_forward_headers: {authorization: other-secret}\n";
    let Reloaded { loaded, changed, needs_restart } = reloaded(after).unwrap();
    assert_eq!(named(&changed), ["log", "proxy.connect_timeout", "proxy.max_header_bytes", "respond_server_timing"]);
    assert_eq!(named(&needs_restart), ["otlp_forward_headers", "proxy.workers", "upstream"]);
    let before = case(BEFORE, &[], &[]).loaded().config;
    let config = &loaded.config;
    assert_eq!((&config.upstream, config.proxy.workers), (&before.upstream, 2));
    assert_eq!(config.otlp_forward_headers, before.otlp_forward_headers);
    assert_eq!((config.log.as_str(), config.respond_server_timing), ("warn", true));
    assert_eq!(
        config.proxy.max_header_bytes,
        Config::default().proxy.max_header_bytes,
        "a key that is gone is the default again"
    );
    let text = format!("{}\n{}\n{loaded:?}", loaded.render(), loaded.masked_json());
    assert!(!text.contains("first-secret") && !text.contains("other-secret"), "{text}");
}

#[test]
fn origins_are_those_of_the_values_in_force() {
    let after = case("log: warn\n", &[], &[("upstream", "http://other:1")]);
    let loaded = reload(&after.sources, &case(BEFORE, &[], &[]).loaded()).unwrap().loaded;
    let json = loaded.masked_json();
    let origin = |path: &str| json["origins"][path].as_str().unwrap().split(' ').next().unwrap().to_owned();
    assert_eq!((origin("upstream"), origin("log"), origin("proxy.workers")), ("file".into(), "file".into(), "file".into()));
    assert_eq!((origin("respond_server_timing"), origin("proxy.connect_timeout")), ("default".into(), "default".into()));
}

#[test]
fn a_later_reload_is_held_against_what_is_in_force() {
    let before = case(BEFORE, &[], &[]).loaded();
    let moved = case(&BEFORE.replace("workers: 2", "workers: 4"), &[], &[]);
    let first = reload(&moved.sources, &before).unwrap();
    assert_eq!((first.changed.len(), named(&first.needs_restart)), (0, vec!["proxy.workers"]));
    let again = reload(&moved.sources, &first.loaded).unwrap();
    assert_eq!((again.changed.len(), named(&again.needs_restart)), (0, vec!["proxy.workers"]), "it still waits for a restart");
    let back = reload(&case(BEFORE, &[], &[]).sources, &again.loaded).unwrap();
    assert_eq!((back.changed.len(), back.needs_restart.len()), (0, 0));
    assert_eq!(back.loaded.config, before.config);
}

#[test]
fn a_faulty_file_changes_nothing_and_every_fault_is_named() {
    let text = reloaded("upstream: http://m:1\nlog: \"[\"\nproxy: {workers: many, connect_timeout: 5}\n").unwrap_err();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("log: [: ") && lines[1].starts_with("proxy.connect_timeout: 5: "), "{text}");
    assert!(lines[2].starts_with("proxy.workers: many: "), "{text}");
    // a file that is gone is a fault, not a configuration of defaults
    let sources = Sources { file: Some("/nowhere/lapwing.yaml".into()), ..Sources::default() };
    let faults = reload(&sources, &case(BEFORE, &[], &[]).loaded()).unwrap_err();
    assert!(faults[0].to_string().contains("cannot be read"), "{faults:?}");
}

#[test]
fn weights_tags_and_routes_of_upstreams_follow_and_what_else_they_are_stays() {
    let before = case("upstreams: {a: {url: 'http://a:1'}, b: {url: 'http://b:1', weight: 2}}\n", &[], &[]).loaded();
    let after = |text: &str| {
        let after = case(text, &[], &[]);
        reload(&after.sources, &before).map_err(|faults| after.text(&faults))
    };
    let followed = after(
        "upstreams: {a: {url: 'http://a:1', weight: 3, tags: {zone: eu}}, b: {url: 'http://b:1'}}\n\
         upstream_policy: least_requests\nroutes: [{match: {model: m}, to: ['tag:zone=eu']}]\n",
    );
    let Reloaded { loaded, changed, needs_restart } = followed.unwrap();
    let wanted = ["routes", "upstream_policy", "upstreams.a.weight", "upstreams.a.tags", "upstreams.b.weight"];
    assert_eq!((named(&changed), named(&needs_restart)), (wanted.to_vec(), vec![]));
    assert_eq!((loaded.config.upstreams["a"].weight, loaded.config.routes.len()), (3, 1));
    // other upstreams
    let Reloaded { loaded, changed, needs_restart } =
        after("upstreams: {a: {url: 'https://x:1', weight: 3, tls: {server_name: a}}, c: {url: 'http://c:1'}}\n").unwrap();
    assert_eq!(named(&needs_restart), ["upstreams.a.url", "upstreams.a.tls", "upstreams.b", "upstreams.c"]);
    assert_eq!(named(&changed), ["upstreams.a.weight"]);
    let mut wanted = before.config.clone();
    wanted.upstreams.get_mut("a").unwrap().weight = 3;
    assert_eq!(loaded.config, wanted);
    assert!(loaded.render().contains("fixed at the start") && loaded.masked_json()["origins"]["upstreams.b.url"] != "default");
    let faults = after("upstreams: {a: {url: 'http://a:1'}, c: {url: 'http://c:1'}}\nroutes: [{match: {model: m}, to: [c]}]\n");
    assert!(faults.unwrap_err().contains("routes[0].to[0]: c: is none of `upstreams`: a, b"));
    let Reloaded { loaded, changed, needs_restart } = after("upstream: http://only:1\n").unwrap();
    assert_eq!((changed.len(), named(&needs_restart)), (0, vec!["upstream", "upstreams.a", "upstreams.b"]));
    assert_eq!(loaded.config, before.config);
}

#[test]
fn every_mark_is_one_of_a_setting_that_is_there() {
    let fixed = fixed::FixedSettings::of::<Config>();
    let schema = schema::Schema::of::<Config>();
    let is_fixed = |path: &str| fixed.around(&schema.path(path)).is_some();
    for path in [
        "listen",
        "engine.models",
        "shadow.targets",
        "telemetry.headers.authorization",
        "proxy.workers",
        "metrics.max_series",
        "upstreams.a",
        "upstreams.a.url",
        "upstreams.a.tls.ca",
    ] {
        assert!(is_fixed(path), "{path}");
    }
    for path in [
        "log",
        "proxy.header_timeout",
        "shadow.sample",
        "attribution.spans[0].stage",
        "config.watch",
        "protocol.custom[0].route",
        "upstreams.a.weight",
        "upstreams.a.tags.zone",
        "routes[0].to",
        "upstream_policy",
    ] {
        assert!(!is_fixed(path), "{path}");
    }
}
