//! Loading as a user sees it: precedence, the messages for refused values, and that no secret is ever shown.

mod cross;
mod docs;
#[cfg(feature = "engine")]
mod engine;
mod lists;
mod reload;
mod sampler;
mod telemetry;
mod texts;

use std::io::Write;

use proptest::prelude::*;

use std::collections::BTreeMap;

use lapwing_settings::Switch;

use super::*;
use lapwing_attribution::SpanExpectation;
use lapwing_ledger::Stage;
use lapwing_proxy::{TraceSampling, UpstreamProtocol};
use lapwing_settings::{Fault, Size};

pub(crate) struct Case {
    file: Option<tempfile::NamedTempFile>,
    pub(crate) sources: Sources,
}

pub(crate) fn case(yaml: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Case {
    let file = (!yaml.is_empty()).then(|| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(yaml.as_bytes()).unwrap();
        file
    });
    let flag = |&(path, text): &(&str, &str)| Flag {
        path: path.to_owned(),
        name: format!("--{}", path.replace('_', "-")),
        text: text.to_owned(),
    };
    let sources = Sources {
        file: file.as_ref().map(|file| file.path().to_owned()),
        env: env.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
        flags: flags.iter().map(flag).collect(),
    };
    Case { file, sources }
}

impl Case {
    pub(crate) fn loaded(&self) -> Loaded {
        load(&self.sources).unwrap_or_else(|faults| panic!("{}", self.text(&faults)))
    }

    /// The faults, one per line, with the file's name shortened.
    fn faults(&self) -> String {
        self.text(&load(&self.sources).unwrap_err())
    }

    fn text(&self, faults: &[Fault]) -> String {
        let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
        self.short(&lines.join("\n"))
    }

    fn short(&self, text: &str) -> String {
        self.file.as_ref().map_or_else(|| text.to_owned(), |file| text.replace(&*file.path().to_string_lossy(), "l.yaml"))
    }
}

/// The faults of a file that has an upstream.
pub(crate) fn faults(yaml: &str) -> String {
    case(&format!("upstream: http://m:1\n{yaml}"), &[], &[]).faults()
}

#[test]
fn an_upstream_is_enough() {
    let loaded = case("", &[], &[("upstream", "http://127.0.0.1:8000")]).loaded();
    assert_eq!(loaded.config, Config::default());
    assert_eq!(loaded.warnings, [""; 0]);
}

#[test]
fn a_later_source_overrides_an_earlier_one() {
    let yaml =
        "upstream: http://file:1\nlisten: 127.0.0.1:1\nadmin: 127.0.0.1:2\nproxy: {workers: 2, max_in_flight: 7}\nmetrics:\n";
    let env = [("LAPWING_ADMIN", ":3"), ("LAPWING_LISTEN", "127.0.0.1:4"), ("LAPWING_PROXY__WORKERS", " 3 ")];
    let case = case(yaml, &env, &[("listen", "127.0.0.1:5")]);
    let loaded = case.loaded();
    let config = &loaded.config;
    assert_eq!(config.upstream.to_string(), "http://file:1");
    assert_eq!(config.listen.to_string(), "127.0.0.1:5");
    assert_eq!(config.admin.to_string(), "0.0.0.0:3");
    assert_eq!((config.proxy.workers, config.proxy.max_in_flight, config.proxy.tcp_backlog), (3, 7, 1024));
    let json = loaded.masked_json();
    let origin = |path: &str| case.short(json["origins"][path].as_str().unwrap());
    assert_eq!(origin("upstream"), "file l.yaml");
    assert_eq!(origin("listen"), "flag --listen");
    assert_eq!(origin("admin"), "env LAPWING_ADMIN");
    assert_eq!(origin("proxy.workers"), "env LAPWING_PROXY__WORKERS");
    assert_eq!(origin("proxy.max_in_flight"), "file l.yaml");
    assert_eq!(origin("proxy.tcp_backlog"), "default");
    assert_eq!(json["values"]["proxy"]["workers"], 3);
}

