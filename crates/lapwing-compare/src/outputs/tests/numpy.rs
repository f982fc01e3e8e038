//! Answers of a model in fp32 and INT8, counted here and by numpy: the counts are the same, exactly, in every encoding of the protocol.
//! `tests/fixtures/compare/make.py` makes the answers and numpy's counts.

use std::path::Path;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use serde_json::Value as Json;

use super::*;
use lapwing_protocol::OutputKind;

const ANSWERS: usize = 45;
const ROWS: usize = 8;
const CLASSES: usize = 10;

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/compare").join(name)).unwrap()
}

/// The answers of a file, as data of `y: FP32 [8, 10]`.
fn answers(name: &str) -> Vec<Vec<u8>> {
    let answers: Vec<Vec<u8>> = fixture(&format!("{name}.bin")).chunks(ROWS * CLASSES * 4).map(<[u8]>::to_vec).collect();
    assert_eq!(answers.len(), ANSWERS);
    answers
}

fn head(data: &str) -> String {
    format!(r#"{{"model_name":"digits","outputs":[{{"name":"y","datatype":"FP32","shape":[{ROWS},{CLASSES}],{data}}}]}}"#)
}

fn as_json(data: &[u8]) -> TestAnswer {
    let floats = data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes).to_string());
    TestAnswer::json(head(&format!("\"data\":[{}]", floats.collect::<Vec<_>>().join(","))))
}

