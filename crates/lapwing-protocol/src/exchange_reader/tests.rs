//! Whole exchanges through an `ExchangeReader`. Each fixture in `tests/fixtures/*/` has a request, a response and the expected
//! result, written by hand. Each is fed as it is, byte by byte, and cut at random; the result must be the same.

use std::path::{Path, PathBuf};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, Method};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::exchange_properties;
use super::*;
use lapwing_ledger::{HiddenTokens, Ledger, Server, Stamp, Unit};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fixture {
    /// Where the bodies and their fields are from.
    source: String,
    /// The section `protocol`.
    #[serde(default)]
    config: Config,
    request: Message,
    response: Message,
    /// The expected ledger, in the format of [`seen`].
    expect: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    path: String,
    #[serde(default)]
    status: u16,
    headers: Vec<(String, String)>,
    /// Pieces as they came, one a millisecond: text, or `{"hex": …}`.
    body: Vec<Piece>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Piece {
    Text(String),
    Hex { hex: String },
}

impl Piece {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Hex { hex } => {
                let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
                digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
            }
        }
    }
}

impl Message {
    fn head(&self) -> HeaderMap {
        self.headers.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
    }
}

/// Feeds an exchange, its pieces cut again by `cut` (which gives the length of the next piece).
fn play(fixture: &Fixture, mut cut: impl FnMut(usize) -> usize) -> Value {
    let protocols = Protocols::new(&fixture.config);
    let method: Method = fixture.request.method.as_deref().unwrap_or("POST").parse().unwrap();
    let spoken = protocols.detect(&method, &fixture.request.path);
    let Some(mut reader) = protocols.open(&spoken, &fixture.request.head()) else { return json!(null) };
    let mut each = |pieces: &[Piece], feed: &mut dyn FnMut(&[u8], u64)| {
        for (at, piece) in pieces.iter().enumerate() {
            let bytes = piece.bytes();
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let (now, later) = rest.split_at(cut(rest.len()).clamp(1, rest.len()));
                feed(now, (at as u64 + 1) * 1_000_000);
                rest = later;
            }
        }
    };
    each(&fixture.request.body, &mut |bytes, _| reader.request(bytes));
    reader.response_head(fixture.response.status, &fixture.response.head());
    let mut glance = exchange_properties::glance(&mut reader, &fixture.response.head());
    each(&fixture.response.body, &mut |bytes, at_ns| exchange_properties::read_response(&mut reader, &mut glance, bytes, at_ns));
    let mut ledger = Ledger::open(Stamp::now(), 0);
    ledger.outcome = Outcome::Ok;
    let length = |pieces: &[Piece]| pieces.iter().map(|piece| piece.bytes().len() as u64).sum();
    (ledger.request_bytes, ledger.response_bytes) = (length(&fixture.request.body), length(&fixture.response.body));
    let is_complete = reader.is_complete();
    let model = reader.close(&mut ledger).map(str::to_owned);
    let mut seen = seen(model, &ledger);
    if ledger.outcome != Outcome::Ok {
        seen["outcome"] = json!(ledger.outcome.name());
    }
    if is_complete {
        seen["complete"] = json!(true);
    }
    seen
}

/// The content of a ledger, as fixtures write it. Unknown values are absent.
fn seen(model: Option<String>, ledger: &Ledger) -> Value {
    let mut seen = serde_json::Map::new();
    if let Some(model) = model {
        seen.insert("model".to_owned(), json!(model));
    }
    if let Some(server) = ledger.server {
        seen.insert("server".to_owned(), json!(server.name()));
    }
    if let Some(primary) = ledger.work.primary {
        seen.insert("primary".to_owned(), json!(primary.name()));
    }
    if ledger.work.sequences > 1 {
        seen.insert("sequences".to_owned(), json!(ledger.work.sequences));
    }
    for unit in Unit::ALL {
        if let Some((amount, basis)) = ledger.work.get(unit).filter(|_| unit != Unit::Byte) {
            seen.insert(unit.name().to_owned(), json!([amount, basis.name()]));
        }
    }
    if let Some(generation) = &ledger.generation {
        if let (Some(first_ns), Some(last_ns)) = (generation.first_ns, generation.last_ns) {
            let pace = json!({"first_ms": first_ns / 1_000_000, "last_ms": last_ns / 1_000_000, "chunks": generation.chunks});
            let gaps = generation.gaps_us.len() as u64;
            let is_alone = ledger.work.sequences <= 1;
            assert!(if is_alone { gaps >= generation.chunks - 1 } else { gaps == 0 });
            if is_alone && gaps >= generation.chunks {
                seen.insert("gaps_us".to_owned(), json!(generation.gaps_us));
            }
            match generation.hidden {
                HiddenTokens::None => {}
                HiddenTokens::Counted { tokens, .. } => drop(seen.insert("hidden_tokens".to_owned(), json!(tokens))),
                HiddenTokens::Unknown => drop(seen.insert("hidden_tokens".to_owned(), json!(null))),
            }
            seen.insert("pace".to_owned(), pace);
        }
        for (name, ns) in [
            ("server_first_token_us", generation.server_first_token_ns),
            ("server_per_output_token_us", generation.server_per_output_token_ns),
        ] {
            seen.extend(ns.map(|ns| (name.to_owned(), json!(ns / 1_000))));
        }
    }
    if !ledger.reports.is_empty() {
        let report = |report: &lapwing_ledger::Report| {
            let name = report.phase.map_or(report.stage.name(), |phase| phase.name());
            json!([name, report.duration_ns / 1_000])
        };
        seen.insert("reports_us".to_owned(), ledger.reports.iter().map(report).collect());
    }
    Value::Object(seen)
}