#[test]
fn variables_are_read_as_the_type_of_the_setting() {
    let env = [
        ("LAPWING_UPSTREAM", "h2c://m:1"),
        ("LAPWING_RESPOND_SERVER_TIMING", "true"),
        ("LAPWING_LOG", "off"),
        ("LAPWING_OTLP_GRPC", "off"),
        ("LAPWING_PROXY__MAX_REQUEST_BYTES", "4096"),
        ("LAPWING_PROXY", "{upstream_protocol: h2, workers: 2}"),
        ("LAPWING_ATTRIBUTION__SPANS", "[{name: tok*, stage: preprocessing}]"),
        ("LAPWING_ATTRIBUTION__SERVER_TIMING__GPU", "forward"),
        ("LAPWING_OTLP_FORWARD", "http://otel:4318"),
        ("LAPWING_OTLP_FORWARD_HEADERS__X_API_KEY", "0123"),
        ("LAPWING_CONFIG", "read by the command line"),
        ("PATH", "/bin"),
    ];
    let config = case("", &env, &[]).loaded().config;
    assert!(config.respond_server_timing);
    assert_eq!(config.log, "off");
    assert_eq!(config.otlp_grpc, Switch::Off);
    assert_eq!(config.proxy.max_request_bytes, Switch::On(Size::kib(4)));
    assert_eq!((config.proxy.upstream_protocol, config.proxy.workers), (UpstreamProtocol::H2, 2));
    assert_eq!(config.attribution.spans[0].stage, Stage::Preprocessing);
    assert_eq!(config.attribution.server_timing["gpu"], Stage::Forward);
    assert_eq!(config.otlp_forward_headers["x-api-key"].expose(), "0123");
}

#[test]
fn a_file_may_leave_things_out_and_say_them_plainly() {
    let yaml = "upstream: unix:/run/m.sock\nlog: off\notlp_http: false\ntrace_sampling: off\nproxy:\n  # workers: 2\n  max_header_bytes: 65536\n\
                attribution:\n  expect_spans: never\n  spans:\n    - {attribute: cache_hit, value: true, stage: hydration}\n    - {attribute: code, value: 200, stage: forward}\n";
    let config = case(yaml, &[], &[]).loaded().config;
    assert_eq!(config.log, "off");
    assert_eq!(config.otlp_http, Switch::Off);
    assert_eq!(config.trace_sampling, TraceSampling::Off);
    assert_eq!(config.proxy.max_header_bytes, Size::kib(64));
    assert_eq!(config.attribution.expect_spans, SpanExpectation::Never);
    let values: Vec<_> = config.attribution.spans.iter().map(|rule| rule.value.as_deref()).collect();
    assert_eq!(values, [Some("true"), Some("200")]);
}

#[test]
fn every_fault_is_reported_at_once() {
    let yaml = "listen: 8080\n\
                otlp_grpc: true\n\
                drain_timeout: 5\n\
                log: 'lapwing=loud'\n\
                log_format: xml\n\
                trace_sampling: 1\n\
                proxy:\n  workers: many\n  tcp_backlog: -1\n  max_in_flight: 0\n  wokers: 3\n\
                attribution:\n  quiet: 1m\n  server_timing: {gpu: fwd, parse: ingress}\n  spans:\n    \
                - {name: a}\n    - {name: b, stage: model}\n    - just text\n    - {name: [x], stage: forward, nmae: y}\n    - {value: 1, stage: egress}\n\
                metrics: [1, 2]\n";
    let case = case(yaml, &[("LAPWING_ADMIN", "here"), ("LAPWING_METRIX__MAX_SERIES", "1")], &[("otlp_http", "127.0.0.1:port")]);
    let expected = "\
admin: here: needs host:port, as in 127.0.0.1:8080 or :8080 (env LAPWING_ADMIN)
attribution.quiet: 1m: must be at most grace, which is 6s (file l.yaml)
attribution.server_timing.gpu: fwd: must be ingress, validation, cache, hydration, preprocessing, queue, forward, postprocessing, downstream, egress, upstream or unattributed (file l.yaml)
attribution.server_timing.parse: ingress: is measured by Lapwing itself and cannot be reported (file l.yaml)
attribution.spans[0].stage: is required (file l.yaml)
attribution.spans[1].stage: model: must be ingress, validation, cache, hydration, preprocessing, queue, forward, postprocessing, downstream, egress, upstream or unattributed (file l.yaml)
attribution.spans[2]: just text: must be a rule: name, attribute (and value) and/or deployment, and stage (file l.yaml)
attribution.spans[3].name: a list: must be text (file l.yaml)
attribution.spans[3].nmae: unknown key; did you mean `attribution.spans[3].name`? (file l.yaml)
attribution.spans[4].stage: egress: is measured by Lapwing itself and cannot be reported (file l.yaml)
attribution.spans[4].value: 1: needs the attribute that it is the value of (file l.yaml)
drain_timeout: 5: needs a unit, as in 250us, 5s or 1m (file l.yaml)
listen: 8080: needs host:port, as in 127.0.0.1:8080 or :8080 (file l.yaml)
log: lapwing=loud: is not a log filter, as in info or lapwing=debug,warn: error parsing level filter: expected one of \"off\", \"error\", \"warn\", \"info\", \"debug\", \"trace\", or a number 0-5 (file l.yaml)
log_format: xml: must be text or json (file l.yaml)
metrics: a list: must be a section of keys (file l.yaml)
metrix: unknown key; did you mean `LAPWING_METRICS`? (env LAPWING_METRIX__MAX_SERIES)
otlp_grpc: true: must be an address, as in 127.0.0.1:8080 or :8080; or off (file l.yaml)
otlp_http: 127.0.0.1:port: needs a port from 0 to 65535 after the colon; or off (flag --otlp-http)
proxy.max_in_flight: 0: must be between 1 and 1000000 (file l.yaml)
proxy.tcp_backlog: -1: must be a whole number from 0 to 4294967295 (file l.yaml)
proxy.wokers: unknown key; did you mean `proxy.workers`? (file l.yaml)
proxy.workers: many: must be a whole number, 0 or more (file l.yaml)
trace_sampling: 1: must be auto, force or off (file l.yaml)
upstream: is required: give --upstream URL, LAPWING_UPSTREAM, or `upstream:` or `upstreams:` in the file";
    assert_eq!(case.faults(), expected);
}

