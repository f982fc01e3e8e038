//! Requests as calls of a model, answers as its tensors, and what a stranger may send instead.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use proptest::prelude::*;
use serde_json::{Value, json};

mod apis;
mod columns;
mod images;

use super::*;
use crate::Config;
use lapwing_compare::outputs::TestAnswer;
use lapwing_compare::outputs::{AnswerReading, Comparer, Comparison, ComparisonResult, DifferenceKind, FieldScales};
use lapwing_settings::Checks;

const LIMIT: usize = 1 << 20;

fn rule(value: Value) -> MappingRule {
    serde_json::from_value(value).unwrap()
}

fn ports(of: &[(&str, &str, &[Option<usize>])]) -> Vec<TensorPort> {
    of.iter().map(|(name, datatype, shape)| TensorPort::new((*name).into(), datatype, shape.to_vec()).unwrap()).collect()
}

/// Rows of three numbers to one.
fn scorer() -> ModelPorts {
    ModelPorts { inputs: ports(&[("x", "FP32", &[None, Some(3)])]), outputs: ports(&[("y", "FP32", &[None, Some(1)])]) }
}

fn encoder() -> ModelPorts {
    let tokens: &[_] = &[None, None];
    let inputs =
        ports(&[("input_ids", "INT64", tokens), ("attention_mask", "INT64", tokens), ("token_type_ids", "INT32", tokens)]);
    ModelPorts { inputs, outputs: ports(&[("embedding", "FP32", &[None, Some(2)])]) }
}

fn scores() -> MappingRule {
    rule(json!({"route": "POST /score", "inputs": {"x": "$.rows"}, "outputs": {"y": "$.scores"}}))
}

fn texts(max_tokens: usize) -> MappingRule {
    let tokenizer = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/tokenizers/words.json");
    rule(json!({"route": "POST /embed", "text": "$.inputs", "tokenizer": tokenizer, "max_tokens": max_tokens,
        "outputs": {"embedding": "$[].vector"}}))
}

fn mapping(rule: &MappingRule, ports: &ModelPorts) -> RequestMapping {
    RequestMapping::new(rule, ports, Path::new("m.onnx"), LIMIT).unwrap()
}

fn call(mapping: &RequestMapping, body: impl Into<Bytes>) -> Result<MappedCall, MappingFault> {
    mapping.call(&HeaderMap::new(), &[body.into()])
}

/// The head of a call, and the data of each of its inputs.
fn parts(call: &MappedCall) -> (Value, Vec<Bytes>) {
    let head: Value = serde_json::from_slice(&call.body[..call.json_bytes]).unwrap();
    let mut rest = call.body.slice(call.json_bytes..);
    let size = |input: &Value| usize::try_from(input["parameters"]["binary_data_size"].as_u64().unwrap()).unwrap();
    let data = head["inputs"].as_array().unwrap().iter().map(|input| rest.split_to(size(input))).collect();
    assert!(rest.is_empty());
    (head, data)
}