fn fixtures() -> Vec<(PathBuf, Fixture)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let mut found = Vec::new();
    for server in std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for file in std::fs::read_dir(server).unwrap().map(|entry| entry.unwrap().path()) {
            if file.to_str().unwrap().ends_with(".exchange.json") {
                let text = std::fs::read_to_string(&file).unwrap();
                let fixture: Fixture = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
                assert!(!fixture.source.is_empty());
                found.push((file, fixture));
            }
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(found.len() >= 30, "{}", found.len());
    found
}

#[test]
fn every_fixture_is_read_as_it_was_written_out_by_hand() {
    let mut faults = Vec::new();
    for (file, fixture) in fixtures() {
        let seen = play(&fixture, |len| len);
        if seen != fixture.expect {
            faults.push(format!("{}\n  seen     {seen}\n  expected {}", file.display(), fixture.expect));
        }
        assert_eq!(play(&fixture, |_| 1), seen, "{}: byte by byte", file.display());
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn where_a_body_is_cut_does_not_matter(seed in proptest::collection::vec(1usize..97, 1..40)) {
        for (file, fixture) in fixtures() {
            let mut lengths = seed.iter().copied().cycle();
            let seen = play(&fixture, |_| lengths.next().unwrap_or(1));
            prop_assert_eq!(seen, fixture.expect, "{}", file.display());
        }
    }
}

/// Bodies of the fixtures, request and response.
fn bodies() -> Vec<(Vec<u8>, Vec<u8>)> {
    let all = |pieces: &[Piece]| pieces.iter().flat_map(Piece::bytes).collect::<Vec<u8>>();
    fixtures().iter().map(|(_, fixture)| (all(&fixture.request.body), all(&fixture.response.body))).collect()
}

#[test]
fn every_protocol_is_among_those_that_are_checked() {
    let media = |kind: &str| Media::of(&HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())]));
    let spoken = |path, media| if media == Media::Grpc { detect_grpc(path) } else { detect(path).map(|(family, _)| family) };
    let checked: Vec<_> = exchange_properties::EXCHANGES.iter().filter_map(|(path, kind, _)| spoken(path, media(kind))).collect();
    assert_eq!(checked.len(), exchange_properties::EXCHANGES.len());
    for family in Family::ALL {
        let close =
            |known: &Family| known == family || matches!((known, family), (Family::TeiGrpcRerank, Family::TeiGrpcRerankStream));
        assert!(checked.iter().any(close), "{family:?}");
    }
}