#[test]
fn unknown_keys_are_reported_with_a_suggestion() {
    let suggested = |yaml: &str| {
        let fault = faults(yaml);
        fault.split_once("did you mean ").map_or(fault.clone(), |(_, rest)| rest.split('?').next().unwrap().to_owned())
    };
    assert_eq!(suggested("wrokers: 2\nworkers: 2\n").lines().next(), Some("`proxy.workers`"));
    assert_eq!(suggested("otlp-grpc: off"), "`otlp_grpc`");
    assert_eq!(suggested("otlpHttp: off"), "`otlp_http`");
    assert_eq!(suggested("proxi: {workers: 1}"), "`proxy`");
    assert_eq!(suggested("metrics: {max_serie: 1}"), "`metrics.max_series`");
    assert_eq!(suggested("kubernetes: 1"), "kubernetes: unknown key (file l.yaml)");
}

#[test]
fn kubernetes_variables_of_a_service_named_lapwing_are_not_settings() {
    let env = [
        ("LAPWING_UPSTREAM", "http://m:1"),
        ("LAPWING_SERVICE_HOST", "10.0.0.1"),
        ("LAPWING_SERVICE_PORT", "8080"),
        ("LAPWING_SERVICE_PORT_HTTP", "8080"),
        ("LAPWING_PORT", "tcp://10.0.0.1:8080"),
        ("LAPWING_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
        ("LAPWING_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("LAPWING_ADMIN_SERVICE_HOST", "10.0.0.2"),
        ("LAPWING_ADMIN_PORT", "tcp://10.0.0.2:9464"),
        ("LAPWING_ADMIN_PORT_9464_TCP_PROTO", "tcp"),
    ];
    case("", &env, &[]).loaded();
    let case = case("", &[("LAPWING_UPSTREAM", "http://m:1"), ("LAPWING_PORT", "8080")], &[]);
    assert!(case.faults().starts_with("port: unknown key"), "{}", case.faults());
}

#[test]
fn a_file_that_cannot_be_read_is_reported_with_its_place_and_does_not_hide_the_rest() {
    let case_of = |yaml: &str| case(yaml, &[], &[("listen", "x")]).faults();
    let lines = |yaml: &str| case_of(yaml).lines().map(str::to_owned).collect::<Vec<_>>();
    let broken = lines("listen: a\nproxy: [1, 2\n");
    assert_eq!(broken.len(), 2, "{broken:?}");
    assert!(broken[0].starts_with("l.yaml: ") && broken[0].contains("line 2, column 8"), "{broken:?}");
    assert!(broken[1].starts_with("listen: x: "), "{broken:?}");
    let twice = lines("upstream: http://m:1\nadmin: a\nadmin: b\n");
    assert!(twice[0].contains("duplicate") && twice[0].contains("admin") && twice[0].contains("line 3"), "{twice:?}");
    let scalar = lines("just text\n");
    assert!(scalar[0].starts_with("l.yaml: must be a section of keys"), "{scalar:?}");

    let missing = Sources { file: Some("no/such/lapwing.yaml".into()), ..Sources::default() };
    let faults = load(&missing).unwrap_err();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].to_string().starts_with("no/such/lapwing.yaml: cannot be read: no such file"), "{}", faults[0]);
    // an empty file is valid
    assert!(case("# nothing\n", &[], &[("upstream", "http://m:1")]).loaded().warnings.is_empty());
}

