//! Answers of each protocol against variations of themselves.

use super::*;
use lapwing_protocol::OutputKind;

const CHAT: &str = "application/json";
const STREAM: &str = "text/event-stream";

#[test]
fn the_status_decides_before_the_body() {
    let ok = TestAnswer::json(r#"{"a":1}"#);
    let error = |text: &str| TestAnswer::json(text).status(503);
    let found = compare(OutputKind::Other, &ok, &error("{}"));
    assert_eq!((found.result, differing(&found)), (ComparisonResult::Different, vec![("status".into(), vec!["status"])]));
    assert_eq!(found.fields[0].detail.as_ref().map(|detail| detail.candidate.as_str()), Some("503"));
    // two failures say nothing of a model, two refusals that both servers refuse the same
    let failed = ComparisonResult::Incomparable(Incomparable::BothFailed);
    assert_eq!(compare(OutputKind::Other, &error("a"), &error("b")).result, failed);
    let refused = |text: &str| TestAnswer::json(text).status(422);
    assert_eq!(compare(OutputKind::Other, &refused("a"), &refused("b")).result, ComparisonResult::Same);
    // 200 and 201 differ, and so may their bodies
    let created = compare(OutputKind::Other, &ok, &TestAnswer::json(r#"{"a":2}"#).status(201));
    assert_eq!(differing(&created).len(), 2);
    let grpc = |status| TestAnswer { grpc_status: Some(status), ..TestAnswer::new("application/grpc", "") };
    assert_eq!(compare(OutputKind::Tensors, &grpc(14), &grpc(14)).result, failed);
    assert_eq!(compare(OutputKind::Tensors, &grpc(3), &grpc(3)).result, ComparisonResult::Same);
    let found = compare(OutputKind::Tensors, &grpc(0), &grpc(14));
    assert_eq!(found.fields[0].detail.as_ref().map(|detail| detail.candidate.as_str()), Some("grpc 14"));
}

#[test]
fn tensors_are_paired_by_name_and_by_mapping() {
    let answer = |name: &str, datatype: &str, shape: &str, data: &str| {
        TestAnswer::json(format!(
            r#"{{"id":"{name}","outputs":[{{"name":"{name}","datatype":"{datatype}","shape":{shape},"data":{data}}}]}}"#
        ))
    };
    let primary = answer("y", "FP32", "[1,2]", "[[0.25,0.5]]");
    let kinds = |candidate: &TestAnswer| differing(&compare(OutputKind::Tensors, &primary, candidate));
    assert_eq!(kinds(&answer("y", "FP32", "[1,2]", "[0.25,0.5]")), []);
    assert_eq!(kinds(&answer("y", "FP64", "[1,2]", "[0.25,0.5]")), [("y".into(), vec!["datatype"])]);
    assert_eq!(kinds(&answer("y", "FP32", "[2,1]", "[0.25,0.5]")), [("y".into(), vec!["shape"])]);
    assert_eq!(kinds(&answer("y", "FP32", "[1,2]", "[0.25,0.6]")), [("y".into(), vec!["value"])]);
    assert_eq!(kinds(&answer("y", "FP64", "[1,2]", "[0.25,0.6]")), [("y".into(), vec!["datatype", "value"])]);
    assert_eq!(kinds(&answer("y", "FP32", "[1,3]", "[0.25,0.6]")), [("body".into(), vec!["undecodable"])]);
    let renamed = answer("output_0", "FP32", "[1,2]", "[0.25,0.5]");
    assert_eq!(kinds(&renamed), [("y".into(), vec!["structure"]), ("output_0".into(), vec!["structure"])]);
    let config = Config { names: [("y".to_owned(), "output_0".to_owned())].into(), ..Config::default() };
    assert_eq!(compare_by(&config, OutputKind::Tensors, &primary, &renamed).result, ComparisonResult::Same);
    // null is NaN, which is itself
    let nan = answer("y", "FP32", "[1,2]", "[null,0.5]");
    assert_eq!(compare(OutputKind::Tensors, &nan, &nan).result, ComparisonResult::Same);
    assert_eq!(kinds(&nan), [("y".into(), vec!["value"])]);
    let texts = |text: &str| answer("s", "BYTES", "[1]", &format!("[\"{text}\"]"));
    let found = compare(OutputKind::Tensors, &texts("cat"), &texts("dog"));
    assert_eq!(differing(&found), [("s".into(), vec!["text"])]);
}

#[test]
fn the_same_model_served_otherwise_is_compared_by_value() {
    let answer = |datatype: &str, shape: &str, data: &str| {
        let tensor = format!(r#"{{"name": "y", "datatype": "{datatype}", "shape": {shape}, "data": {data}}}"#);
        TestAnswer::json(format!(r#"{{"outputs": [{tensor}]}}"#))
    };
    let kinds = |reading: fn(OutputKind) -> AnswerReading<'static>, p: &TestAnswer, c: &TestAnswer| {
        let readings = [AnswerReading::Protocol(OutputKind::Tensors), reading(OutputKind::Tensors)];
        let scales = FieldScales::default();
        let found = Comparer::new(&Config::default()).compare_as("/", readings, &scales, &p.as_finished(), &c.as_finished());
        differing(&found).pop().map(|(_, kinds)| kinds).unwrap_or_default()
    };
    let (double, single) = (answer("FP64", "[2, 1]", "[0.25, 0.5]"), answer("FP32", "[2]", "[0.25, 0.5]"));
    assert_eq!(kinds(AnswerReading::Protocol, &double, &single), ["datatype", "shape"]);
    assert!(kinds(AnswerReading::SameModel, &double, &single).is_empty());
    assert_eq!(kinds(AnswerReading::SameModel, &double, &answer("FP32", "[1, 2]", "[0.25, 0.75]")), ["value"]);
    // a class is no probability, and two rows are no row of two
    assert_eq!(
        kinds(AnswerReading::SameModel, &answer("INT64", "[2]", "[0, 1]"), &answer("FP32", "[2]", "[0, 1]")),
        ["datatype"]
    );
    let (wide, long) = (answer("FP32", "[2, 3]", "[1, 2, 3, 4, 5, 6]"), answer("FP32", "[3, 2]", "[1, 2, 3, 4, 5, 6]"));
    assert_eq!(kinds(AnswerReading::SameModel, &wide, &long), ["shape"]);
}

#[test]
fn the_rule_of_a_route_decides() {
    let answer =
        |data: &str| TestAnswer::json(format!(r#"{{"outputs":[{{"name":"y","datatype":"FP32","shape":[1,3],"data":{data}}}]}}"#));
    let (p, near, other) = (answer("[0.1,0.2,0.7]"), answer("[0.12,0.2,0.68]"), answer("[0.1,0.5,0.4]"));
    for (rule, near_agrees) in
        [(TensorRule::Tolerance, false), (TensorRule::TopK, true), (TensorRule::Cosine, true), (TensorRule::Divergence, true)]
    {
        let config = Config { tensors: rule, ..Config::default() };
        let agrees = |c: &TestAnswer| compare_by(&config, OutputKind::Tensors, &p, c).result == ComparisonResult::Same;
        assert_eq!((agrees(&p), agrees(&near), agrees(&other)), (true, near_agrees, false), "{rule:?}");
    }
}

#[test]
fn embeddings_agree_by_their_angle() {
    use base64::Engine as _;
    let floats = |vector: &[f32]| -> String {
        let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
        format!("\"{}\"", base64::engine::general_purpose::STANDARD.encode(bytes))
    };
    let openai = |a: &str, b: &str| {
        TestAnswer::json(format!(
            r#"{{"data":[{{"index":1,"embedding":{b}}},{{"index":0,"embedding":{a}}}],"usage":{{"prompt_tokens":3}}}}"#
        ))
    };
    let p = openai("[1.0,0.0]", "[0.5,0.5]");
    let same = [
        openai(&floats(&[1.0, 0.0]), &floats(&[0.5, 0.5])),
        TestAnswer::json("[[1.02,0],[0.49,0.49]]"),
        TestAnswer::json(r#"{"embeddings":[[1,0.01],[0.5,0.5]],"total_duration":5}"#),
        TestAnswer::json(r#"[{"index":0,"embedding":[[1,0]]},{"index":1,"embedding":[[0.5,0.5]]}]"#),
    ];
    for candidate in &same {
        assert_eq!(compare(OutputKind::Embeddings, &p, candidate).result, ComparisonResult::Same);
    }
    // of the same direction and twice the length
    let doubled = compare(OutputKind::Embeddings, &p, &TestAnswer::json("[[2,0],[0.5,0.5]]"));
    assert_eq!(differing(&doubled), [("embedding".into(), vec!["value"])]);
    assert_eq!((doubled.fields[0].numbers.as_ref().unwrap().cosine, doubled.fields[0].size()), (Some(1.0), 1.0));
    let found = compare(OutputKind::Embeddings, &p, &openai("[1.0,0.0]", "[0.5,-0.5]"));
    assert_eq!(differing(&found), [("embedding".into(), vec!["value"])]);
    let numbers = found.fields[0].numbers.as_ref().unwrap();
    assert_eq!((numbers.cosine, numbers.greatest.as_ref().map(|g| (g.row, g.at.as_str()))), (Some(0.0), Some((1, "[1, 1]"))));
    let kinds = |candidate: &str| differing(&compare(OutputKind::Embeddings, &p, &TestAnswer::json(candidate)))[0].1.clone();
    assert_eq!(kinds("[[1,0]]"), ["shape"]);
    assert_eq!(kinds("[[1,0,0],[1,1,1]]"), ["shape"]);
    assert_eq!(kinds(r#"{"error":"x"}"#), ["structure"]);
}

fn event(text: &str) -> String {
    format!("data: {text}\n\n")
}

#[test]
fn a_stream_is_put_together_and_equals_the_whole_answer() {
    let whole = TestAnswer::new(
        CHAT,
        r#"{"id":"a","created":1,"choices":[{"index":0,"message":{"role":"assistant","content":"Hot tea."},"finish_reason":"stop"}]}"#,
    );
    let piece = |text: &str| event(&format!(r#"{{"id":"b","choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#));
    let end = event(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#) + &event("[DONE]");
    let stream = |pieces: &[&str]| {
        let body: String = pieces.iter().map(|text| piece(text)).collect::<String>() + &end;
        TestAnswer::new(STREAM, body)
    };
    assert_eq!(compare(OutputKind::GeneratedText, &whole, &stream(&["Hot", " tea", "."])).result, ComparisonResult::Same);
    let found = compare(OutputKind::GeneratedText, &whole, &stream(&["Hot ", "coffee."]));
    assert_eq!(differing(&found), [("text".into(), vec!["text"])]);
    let text = found.fields[0].text.unwrap();
    // one of three tokens was replaced
    assert_eq!((text.bytes, text.first_difference, text.is_bound), ([8, 11], 4, false));
    assert!((text.similarity - 2.0 / 3.0).abs() < 1e-12);
    let by = |text, similarity| Config { text, similarity, ..Config::default() };
    let shouted = stream(&["HOT", "  tea."]);
    let agrees =
        |config: &Config| compare_by(config, OutputKind::GeneratedText, &whole, &shouted).result == ComparisonResult::Same;
    assert!(!agrees(&Config::default()) && agrees(&by(TextRule::Normalised, 0.9)));
    assert!(agrees(&by(TextRule::Similarity, 0.6)) && !agrees(&by(TextRule::Similarity, 0.7)));
}

#[test]
fn every_server_that_generates_is_read() {
    let same = |media: &str, whole: &str, stream_media: &str, stream: &str| {
        let (whole, stream) = (TestAnswer::new(media, whole.to_owned()), TestAnswer::new(stream_media, stream.to_owned()));
        let found = compare(OutputKind::GeneratedText, &whole, &stream);
        assert_eq!(found.result, ComparisonResult::Same, "{:?}", found.fields);
        let other = TestAnswer::new(media, r#"{"choices":[{"text":"other"}]}"#);
        let found = compare(OutputKind::GeneratedText, &whole, &other);
        assert!(differing(&found).contains(&("text".into(), vec!["text"])), "{:?}", found.fields);
    };
    let events = |list: &[&str]| list.iter().map(|text| event(text)).collect::<String>();
    // TGI: tokens, and the whole text at the end
    same(
        CHAT,
        r#"[{"generated_text":"a b"}]"#,
        STREAM,
        &events(&[
            r#"{"index":1,"token":{"id":1,"text":"a","special":false},"generated_text":null}"#,
            r#"{"index":2,"token":{"id":2,"text":"</s>","special":true},"generated_text":"a b"}"#,
        ]),
    );
    // SGLang: the text so far in every event
    same(CHAT, r#"{"text":"a b","meta_info":{"id":"x"}}"#, STREAM, &events(&[r#"{"text":"a"}"#, r#"{"text":"a b"}"#]));
    // llama.cpp's own
    same(
        CHAT,
        r#"{"content":"a b","stop":true}"#,
        STREAM,
        &events(&[r#"{"content":"a","stop":false}"#, r#"{"content":" b","stop":true}"#]),
    );
    // Triton's generate
    same(CHAT, r#"{"text_output":"a b"}"#, STREAM, &events(&[r#"{"text_output":"a"}"#, r#"{"text_output":" b"}"#]));
    // Ollama: JSON lines, of which the last has no line feed
    same(
        CHAT,
        r#"{"response":"a b","done":true}"#,
        "application/x-ndjson",
        "{\"response\":\"a\"}\n{\"response\":\" b\",\"done\":true}",
    );
    same(
        CHAT,
        r#"{"message":{"role":"assistant","content":"a b"}}"#,
        "application/x-ndjson",
        "{\"message\":{\"content\":\"a\"}}\n\n{\"message\":{\"content\":\" b\"}}\n",
    );
    // OpenAI's responses
    same(
        CHAT,
        r#"{"output":[{"type":"message","content":[{"type":"output_text","text":"a b"}]}]}"#,
        STREAM,
        &events(&[
            r#"{"type":"response.created"}"#,
            r#"{"type":"response.output_text.delta","output_index":0,"delta":"a"}"#,
            r#"{"type":"response.output_text.delta","output_index":0,"delta":" b"}"#,
            r#"{"type":"response.completed"}"#,
        ]),
    );
}

#[test]
fn documents_are_compared_by_path() {
    let p = TestAnswer::json(r#"{"id":"a","created":1,"scores":[0.5,0.25],"labels":["x","y"],"ok":true,"extra":{"k":null}}"#);
    let c = TestAnswer::json(
        r#"{"created":2,"id":"b","labels":["y","x"],"scores":[0.5,0.2501,0.1],"ok":false,"extra":{"k":1,"n":2}}"#,
    );
    let found = compare(OutputKind::Other, &p, &c);
    let expected = [
        ("$.scores", "structure"),
        ("$.created", "value"),
        ("$.extra.k", "structure"),
        ("$.extra.n", "structure"),
        ("$.id", "text"),
        ("$.labels[]", "text"),
        ("$.ok", "value"),
    ];
    let mut found_kinds = differing(&found);
    found_kinds.sort();
    let mut expected: Vec<(String, Vec<&str>)> = expected.iter().map(|(path, kind)| ((*path).to_owned(), vec![*kind])).collect();
    expected.sort();
    assert_eq!(found_kinds, expected);
    let scores = found.fields.iter().find(|field| field.field == "$.scores[]").unwrap();
    assert!(scores.kinds.is_empty());
    assert_eq!(
        scores.numbers.as_ref().and_then(|n| n.greatest.as_ref()).map(|g| (g.at.as_str(), g.row)),
        Some(("$.scores[1]", 1))
    );
    let paths = |list: &[&str]| list.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    let config = Config {
        ignore: paths(&["$.id", "$.created", "$.scores[2]", "$.scores", "$..k", "$.extra.n", "$.ok"]),
        unordered: paths(&["$.labels"]),
        ..Config::default()
    };
    assert_eq!(compare_by(&config, OutputKind::Other, &p, &c).result, ComparisonResult::Same);
}

#[test]
fn elements_in_any_order_are_paired_by_likeness_and_then_by_number() {
    let config = Config { unordered: vec!["$".into(), "$[].tags".into()], ignore: vec!["$[].id".into()], ..Config::default() };
    let p = r#"[{"id":1,"label":"cat","score":0.9,"tags":["a","b"]},{"id":2,"label":"dog","score":0.1,"tags":[]},{"id":3,"label":"dog","score":0.3,"tags":[]}]"#;
    let c = |last: &str| {
        format!(
            r#"[{{"id":9,"label":"dog","score":{last},"tags":[]}},{{"label":"cat","id":8,"tags":["b","a"],"score":0.9001}},{{"id":7,"label":"dog","score":0.1,"tags":[]}}]"#
        )
    };
    let found = |c: String| compare_by(&config, OutputKind::Other, &TestAnswer::json(p), &TestAnswer::json(c));
    assert_eq!(found(c("0.3001")).result, ComparisonResult::Same);
    let other = found(c("0.4"));
    assert_eq!(differing(&other), [("$[].score".into(), vec!["value"])]);
    let more = found(c("0.3").trim_end_matches(']').to_owned() + r#",{"label":"cow"}]"#);
    assert_eq!(differing(&more), [("$".into(), vec!["structure"])]);
}

#[test]
fn text_and_bytes_are_compared_as_a_whole() {
    let kinds = |media: &str, p: &'static [u8], c: &'static [u8]| {
        differing(&compare(OutputKind::Other, &TestAnswer::new(media, p), &TestAnswer::new(media, c)))
    };
    assert_eq!(kinds("text/plain", b"hello", b"hello"), []);
    assert_eq!(kinds("text/plain", b"hello", b"hallo"), [("body".into(), vec!["text"])]);
    assert_eq!(kinds("image/png", b"\x89P", b"\x89Q"), [("body".into(), vec!["value"])]);
    assert_eq!(kinds("text/plain", b"\xff", b"a"), [("body".into(), vec!["structure"])]);
    // plain text as a stream
    assert_eq!(kinds(STREAM, b"data: hel\n\ndata: lo\n\n", b"data: hello\n\n"), []);
}

#[test]
fn compressed_bodies_are_unpacked() {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(br#"{"a":1.0}"#).unwrap();
    let packed = TestAnswer::new(CHAT, encoder.finish().unwrap()).with("content-encoding", "gzip");
    let plain = TestAnswer::json(r#"{"a":1}"#);
    assert_eq!(compare(OutputKind::Other, &plain, &packed).result, ComparisonResult::Same);
    let unknown = TestAnswer::json("x").with("content-encoding", "compress");
    // what is not read here is nobody's fault
    let unread = ComparisonResult::Incomparable(Incomparable::UnreadEncoding);
    assert_eq!(compare(OutputKind::Other, &plain, &unknown).result, unread);
    assert_eq!(compare(OutputKind::Other, &unknown, &unknown).result, ComparisonResult::Same);
    assert_eq!(compare(OutputKind::Other, &unknown, &plain).result, unread);
    let broken = TestAnswer::json("<html>");
    assert_eq!(differing(&compare(OutputKind::Other, &plain, &broken)), [("body".into(), vec!["undecodable"])]);
    let undecodable = ComparisonResult::Incomparable(Incomparable::PrimaryUndecodable);
    assert_eq!(compare(OutputKind::Other, &broken, &plain).result, undecodable);
    assert_eq!(compare(OutputKind::Other, &broken, &TestAnswer::json("<p>")).result, undecodable);
}

#[test]
fn samples_are_kept_on_request_and_redacted() {
    let p = TestAnswer::json(r#"{"user":"Ann","score":0.5,"list":[{"secret":"s1","n":1}]}"#);
    let c = TestAnswer::json(r#"{"user":"Bob","score":0.7,"list":[{"secret":"s2","n":1}]}"#);
    let found = compare(OutputKind::Other, &p, &c);
    assert!(found.sample.is_none());
    // what is shown of a difference without samples has no text of the payload
    assert!(!format!("{:?}", found.fields).contains("Bob"));
    let config = Config { keep_samples: 1, redact: vec!["$.user".into(), "$..secret".into()], ..Config::default() };
    let sample = compare_by(&config, OutputKind::Other, &p, &c).sample.unwrap();
    assert_eq!(sample.candidate, r#"{"user": "***", "score": 0.7, "list": [{"secret": "***", "n": 1}]}"#);
    let same = compare_by(&config, OutputKind::Other, &p, &p);
    assert!(same.sample.is_none());
    let long = |c: &str| TestAnswer::new("text/plain", c.repeat(SAMPLE_BYTES));
    let sample = compare_by(&config, OutputKind::Other, &long("é"), &long("e")).sample.unwrap();
    assert!(sample.primary.len() < SAMPLE_BYTES + 8 && sample.candidate.len() < SAMPLE_BYTES + 8);
}