#[test]
fn every_server_has_its_section_in_the_document() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/UPSTREAMS.md");
    let text = std::fs::read_to_string(path).unwrap();
    let sections: Vec<&str> = text.split("\n## ").skip(2).collect();
    assert_eq!(sections.len(), Server::ALL.len());
    for (server, section) in Server::ALL.iter().zip(sections) {
        assert_eq!(section.lines().next(), Some(server.title()));
        assert!(section.contains("Unseen: "), "{server:?}");
        assert!(
            section.ends_with(&format!("`lapwing upstream-flags {}`.\n", server.name()))
                || section.contains(&format!("`lapwing upstream-flags {}`.", server.name())),
            "{server:?}"
        );
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_alike_in_pieces(
        which in any::<usize>(), bytes in proptest::collection::vec(any::<u8>(), 0..200), length in 2usize..9,
    ) {
        let (request, response) = bytes.split_at(bytes.len() / 2);
        prop_assert!(exchange_properties::same_in_pieces(&Protocols::default(), which, request, response, length));
    }

    #[test]
    fn spoilt_bodies_are_read_alike_in_pieces(
        which in any::<usize>(), body in any::<prop::sample::Index>(), answer in any::<prop::sample::Index>(),
        spots in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        keep in any::<prop::sample::Index>(), length in 2usize..9,
    ) {
        // a request and a response of any two protocols, to any third
        let bodies = bodies();
        let (mut request, mut response) = (body.get(&bodies).0.clone(), answer.get(&bodies).1.clone());
        for (spot, byte) in spots {
            for body in [&mut request, &mut response] {
                if !body.is_empty() {
                    let at = spot.index(body.len());
                    body[at] = byte;
                }
            }
        }
        response.truncate(keep.index(response.len() + 1).max(response.len() / 2));
        prop_assert!(exchange_properties::same_in_pieces(&Protocols::default(), which, &request, &response, length));
    }
}

#[test]
fn rules_that_say_nothing_or_contradict_themselves_are_faults() {
    let faults = |config: Value| {
        let config: Config = serde_json::from_value(config).unwrap();
        let mut checks = lapwing_settings::Checks::default();
        lapwing_settings::Section::check(&config, &mut checks);
        checks.into_faults().into_iter().map(|fault| format!("{} {}", fault.path, fault.reason)).collect::<Vec<_>>()
    };
    let rule = |rule: Value| faults(json!({"custom": [rule]}));
    assert_eq!(
        rule(json!({"route": "POST /a/*", "rows": {"json": "/x"}, "elements": {"json": "/x", "from": "response"}})),
        [""; 0]
    );
    for (given, expected) in [
        (json!({"rows": {"fixed": 1}}), "custom[0].route must be a path or a method and a path, as in POST /score/*"),
        (
            json!({"route": "post /a", "rows": {"fixed": 1}}),
            "custom[0].route must begin with a method in capitals, or with the path",
        ),
        (json!({"route": "/a", "rows": {}}), "custom[0].rows needs exactly one of json, header, length, fixed"),
        (
            json!({"route": "/a", "rows": {"fixed": 1, "json": "/a"}}),
            "custom[0].rows needs exactly one of json, header, length, fixed",
        ),
        (
            json!({"route": "/a", "rows": {"json": "a"}}),
            "custom[0].rows.json must be a JSON pointer with at most six numbers, as in /inputs/0/data",
        ),
        (
            json!({"route": "/a", "rows": {"json": "/a"}, "model": {"json": "/a"}}),
            "custom[0].rows.json is already read for something else",
        ),
        (json!({"route": "/a", "model": {"header": "a b"}}), "custom[0].model.header is not a header name"),
        (json!({"route": "/a", "rows": {"fixed": 1}, "primary": "flop"}), "custom[0].primary is not a unit that this rule reads"),
    ] {
        assert_eq!(rule(given), [expected]);
    }
    assert_eq!(rule(json!({"route": "/a"})).len(), 1);
    assert_eq!(faults(json!({"flops": {"m": {"per_row": -1.0}}})), ["flops.m.per_row must be between 0 and 1000000000000000000"]);
    assert_eq!(faults(json!({"flops": {"m": {}}})), ["flops.m needs a cost above zero"]);
}

/// An exchange by a rule that reads the model and both tokens from fields of the response: what was read, and how much was refused.
fn by_fields(status: u16, head: &[(&str, &str)], trailers: &[(&str, &str)]) -> (Value, usize) {
    let fields = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect::<HeaderMap>()
    };
    let from = |name: &str| json!({"header": name, "from": "response"});
    let rule = json!({"route": "/a", "model": from("x-m"), "input_tokens": from("x-in"), "output_tokens": from("x-out")});
    let protocols = Protocols::new(&serde_json::from_value(json!({"custom": [rule]})).unwrap());
    let mut reader = protocols.open(&protocols.detect(&Method::POST, "/a"), &HeaderMap::new()).unwrap();
    let refused = reader.response_head(status, &fields(head)) + reader.response_trailers(&fields(trailers));
    let mut ledger = Ledger::open(Stamp::now(), 0);
    let model = reader.close(&mut ledger).map(str::to_owned);
    (seen(model, &ledger), refused)
}