const SECRET: &str = "hunter2";

#[test]
fn faults_of_secrets_do_not_show_them() {
    for yaml in [
        "otlp_forward_headers: hunter2",
        "otlp_forward_headers: [hunter2]",
        "otlp_forward_headers: {authorization: hunter2}",
        "otlp_forward_headers: {authorization: [hunter2]}",
        "otlp_forward_headers: {authorization: {hunter2: hunter2}}",
        "otlp_forward: http://o:1\notlp_forward_headers: {host: hunter2}",
        "otlp_forward: http://o:1\notlp_forward_headers: {'no name': hunter2}",
        "otlp_forward: http://o:1\notlp_forward_headers: {a: \"hunter2\\n\"}",
        "otlp_forward_header: {authorization: hunter2}",
        "otlp_forward_headers:\n  authorization: Bearer: hunter2",
        "otlp_forward_headers:\n  authorization: \"hunter2",
        "otlp_forward_headers:\n  authorization: @hunter2",
        "otlp_forward_headers:\n  authorization: *hunter2",
        "otlp_forward_headers:\n  authorization: !hunter2 x",
        "otlp_forward_headers:\n  authorization: %hunter2",
        "otlp_forward_headers:\n  authorization: !!int hunter2",
        "otlp_forward_headers:\n  authorization: \"\\qhunter2\"",
        "upstream: http://me:hunter2@model:8000",
        "otlp_forward: http://me:hunter2@otel:4318",
        "proxy: {max_request_bytes: http://me:hunter2@x}",
    ] {
        let case = case(yaml, &[], &[]);
        let text = format!("{}\n{:?}", case.faults(), load(&case.sources));
        assert!(!text.contains(SECRET), "{yaml}\n{text}");
    }
    for name in ["LAPWING_OTLP_FORWARD_HEADERS", "LAPWING_OTLP_FORWARD_HEADERS__HOST", "LAPWING_OTLP_FORWARD_HEADER__HOST"] {
        let text = case("", &[(name, SECRET)], &[]).faults();
        assert!(text.lines().count() > 1 && !text.contains(SECRET), "{name}\n{text}");
    }
    let number = faults("otlp_forward: http://o:1\notlp_forward_headers: {a: 20304}");
    assert_eq!(number, "otlp_forward_headers.a: ***: must be text: put it in quotes (file l.yaml)");
}

#[test]
fn the_effective_configuration_is_shown_without_secrets() {
    let env = [("LAPWING_OTLP_FORWARD_HEADERS__AUTHORIZATION", SECRET)];
    let case = case("upstream: http://m:1\notlp_forward: http://o:1\notlp_forward_headers: {x.y: hunter2}", &env, &[]);
    let loaded = case.loaded();
    let text = format!("{}\n{}\n{loaded:?}", loaded.render(), loaded.masked_json());
    assert!(!text.contains(SECRET), "{text}");
    assert!(case.short(&loaded.render()).contains("  authorization: \"***\"                       # env LAPWING_OTLP_FORWARD_HEADERS__AUTHORIZATION, fixed at the start\n  x.y: \"***\"                                 # file l.yaml, fixed at the start\n"), "{}", loaded.render());
}

#[test]
fn several_upstreams_and_lists_of_texts_are_rendered_too() {
    let given = r#"
upstreams: {b: {url: "http://h:2"}, a: {url: "http://h:1", weight: 2}}
routes: [{match: {header: "x-tier: batch*"}, to: [b, a]}]
split: {candidate: b, ramp: [1%, 5%], stop_on: {errors: 1%}}
"#;
    let first = load(&case(given, &[], &[]).sources).unwrap().config;
    let text = render::yaml(&first, &BTreeMap::new(), &fixed::FixedSettings::of::<Config>());
    assert!(text.contains("      - b ") && text.contains("    - 5% "), "{text}");
    assert_eq!(load(&case(&text, &[], &[]).sources).unwrap().config, first, "{text}");
}