fn floats(data: &[u8]) -> Vec<f32> {
    data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[cfg(feature = "tokenizers")]
fn longs(data: &[u8]) -> Vec<i64> {
    data.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
}

#[test]
fn rows_become_a_call_of_the_model() {
    let mapping = mapping(&scores(), &scorer());
    let (head, data) = parts(&call(&mapping, r#"{"user": "x", "rows": [[1, 2.5, -3], [4, 5, 6]]}"#).unwrap());
    let expected = json!({
        "inputs": [{"name": "x", "shape": [2, 3], "datatype": "FP32", "parameters": {"binary_data_size": 24}}],
        "outputs": [{"name": "y", "parameters": {"binary_data": true}}],
    });
    assert_eq!((head, floats(&data[0])), (expected, vec![1.0, 2.5, -3.0, 4.0, 5.0, 6.0]));
    // one row alone, in pieces, compressed
    let (head, data) = parts(&call(&mapping, r#"{"rows": [1, 2, 3]}"#).unwrap());
    assert_eq!((&head["inputs"][0]["shape"], floats(&data[0])), (&json!([1, 3]), vec![1.0, 2.0, 3.0]));
    let packed = gzip(br#"{"rows": [[1, 2, 3]]}"#);
    let headers = HeaderMap::from_iter([(CONTENT_ENCODING, "gzip".parse().unwrap())]);
    let pieces: Vec<Bytes> = packed.chunks(7).map(Bytes::copy_from_slice).collect();
    assert_eq!(parts(&mapping.call(&headers, &pieces).unwrap()).1, data);
}

fn gzip(text: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[cfg(feature = "tokenizers")]
#[test]
fn texts_become_tokens_that_the_mask_tells_from_padding() {
    let (head, data) = parts(&call(&mapping(&texts(8), &encoder()), r#"{"inputs": ["The lapwing.", "calls"]}"#).unwrap());
    let shapes: Vec<_> = head["inputs"].as_array().unwrap().iter().map(|input| &input["shape"]).collect();
    assert_eq!(shapes, [&json!([2, 5]); 3]);
    // [CLS] the lapwing . [SEP], and padding by the id that the file names
    assert_eq!(longs(&data[0]), [1, 4, 5, 8, 2, 1, 6, 2, 3, 3]);
    assert_eq!(longs(&data[1]), [1, 1, 1, 1, 1, 1, 1, 1, 0, 0]);
    assert_eq!((&head["inputs"][2]["datatype"], &data[2][..]), (&json!("INT32"), &[0; 40][..]));
    // a single text; longer ones are cut at their end, whatever the file says
    let long = json!({"inputs": "the lapwing calls, the lapwing calls."}).to_string();
    let (_, data) = parts(&call(&mapping(&texts(8), &encoder()), long).unwrap());
    assert_eq!(longs(&data[0]), [1, 4, 5, 6, 7, 4, 5, 2]);
    // a model without segments
    let mut two = encoder();
    two.inputs.truncate(2);
    assert_eq!(parts(&call(&mapping(&texts(8), &two), r#"{"inputs": ""}"#).unwrap()).1.len(), 2);
}

#[test]
fn each_fault_of_a_request_is_counted_as_what_it_is() {
    let scores = mapping(&scores(), &scorer());
    for (body, reason, text) in [
        ("", "mapping_body", "the body cannot be read: not JSON"),
        ("rows=1", "mapping_body", "not JSON"),
        (r#"{"rows": NaN}"#, "mapping_shape", "has the shape []"),
        (r#"{"rows": [[1e400, 0, 0]]}"#, "mapping_type", "has a text at [0, 0], which is no FP32"),
        ("{}", "mapping_missing", "inputs.x: $.rows leads to nothing"),
        (r#"{"rows": [[1, 2, 3], [4, 5]]}"#, "mapping_ragged", "is ragged at [1]: 2 elements where the first such list has 3"),
        (r#"{"rows": [[1, 2, 3], 4]}"#, "mapping_ragged", "lists and single values"),
        (r#"{"rows": [[1, "NaN", 3]]}"#, "mapping_type", "has a text at [0, 1], which is no FP32"),
        (r#"{"rows": [[1, 1e39, 3]]}"#, "mapping_type", "has a number at [0, 1], which is no FP32"),
        (r#"{"rows": {"secret": 5}}"#, "mapping_type", "has an object, which is no FP32"),
        (r#"{"rows": [[1, 2], [3, 4]]}"#, "mapping_shape", "has the shape [2, 2], where the model takes [-1, 3]"),
        (r#"{"rows": []}"#, "mapping_shape", "has the shape [0]"),
        (r#"{"rows": [[], []]}"#, "mapping_shape", "has the shape [2, 0]"),
        (r#"{"rows": [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]}"#, "mapping_shape", "more than 16 lists"),
    ] {
        let fault = call(&scores, body).unwrap_err();
        let said = fault.to_string();
        assert_eq!(fault.drop_reason().name(), reason, "{body}: {said}");
        assert!(said.contains(text) && !said.contains("secret"), "{said}");
    }
    let unknown = HeaderMap::from_iter([(CONTENT_ENCODING, "compress".parse().unwrap())]);
    assert!(matches!(scores.call(&unknown, &[Bytes::from_static(b"{}")]), Err(MappingFault::Body(_))));
    if cfg!(feature = "tokenizers") {
        let texts = mapping(&texts(8), &encoder());
        for (body, reason) in [
            (r#"{"inputs": []}"#, "mapping_tokens"),
            (r#"{"inputs": [1]}"#, "mapping_type"),
            (r#"{"inputs": [["a", "b"]]}"#, "mapping_shape"),
            (r#"{"inputs": null}"#, "mapping_type"),
        ] {
            assert_eq!(call(&texts, body).unwrap_err().drop_reason().name(), reason, "{body}");
        }
    }
}

#[test]
fn what_is_large_is_refused_within_the_limit() {
    let scores = mapping(&scores(), &scorer());
    let deep = "[".repeat(LIMIT);
    assert!(call(&scores, deep).unwrap_err().to_string().contains("deeper than 128"));
    assert!(matches!(call(&scores, " ".repeat(LIMIT + 1)), Err(MappingFault::Body(_))));
    let bomb = gzip(&vec![b' '; 64 * LIMIT]);
    let headers = HeaderMap::from_iter([(CONTENT_ENCODING, "gzip".parse().unwrap())]);
    assert!(matches!(scores.call(&headers, &[bomb.into()]), Err(MappingFault::Body(_))));
    // a megabyte of single digits is two megabytes of numbers
    let digits = format!("{{\"rows\": [{}[1,2,3]]}}", "[1,2,3],".repeat(LIMIT / 9));
    assert_eq!(call(&scores, digits).unwrap_err().drop_reason().name(), "mapping_too_large");
    if cfg!(feature = "tokenizers") {
        let short = mapping(&texts(8), &encoder());
        let many = json!({"inputs": vec!["a"; 100_000]}).to_string();
        assert_eq!(call(&short, many).unwrap_err().drop_reason().name(), "mapping_too_large");
        // a megabyte of one text is cut to the most tokens
        let long = json!({"inputs": "the lapwing calls ".repeat(50_000)}).to_string();
        assert_eq!(parts(&call(&short, long).unwrap()).0["inputs"][0]["shape"], json!([1, 8]));
        // one long text fills up all others
        let padded = mapping(&texts(1024), &encoder());
        let mut uneven = vec!["a".to_owned(); 100];
        uneven[99] = "a ".repeat(2000);
        assert_eq!(call(&padded, json!({"inputs": uneven}).to_string()).unwrap_err().drop_reason().name(), "mapping_too_large");
    }
}

#[test]
fn a_mapping_that_does_not_fit_the_model_is_refused() {
    let refused =
        |rule: MappingRule, ports: &ModelPorts| RequestMapping::new(&rule, ports, Path::new("m.onnx"), LIMIT).unwrap_err();
    let with = |inputs: Value, outputs: Value| rule(json!({"route": "POST /score", "inputs": inputs, "outputs": outputs}));
    let y = || json!({"y": "$"});
    assert_eq!(refused(with(json!({"z": "$"}), y()), &scorer()), "inputs.z: is no input of the model; its inputs are x");
    assert_eq!(
        refused(with(json!({"x": "$"}), json!({"z": "$"})), &scorer()),
        "outputs.z: is no output of the model; its outputs are y"
    );
    assert_eq!(refused(with(json!({}), y()), &scorer()), "inputs: x is an input of the model, and is not mapped");
    let half = ModelPorts { inputs: ports(&[("x", "FP16", &[None])]), ..scorer() };
    assert!(refused(with(json!({"x": "$"}), y()), &half).starts_with("inputs.x: the model takes FP16"));
    assert_eq!(refused(texts(8), &scorer()), "text: becomes input_ids, and the model has no input input_ids");
    let floats = ModelPorts { inputs: ports(&[("input_ids", "FP32", &[None, None])]), ..encoder() };
    assert!(refused(texts(8), &floats).contains("input_ids of the model is FP32"));
    if cfg!(feature = "tokenizers") {
        let twice = MappingRule { inputs: [("input_ids".to_owned(), "$".to_owned())].into(), ..texts(8) };
        assert_eq!(refused(twice, &encoder()), "inputs.input_ids: is what text or a picture becomes");
        let gone = MappingRule { tokenizer: Some("gone.json".into()), ..texts(8) };
        assert!(refused(gone, &encoder()).starts_with("tokenizer: gone.json: cannot be read"));
    }
    // of several for one route the first counts, and each names its targets
    let elsewhere = MappingRule { targets: vec!["other".into()], ..with(json!({"z": "$"}), y()) };
    let config = Config { mappings: vec![elsewhere, scores(), with(json!({"z": "$"}), y())], ..Config::default() };
    assert!(
        MappingTable::new(&config.mappings, config.max_body, "reference", Path::new("m.onnx"), &scorer())
            .unwrap()
            .of("POST /score")
            .is_some()
    );
    let error =
        MappingTable::new(&config.mappings, config.max_body, "other", Path::new("m.onnx"), &scorer()).unwrap_err().to_string();
    assert_eq!(error, "shadow.mappings: POST /score, for target other: inputs.z: is no input of the model; its inputs are x");
}

#[test]
fn every_fault_of_the_configuration_is_named() {
    let faults = |mappings: Vec<MappingRule>, targets: &[(&str, &str)], routes: &[&str]| {
        let targets = targets.iter().map(|(name, target)| ((*name).to_owned(), target.parse().unwrap())).collect();
        let routes = routes.iter().map(|route| (*route).to_owned()).collect();
        let config = Config { mappings, targets, routes, ..Config::default() };
        let mut checks = Checks::new(BTreeSet::new());
        lapwing_settings::Section::check(&config, &mut checks);
        checks.into_faults().iter().map(|fault| format!("{}: {}", fault.path, fault.reason)).collect::<Vec<_>>()
    };
    let engine = [("reference", "engine:m.onnx")];
    assert_eq!(faults(vec![scores()], &engine, &["POST /score"]), [""; 0]);
    assert_eq!(faults(vec![scores()], &[], &["POST /score"]), [""; 0], "a replay names its targets itself");
    let known = MappingRule { route: "POST /v1/embeddings".into(), ..scores() };
    assert_eq!(faults(vec![known], &engine, &[]), [""; 0], "a known inference route needs no list");
    let begins = |mappings, targets: &[_], expected: &[&str]| {
        let found = faults(mappings, targets, &["POST /score"]);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        found.iter().zip(expected).for_each(|(found, expected)| assert!(found.starts_with(expected), "{found}"));
    };
    let elsewhere = MappingRule { route: "POST /orders".into(), ..scores() };
    begins(vec![elsewhere], &engine, &["mappings[0].route: is not copied: list it in shadow.routes"]);
    begins(vec![scores()], &[("a", "http://m:1")], &["mappings[0]: has no effect: no target is a model"]);
    let both = [("a", "http://m:1"), ("reference", "engine:m.onnx")];
    let named = MappingRule { targets: vec!["a".into(), "b".into()], ..scores() };
    begins(vec![named], &both, &["mappings[0].targets[0]: is a server", "mappings[0].targets[1]: is none of shadow.targets"]);
    let wrong =
        rule(json!({"route": "score", "inputs": {"x": "$..rows"}, "outputs": {"y": "scores"}, "text": "$.*", "max_tokens": 7}));
    begins(
        vec![wrong, rule(json!({"route": "POST /score", "tokenizer": "t.json"}))],
        &engine,
        &[
            "mappings[0].route: must be a method and a path",
            "mappings[0].inputs.x: must lead to one value",
            "mappings[0].outputs.y: must be a path that begins with $",
            "mappings[0].text: must lead to one value",
            "mappings[0].max_tokens: must be between 8 and 32768",
            "mappings[1].inputs: is required, unless there are columns, images or text",
            "mappings[1].outputs: is required",
            "mappings[1].tokenizer: has no effect without text",
        ],
    );
    let alone = MappingRule { text: Some("$".into()), ..scores() };
    let expected = "mappings[0].tokenizer: is required where there is text, because there is no tokenizer.json";
    begins(vec![alone], &engine, &[expected]);
    let file = MappingRule { tokenizer: Some("gone.json".into()), text: Some("$".into()), ..scores() };
    let expected = if cfg!(feature = "tokenizers") {
        "gone.json: cannot be read"
    } else {
        "gone.json: cannot be used: this Lapwing was built without"
    };
    begins(vec![file], &engine, &[&format!("mappings[0].tokenizer: {expected}")]);
}

/// The answer of the upstream against a call's answer with these outputs.
fn compared(mapping: &RequestMapping, primary: &str, candidate: Value, tokens: &[u32]) -> Comparison {
    let readings = [AnswerReading::Mapped(mapping.outputs()), AnswerReading::Model(mapping.outputs(), tokens)];
    let (primary, candidate) = (TestAnswer::json(primary), TestAnswer::json(json!({"outputs": candidate}).to_string()));
    Comparer::new(&Config::default().compare).compare_as(
        "POST /score",
        readings,
        &FieldScales::default(),
        &primary.as_finished(),
        &candidate.as_finished(),
    )
}

fn output(name: &str, shape: &[usize], data: &[f64]) -> Value {
    json!([{"name": name, "datatype": "FP32", "shape": shape, "data": data}])
}

#[test]
fn an_answer_is_compared_as_tensors_by_the_names_of_the_model() {
    let of = |primary: &str| compared(&mapping(&scores(), &scorer()), primary, output("y", &[3, 1], &[0.1, 0.2, 0.3]), &[]);
    // with or without the model's axis of length one
    for same in [r#"{"scores": [0.1, 0.2, 0.3], "took_ms": 5}"#, r#"{"scores": [[0.1], [0.2], [0.3]]}"#] {
        let found = of(same);
        assert_eq!((found.result, found.fields[0].field.as_str()), (ComparisonResult::Same, "y"), "{:?}", found.fields);
    }
    let wrong = of(r#"{"scores": [0.1, 1.2, 0.3]}"#);
    let numbers = wrong.fields[0].numbers.as_ref().unwrap();
    let greatest = numbers.greatest.as_ref().unwrap();
    assert_eq!((numbers.rows_outside, greatest.row, greatest.at.as_str()), (1, 1, "[1, 0]"));
    assert!(of(r#"{"scores": [0.1, 0.2]}"#).kinds().contains(DifferenceKind::Shape));
    let unreadable = |primary| matches!(of(primary).result, ComparisonResult::Incomparable(_));
    assert!(unreadable("{}") && unreadable(r#"{"scores": ["a"]}"#) && unreadable("no JSON"));
    if cfg!(feature = "tokenizers") {
        let answer = r#"[{"vector": [0.6, 0.8]}, {"vector": [1, 0]}]"#;
        let found = compared(&mapping(&texts(8), &encoder()), answer, output("embedding", &[2, 2], &[0.6, 0.8, 1.0, 0.0]), &[]);
        assert_eq!(found.result, ComparisonResult::Same, "{:?}", found.fields);
    }
}

#[test]
fn no_payload_is_kept_of_a_mapped_answer_where_anything_is_redacted() {
    let mapping = mapping(&scores(), &scorer());
    let kept = |redact: &[&str]| {
        let redact = redact.iter().map(|path| (*path).to_owned()).collect();
        let config = lapwing_compare::outputs::Config { keep_samples: 1, redact, ..Default::default() };
        let (p, c) = (TestAnswer::json(r#"{"scores": [1]}"#), TestAnswer::json(r#"{"scores": [2]}"#));
        let readings = [AnswerReading::Mapped(mapping.outputs()); 2];
        Comparer::new(&config)
            .compare_as("POST /score", readings, &FieldScales::default(), &p.as_finished(), &c.as_finished())
            .sample
            .is_some()
    };
    assert!(kept(&[]) && !kept(&["$.scores"]));
}

proptest! {
    #[test]
    fn nothing_panics_and_a_call_is_always_whole(
        parts_of in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"rows\"", "\"inputs\"", "1", "-2.5", "1e39", "null", "true", "\"NaN\"", "\"\\ud800\"", "[1,2,3]", "{\"rows\":",
        ]), 0..30),
        raw in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let scores = mapping(&scores(), &scorer());
        for body in [parts_of.concat().into_bytes(), raw] {
            if let Ok(called) = call(&scores, body) {
                let (head, data) = parts(&called);
                let shape: Vec<u64> = head["inputs"][0]["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
                prop_assert_eq!(shape[1], 3);
                prop_assert_eq!(data[0].len() as u64, shape.iter().product::<u64>() * 4);
            }
        }
    }

    #[test]
    fn rows_come_back_bit_for_bit(rows in prop::collection::vec(prop::array::uniform3(-1e30_f32..1e30), 1..20)) {
        let (_, data) = parts(&call(&mapping(&scores(), &scorer()), json!({"rows": rows}).to_string()).unwrap());
        prop_assert_eq!(floats(&data[0]), rows.concat());
    }
}