#[test]
fn a_rules_trailers_win_over_the_head() {
    let expected = |model: &str, input: u64, output: u64| {
        let (input, output) = (json!([input, "reported"]), json!([output, "reported"]));
        (json!({"model": model, "primary": "output_token", "input_token": input, "output_token": output}), 0)
    };
    let head = [("x-m", "a"), ("x-in", "7"), ("x-out", "1")];
    assert_eq!(by_fields(200, &head, &[]), expected("a", 7, 1));
    assert_eq!(by_fields(200, &head, &[("x-out", "40")]), expected("a", 7, 40));
    assert_eq!(by_fields(200, &head, &[("x-m", "b"), ("x-in", "0"), ("x-out", " 2 ")]), expected("b", 0, 2));
    assert_eq!(by_fields(200, &[], &head), expected("a", 7, 1));
    assert_eq!(by_fields(200, &head, &[("x-m", "")]), expected("a", 7, 1));
    assert_eq!(by_fields(500, &head, &head), (json!({}), 0), "an error's are not read");
}

#[test]
fn a_rules_absurd_and_repeated_fields_are_refused_one_by_one() {
    let good = ("x-in", "7");
    let seven = json!({"primary": "output_token", "input_token": [7, "reported"]});
    for absurd in ["-1", "x", "", "NaN", "inf", "1e99"] {
        assert_eq!(by_fields(200, &[good, ("x-out", absurd)], &[]), (seven.clone(), 1), "{absurd}");
        assert_eq!(by_fields(200, &[good], &[("x-out", absurd), ("x-in", absurd)]), (seven.clone(), 2), "{absurd}");
    }
    assert_eq!(by_fields(200, &[good, ("x-out", "3"), ("x-out", "3")], &[]), (seven.clone(), 1));
    assert_eq!(by_fields(200, &[good], &[("x-in", "8"), ("x-in", "9"), ("x-m", "a"), ("x-m", "b")]), (seven, 2));
}

#[test]
fn tensors_as_json_are_noted_where_the_protocol_has_a_binary_form() {
    let tensor = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]}"#;
    let noted = |path: &str, fields: &[(&str, &str)], body: &str| {
        let fields = fields.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()));
        let protocols = Protocols::default();
        let mut reader = protocols.open(&protocols.detect(&Method::POST, path), &fields.collect()).unwrap();
        reader.request(body.as_bytes());
        let mut ledger = Ledger::open(Stamp::now(), 0);
        reader.close(&mut ledger);
        ledger.circumstances.annotations.has(Annotation::JsonTensors)
    };
    let infer = "/v2/models/m/infer";
    assert!(noted(infer, &[], tensor));
    assert!(noted(infer, &[("content-type", "application/json")], tensor));
    let length = tensor.len().to_string();
    assert!(!noted(infer, &[("inference-header-content-length", &length)], tensor), "binary tensors follow");
    assert!(!noted(infer, &[], r#"{"inputs":[]}"#));
    assert!(!noted(infer, &[("content-encoding", "gzip")], tensor), "it cannot be read");
    assert!(!noted("/v1/models/m:predict", &[], r#"{"instances":[[1,2]]}"#), "it has no binary form over REST");
}

#[test]
fn bodies_that_could_be_read_and_are_not_are_noted() {
    let noted = |request: &[(&str, &str)], answer: &[(&str, &str)]| {
        let fields = |fields: &[(&str, &str)]| -> HeaderMap {
            fields.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
        };
        let protocols = Protocols::default();
        let mut reader = protocols.open(&protocols.detect(&Method::POST, "/v1/completions"), &fields(request)).unwrap();
        reader.response_head(200, &fields(answer));
        let mut ledger = Ledger::open(Stamp::now(), 0);
        (ledger.request_bytes, ledger.response_bytes) = (10, 10);
        reader.close(&mut ledger);
        [Annotation::UnreadRequest, Annotation::UnreadResponse, Annotation::CompressedResponse]
            .map(|annotation| ledger.circumstances.annotations.has(annotation))
    };
    let (json, odd) = (("content-type", "application/json"), ("content-encoding", "x-unheard-of"));
    assert_eq!(noted(&[json], &[json]), [false; 3]);
    assert_eq!(noted(&[json, odd], &[json]), [true, false, false]);
    assert_eq!(noted(&[json], &[json, odd]), [false, true, true]);
    assert_eq!(noted(&[json], &[("content-type", "application/x-odd")]), [false, true, false]);
    assert_eq!(noted(&[json], &[("content-type", "audio/mpeg")]), [false; 3], "nobody could");
}