proptest! {
    #[test]
    fn the_rendered_configuration_has_the_same_effect(
        name in r"[ -~]{1,12}|\PC{1,6}|[:#&*!%@`'\x22{}\[\], -]{1,4}|true|~|1.0|0x1",
        value in proptest::option::of(r"[ -~]{1,12}|\PC{1,6}|on|null|12|- a|a: b|a # b"),
        log in "(info|off|true|lapwing=debug|1)",
        metric in r"[a-z.:_ -]{1,8}|\PC{1,4}",
        workers in 1_usize..=64,
        body in proptest::option::of(1_u64..),
    ) {
        let mut given = Config { log, ..Config::default() };
        given.proxy.workers = workers;
        given.proxy.max_request_bytes = body.map_or(Switch::Off, |body| Switch::On(Size(body)));
        given.attribution.server_timing.insert(metric, Stage::Queue);
        for (name, attribute) in [(Some(name.clone()), value.clone()), (None, Some(name.clone()))] {
            let value = attribute.is_some().then(|| value.clone()).flatten();
            let attribute = attribute.filter(|text| !text.is_empty());
            given.attribution.spans.push(lapwing_attribution::SpanRule { name, attribute, value, deployment: None, stage: Stage::Hydration });
        }
        let of_replica = lapwing_attribution::SpanRule { name: None, attribute: None, value: None, deployment: Some(name), stage: Stage::Queue };
        given.attribution.spans.push(of_replica);
        prop_assume!(tracing_subscriber::EnvFilter::try_new(&given.log).is_ok());
        let text = render::yaml(&given, &BTreeMap::from([("log".to_owned(), "file a\nb: c".to_owned())]), &fixed::FixedSettings::of::<Config>());
        let loaded = match load(&case(&text, &[], &[]).sources) {
            Ok(loaded) => loaded,
            Err(faults) => return Err(TestCaseError::fail(format!("{text}\n{faults:?}"))),
        };
        prop_assert_eq!(&loaded.config, &given, "{}", text);
        // every value is now the file's
        let json = loaded.masked_json();
        let origins = json["origins"].as_object().unwrap();
        prop_assert!(origins.values().all(|origin| origin != "default"));
    }

    #[test]
    fn any_file_is_a_configuration_or_faults(yaml in r"((upstream|listen|proxy|attribution|spans|otlp_forward_headers|log|\PC{0,6})(: |:\n  )(\PC{0,10}|\[.{0,8}\]|\{[a-z]: [0-9a-z.]{0,5}\}|off|[0-9]{0,22})\n){0,6}") {
        if let Err(faults) = load(&case(&yaml, &[], &[]).sources) {
            prop_assert!(!faults.is_empty() && faults.iter().all(|fault| !fault.path.is_empty() && !fault.reason.is_empty()));
        }
    }
}

#[test]
fn a_tokenizer_that_cannot_be_used_is_a_fault_of_its_key() {
    let root = env!("CARGO_MANIFEST_DIR");
    let words = format!("{root}/tests/fixtures/tokenizers/words.json");
    let told =
        faults(&format!("protocol: {{tokenizers: {{org/m-1.5: /no/such.json, plain: {root}/Cargo.toml, \"*\": {words}}}}}"));
    let lines: Vec<&str> = told.lines().collect();
    if cfg!(feature = "tokenizers") {
        assert_eq!(lines.len(), 2, "{told}");
        let missing =
            "protocol.tokenizers.org/m-1.5: /no/such.json: cannot be read: No such file or directory (os error 2) (file l.yaml)";
        assert_eq!(lines[0], missing);
        let plain = format!("protocol.tokenizers.plain: {root}/Cargo.toml: is not a tokenizer.json: ");
        assert!(lines[1].starts_with(&plain) && lines[1].ends_with("(file l.yaml)"), "{told}");
    } else {
        assert_eq!(lines.len(), 3, "{told}");
        let reason = "cannot be used: this Lapwing was built without the feature tokenizers";
        assert!(lines.iter().all(|line| line.contains(reason)), "{told}");
    }
}

#[test]
fn tokenizers_need_bodies() {
    let words = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tokenizers/words.json");
    let told = faults(&format!("protocol: {{read_bodies: false, tokenizers: {{m: {words}}}}}"));
    assert!(
        told.contains("protocol.tokenizers") && (told.contains("read_bodies is false") || told.contains("built without")),
        "{told}"
    );
    let sound = case(&format!("upstream: http://m:1\nprotocol: {{tokenizers: {{m.1: {words}}}}}"), &[], &[]);
    if cfg!(feature = "tokenizers") {
        assert_eq!(sound.loaded().config.protocol.tokenizers["m.1"].as_os_str(), words);
    }
}