fn as_binary(data: &[u8]) -> TestAnswer {
    let head = head(&format!(r#""parameters":{{"binary_data_size":{}}}"#, data.len()));
    let body = [head.as_bytes(), data].concat();
    TestAnswer::new("application/octet-stream", body).with("inference-header-content-length", head.len())
}

/// `ModelInferResponse` as far as it is needed.
#[derive(Clone, PartialEq, Message)]
struct InferResponse {
    #[prost(string, tag = "1")]
    model: String,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(message, repeated, tag = "5")]
    outputs: Vec<Output>,
    #[prost(bytes = "bytes", repeated, tag = "6")]
    raw: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct Output {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    datatype: String,
    #[prost(int64, repeated, tag = "3")]
    shape: Vec<i64>,
    #[prost(message, optional, tag = "5")]
    contents: Option<OutputContents>,
}

#[derive(Clone, PartialEq, Message)]
struct OutputContents {
    #[prost(float, repeated, tag = "6")]
    floats: Vec<f32>,
}

fn as_grpc(data: &[u8], is_raw: bool) -> TestAnswer {
    let floats = data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let contents = (!is_raw).then_some(OutputContents { floats });
    let shape = vec![ROWS as i64, CLASSES as i64];
    let output = Output { name: "y".into(), datatype: "FP32".into(), shape, contents };
    let raw = if is_raw { vec![Bytes::copy_from_slice(data)] } else { Vec::new() };
    let message = InferResponse { model: "digits".into(), version: "1".into(), outputs: vec![output], raw }.encode_to_vec();
    let mut body = BytesMut::new();
    body.put_u8(0);
    body.put_u32(message.len() as u32);
    body.extend_from_slice(&message);
    // cut as the network may cut
    let mut answer = TestAnswer::new("application/grpc", body.freeze());
    let tail = answer.body[0].split_off(3);
    answer.body.push(tail);
    answer.grpc_status = Some(0);
    answer
}

/// Makes an answer of the data of its tensor.
type Encoding<'e> = &'e dyn Fn(&[u8]) -> TestAnswer;

/// `numpy.isclose(…, atol=1e-3, rtol=1e-3)`.
fn of_numpy() -> Config {
    Config { tolerance: Tolerance::of(1e-3, 1e-3), ..Config::default() }
}

/// All answers of two files, compared and added up. The trace id of an answer is its number plus one.
fn account(config: &Config, primary: &str, candidate: &str, encode: Encoding<'_>) -> DifferencesSnapshot {
    let comparer = Comparer::new(config);
    let mut differences = comparer.differences("POST /v2/models/digits/infer", false);
    for (at, (p, c)) in answers(primary).iter().zip(answers(candidate)).enumerate() {
        let (p, c) = (encode(p), encode(&c));
        let comparison = comparer.compare("/v2/models/digits/infer", OutputKind::Tensors, &p.as_finished(), &c.as_finished());
        differences.record(&comparison, ComparedWith::Candidate, trace(at as u8 + 1), Asked::default());
    }
    differences.snapshot()
}

fn assert_is_numpys(expected: &Json, found: &DifferencesSnapshot, top_1: u64) {
    let count = |key: &str| expected[key].as_u64().unwrap();
    let counts = |key: &str| -> Vec<u64> { expected[key].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect() };
    let [field] = &found.fields[..] else { panic!("{:?}", found.fields) };
    let numbers = field.numbers.as_ref().unwrap();
    assert_eq!(field.field, "y");
    assert_eq!(
        (numbers.elements, numbers.outside, numbers.rows_outside),
        (count("elements"), count("outside"), count("rows_outside"))
    );
    assert_eq!(found.errors.iter().map(|step| step.elements).collect::<Vec<_>>(), counts("exceeding_elements"));
    assert_eq!(found.errors.iter().map(|step| step.answers).collect::<Vec<_>>(), counts("exceeding_answers"));
    assert_eq!(
        (found.compared, found.different, found.mismatches.answers),
        (45, count("answers_outside"), count("answers_outside"))
    );
    assert_eq!(numbers.greatest_relative, expected["relative"].as_f64());
    assert_eq!(numbers.greatest_ulps, expected["ulps"].as_u64());
    assert_eq!((numbers.ranked_rows, numbers.top_k_changed), (360, top_1));
    let worst = field.worst.first().unwrap();
    let greatest = &expected["greatest"];
    let number = |key: &str| greatest[key].as_f64().unwrap();
    assert_eq!(worst.error, Some(number("error")));
    assert_eq!((worst.index, worst.row), (greatest["index"].as_u64(), greatest["row"].as_u64()));
    assert_eq!(worst.trace, trace(greatest["answer"].as_u64().unwrap() as u8 + 1));
    assert_eq!((worst.primary.parse(), worst.candidate.parse()), (Ok(number("primary")), Ok(number("candidate"))));
    let is_near = |a: f64, key: &str| (a - expected[key].as_f64().unwrap()).abs() < 1e-12;
    assert!(is_near(numbers.least_cosine.unwrap(), "cosine"), "{:?}", numbers.least_cosine);
    if expected["divergence"].is_null() {
        assert_eq!(numbers.greatest_divergence, None);
    } else {
        assert!(is_near(numbers.greatest_divergence.unwrap(), "divergence"), "{:?}", numbers.greatest_divergence);
    }
}

#[test]
fn every_encoding_gives_the_counts_of_numpy() {
    let expected: Json = serde_json::from_slice(&fixture("expected.json")).unwrap();
    for (pair, expected) in expected.as_object().unwrap() {
        let (primary, candidate) = pair.split_once(' ').unwrap();
        let encodings: [Encoding<'_>; 4] = [&as_json, &as_binary, &|data| as_grpc(data, true), &|data| as_grpc(data, false)];
        for encode in encodings {
            let found = account(&of_numpy(), primary, candidate, encode);
            assert_is_numpys(expected, &found, expected["top_1_changed"].as_u64().unwrap());
            let config = Config { top_k: 3, ..of_numpy() };
            let found = account(&config, primary, candidate, encode);
            assert_is_numpys(expected, &found, expected["top_3_changed"].as_u64().unwrap());
        }
    }
}

#[test]
fn two_fp32_servers_agree_within_1e_4() {
    let found = account(&of_numpy(), "fp32", "again", &as_binary);
    let at_1e_4 = found.errors.iter().find(|step| step.above == 1e-4).unwrap();
    assert_eq!((at_1e_4.answers, at_1e_4.elements, found.mismatches.answers), (0, 0, 0));
    // they are not the same to the last bit, so that this says something
    assert!(found.errors.last().unwrap().elements > 0);
    let text = found.to_string();
    assert!(text.starts_with("Outputs agree within 1e-3, absolute plus relative, in 100 % of 45 answers."), "{text}");
}

#[test]
fn the_wrong_row_is_found() {
    let text = account(&of_numpy(), "fp32", "wrong", &as_json).to_string();
    assert!(text.contains("in 97.78 % of 45 answers; the one that differs:"), "{text}");
    assert!(text.contains("\n  y: value in 1 answer; greatest error "), "{text}");
    assert!(text.contains(" at [5, 4], row 5: "), "{text}");
    assert!(text.contains(&format!("(trace {})", trace(32))), "{text}");
}
