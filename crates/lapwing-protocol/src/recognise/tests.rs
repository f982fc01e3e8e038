//! Calls and answers of every protocol are recognised, and what else is sent to the same paths is not.

use bytes::Bytes;
use http::Method;
use proptest::prelude::*;

use super::*;

fn json(body: &str) -> WholeBody<'_> {
    WholeBody::Document(Media::Json, body.as_bytes())
}

fn request(path: &str, body: &str) -> Recognised {
    Recogniser::default().request(&Method::POST, path, json(body))
}

fn answer(path: &str, body: &str) -> Recognised {
    Recogniser::default().answer(&Method::POST, path, json(body))
}

/// A path, a request and an answer of the server that has it.
const CALLS: &[(&str, &str, &str)] = &[
    (
        "/v2/models/m/infer",
        r#"{"id":"1","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]},{"name":"y","shape":[1],"datatype":"INT64","data":[3]}]}"#,
        r#"{"model_name":"m","outputs":[{"name":"y","shape":[1],"datatype":"FP32","data":[NaN]}]}"#,
    ),
    (
        "/v2/models/m/infer",
        r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}],"parameters":{"sequence_id":0}}"#,
        r#"{"outputs":[{"name":"y","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}"#,
    ),
    (
        "/v2/models/m/generate",
        r#"{"text_input":"a","max_tokens":4}"#,
        r#"{"model_name":"m","model_version":"1","text_output":"b"}"#,
    ),
    (
        "/v1/chat/completions",
        r#"{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":null}],"tools":[{"type":"function","function":{"name":"f"}}],"store":false}"#,
        r#"{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"b"}}],"usage":{"prompt_tokens":1}}"#,
    ),
    ("/v1/completions", r#"{"model":"m","prompt":["a","b"]}"#, r#"{"choices":[{"text":"b"},{"text":"c"}]}"#),
    ("/v1/completions", r#"{"prompt":[[1,2],[3]]}"#, r#"{"choices":[{"text":""}]}"#),
    ("/completion", r#"{"prompt":"a","n_predict":3}"#, r#"{"content":"b","stop":true,"tokens_predicted":3}"#),
    ("/v1/embeddings", r#"{"model":"m","input":"a"}"#, r#"{"data":[{"embedding":[0.1,0.2]}],"model":"m"}"#),
    ("/v1/embeddings", r#"{"model":"m","input":[1,2,3],"encoding_format":"base64"}"#, r#"{"data":[{"embedding":"AAAA"}]}"#),
    ("/embeddings", r#"{"content":"a"}"#, r#"[{"index":0,"embedding":[[0.1]]}]"#),
    ("/embedding", r#"{"content":"a"}"#, r#"[{"index":0,"embedding":[[0.1]]}]"#),
    ("/v1/responses", r#"{"model":"m","input":"a","store":false}"#, r#"{"object":"response","status":"completed","output":[]}"#),
    ("/embed", r#"{"inputs":["a","b"]}"#, "[[0.1,0.2],[0.3,0.4]]"),
    ("/embed_all", r#"{"inputs":"a"}"#, "[[[0.1,0.2]]]"),
    ("/embed_sparse", r#"{"inputs":"a"}"#, r#"[[{"index":3,"value":0.2}]]"#),
    ("/tokenize", r#"{"inputs":"a"}"#, r#"[[{"id":101,"text":"[CLS]","special":true}]]"#),
    ("/predict", r#"{"inputs":"a"}"#, r#"[{"score":0.9,"label":"x"}]"#),
    ("/predict", r#"{"inputs":[["a"],["b"]]}"#, r#"[[{"score":0.9,"label":"x"}]]"#),
    ("/predict", r#"{"instances":[[1,2]]}"#, r#"{"predictions":[[0.1]]}"#),
    ("/rerank", r#"{"query":"a","texts":["b","c"]}"#, r#"[{"index":1,"score":0.9},{"index":0,"score":0.1}]"#),
    ("/v1/rerank", r#"{"model":"m","query":"a","documents":["b"]}"#, r#"{"results":[{"index":0,"relevance_score":0.5}]}"#),
    ("/similarity", r#"{"inputs":{"source_sentence":"a","sentences":["b"]}}"#, "[0.7]"),
    ("/generate", r#"{"inputs":"a","parameters":{"max_new_tokens":3}}"#, r#"{"generated_text":"b"}"#),
    ("/", r#"{"inputs":"a"}"#, r#"[{"generated_text":"b"}]"#),
    ("/generate", r#"{"text":"a","sampling_params":{"n":1}}"#, r#"{"text":"b","meta_info":{"id":"1"}}"#),
    ("/generate", r#"{"input_ids":[1,2]}"#, r#"{"output_ids":[3],"meta_info":{}}"#),
    ("/generate", r#"{"prompt":"a"}"#, r#"{"text":["ab"]}"#),
    ("/infill", r#"{"input_prefix":"a","input_suffix":"b"}"#, r#"{"content":"c","stop":true}"#),
    ("/api/generate", r#"{"model":"m","prompt":"a","keep_alive":"5m"}"#, r#"{"model":"m","response":"b","done":true}"#),
    (
        "/api/chat",
        r#"{"model":"m","messages":[{"role":"user","content":"a"}]}"#,
        r#"{"model":"m","message":{"role":"assistant","content":"b"},"done":false}"#,
    ),
    ("/api/embed", r#"{"model":"m","input":["a"]}"#, r#"{"model":"m","embeddings":[[0.1]]}"#),
    ("/predictions/m", r#"{"instances":[{"data":"a"}]}"#, r#"{"predictions":[0]}"#),
    ("/v1/models/m:predict", r#"{"instances":[1.0,2.0]}"#, r#"{"predictions":[1.0,NaN]}"#),
    ("/v1/models/m:predict", r#"{"signature_name":"s","inputs":{"x":[[1]]}}"#, r#"{"outputs":[[1]]}"#),
    ("/v1/models/m:classify", r#"{"examples":[{"x":1}]}"#, r#"{"results":[[["a",0.1]]]}"#),
];

#[test]
fn calls_and_answers_of_each_protocol_are_recognised() {
    for (path, asked, answered) in CALLS {
        assert_eq!((request(path, asked), answer(path, answered)), (Recognised::Yes, Recognised::Yes), "{path} {asked}");
    }
}

#[test]
fn what_else_is_sent_to_such_paths_is_not() {
    let everyday = [
        "",
        "{}",
        "[]",
        "null",
        "3",
        "\"text\"",
        "user=a&password=b",
        "<html></html>",
        r#"{"user":"a","password":"b"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"transfer","params":{"to":"a","amount":3}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"transfer"}]"#,
        r#"{"query":"mutation { pay(amount: 3) { id } }","variables":{}}"#,
        r#"{"name":"civic","price":3,"colour":"red"}"#,
        r#"{"event":"order.paid","data":{"id":7}}"#,
        r#"{"items":[{"sku":"a","n":2}],"total":3}"#,
        r#"{"message":"hello"}"#,
    ];
    for (path, asked, answered) in CALLS {
        for body in everyday {
            assert_eq!(request(path, body), Recognised::No, "{path} {body}");
            assert_eq!(answer(path, body), Recognised::No, "{path} {body}");
        }
        // cut off, followed by something, and a call of another kind that has the same members
        assert_eq!(request(path, &asked[..asked.len() - 1]), Recognised::No, "{path}");
        assert_eq!(request(path, &format!("{asked}{asked}")), Recognised::No, "{path}");
        assert_eq!(request(path, &asked.replacen('{', r#"{"jsonrpc":"2.0","#, 1)), Recognised::No, "{path}");
        assert_eq!(Recogniser::default().request(&Method::PUT, path, json(asked)), Recognised::No, "{path}");
        assert_ne!(answer(path, &answered[..answered.len() - 1]), Recognised::Yes, "{path}");
    }
    for (path, body) in [
        ("/v2/models/civic/infer", r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32"}]}"#),
        ("/v2/models/civic/infer", r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]},{"name":"y"}]}"#),
        ("/v2/models/civic/infer", r#"{"inputs":[]}"#),
        ("/v2/models/civic/infer", r#"{"inputs":{"name":"x"}}"#),
        ("/v1/chat/completions", r#"{"model":"m","messages":"hello"}"#),
        ("/v1/chat/completions", r#"{"model":"m","messages":[{"role":"user"},{"content":"a"}]}"#),
        ("/api/chat", r#"{"messages":[{"role":"user","content":"a"}]}"#),
        ("/rerank", r#"{"query":"a"}"#),
        ("/v1/embeddings", r#"{"input":3}"#),
        ("/v1/batches", r#"{"model":"m","input":"a"}"#),
        ("/v1/files", r#"{"model":"m","input":"a"}"#),
        ("/v1/fine_tuning/jobs", r#"{"model":"m","input":"a"}"#),
        ("/v1/threads/t/runs", r#"{"model":"m","input":"a"}"#),
        ("/v1/responses/r/cancel", r#"{"model":"m","input":"a"}"#),
        ("/v1/chat/completions/c", r#"{"model":"m","messages":[{"role":"user"}]}"#),
    ] {
        assert_eq!(request(path, body), Recognised::No, "{path} {body}");
    }
}

#[test]
fn what_has_an_effect_beyond_its_answer_is_named() {
    let chat = |more: &str| request("/v1/chat/completions", &format!(r#"{{"messages":[{{"role":"user"}}],{more}}}"#));
    let respond = |more: &str| request("/v1/responses", &format!(r#"{{"input":"a",{more}}}"#));
    let infer = |parameters: &str, of_input: &str| {
        let input = format!(r#"{{"name":"x","shape":[1],"datatype":"FP32","data":[1],"parameters":{{{of_input}}}}}"#);
        request("/v2/models/m/infer", &format!(r#"{{"inputs":[{input}],"parameters":{{{parameters}}}}}"#))
    };
    for (found, place) in [
        (chat(r#""store":true"#), "store"),
        (chat(r#""kv_transfer_params":{"do_remote_decode":true}"#), "kv_transfer_params"),
        (respond(r#""store":true"#), "store"),
        (respond(r#""background":true"#), "background"),
        (respond(r#""previous_response_id":"resp_1""#), "previous_response_id"),
        (respond(r#""conversation":{"id":"c"}"#), "conversation"),
        (respond(r#""tools":[{"type":"function"},{"type":"mcp","server_url":"x"}]"#), "tools[].type"),
        (respond(r#""tools":[{"type":"code_interpreter"}]"#), "tools[].type"),
        (answer("/v1/responses", r#"{"object":"response","output":[],"store":true}"#), "store"),
        (request("/generate", r#"{"text":"a","session_params":{"id":"s"}}"#), "session_params"),
        (request("/api/generate", r#"{"model":"m","prompt":"a","keep_alive":0}"#), "keep_alive"),
        (request("/api/generate", r#"{"model":"m","prompt":"a","keep_alive":"0s"}"#), "keep_alive"),
        (request("/v2/models/m/generate", r#"{"text_input":"a","sequence_id":7}"#), "sequence_id"),
        (infer(r#""sequence_id":7,"sequence_start":true"#, ""), "parameters.sequence_id"),
        (infer(r#""sequence_id":"user-7""#, ""), "parameters.sequence_id"),
        (infer("", r#""shared_memory_region":"a","shared_memory_byte_size":4"#), "inputs[].parameters.shared_memory_region"),
    ] {
        assert_eq!(found, Recognised::Effect(place));
    }
    for found in [
        chat(r#""store":null"#),
        respond(r#""store":false,"background":false,"previous_response_id":null,"conversation":null,"tools":[]"#),
        infer(r#""sequence_id":0,"sequence_start":false,"priority":3"#, ""),
    ] {
        assert_eq!(found, Recognised::Yes);
    }
}

#[test]
fn streams_are_judged_by_their_documents() {
    let events = |body: &'static str| {
        Recogniser::default().answer(&Method::POST, "/v1/chat/completions", WholeBody::Document(Media::Events, body.as_bytes()))
    };
    assert_eq!(
        events("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[]}\n\ndata: [DONE]\n\n"),
        Recognised::Yes
    );
    assert_eq!(events("data: {\"choices\":[{\"delta\":{}}]}"), Recognised::Yes, "no last blank line");
    assert_eq!(events("data: {\"choices\":[{\"delta\":{}}]}\n\ndata: {\"error\":{\"message\":\"full\"}}\n\n"), Recognised::Error);
    assert_eq!(events("data: {\"error\":{\"message\":\"full\"}}\n\n"), Recognised::Error);
    assert_eq!(events("data: {\"price\":3}\n\n"), Recognised::No);
    assert_eq!(events("data: [DONE]\n\n"), Recognised::No);
    let lines = |body: &'static str| {
        Recogniser::default().answer(&Method::POST, "/api/chat", WholeBody::Document(Media::Lines, body.as_bytes()))
    };
    assert_eq!(
        lines("{\"model\":\"m\",\"message\":{},\"done\":false}\n{\"model\":\"m\",\"message\":{},\"done\":true}\n"),
        Recognised::Yes
    );
    assert_eq!(lines("{\"a\":1}\n"), Recognised::No);
    assert_eq!(answer("/v1/completions", r#"{"error":{"message":"no such model"}}"#), Recognised::Error);
    let binary = br#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}AAAA"#;
    let before = |bytes| {
        Recogniser::default().request(&Method::POST, "/v2/models/m/infer", WholeBody::Document(Media::JsonBefore(bytes), binary))
    };
    assert_eq!((before(91), before(90), before(9_000)), (Recognised::Yes, Recognised::No, Recognised::No));
}

/// A field with a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
}

#[test]
fn messages_of_grpc_are_judged_by_their_fields() {
    const PATH: &str = "/inference.GRPCInferenceService/ModelInfer";
    let asked = |path: &str, messages: &[Vec<u8>]| {
        let messages: Vec<Bytes> = messages.iter().cloned().map(Bytes::from).collect();
        Recogniser::default().request(&Method::POST, path, WholeBody::Messages(&messages))
    };
    let tensor = [field(1, b"x"), field(2, b"FP32"), field(3, &[1])].concat();
    let infer = [field(1, b"m"), field(5, &tensor)].concat();
    assert_eq!(asked(PATH, std::slice::from_ref(&infer)), Recognised::Yes);
    assert_eq!(asked(PATH, &[]), Recognised::No);
    assert_eq!(asked(PATH, &[field(1, b"m")]), Recognised::No, "without a tensor");
    assert_eq!(asked(PATH, &[b"user=a&password=b".to_vec()]), Recognised::No);
    assert_eq!(asked(PATH, &[infer.clone(), field(1, b"m")]), Recognised::No, "each message is one");
    let of_a_sequence = [infer.clone(), field(4, &field(1, b"sequence_id"))].concat();
    assert_eq!(asked(PATH, &[of_a_sequence]), Recognised::Effect("sequence_id"));
    let shared = [tensor, field(4, &field(1, b"shared_memory_region"))].concat();
    assert_eq!(asked(PATH, &[[field(1, b"m"), field(5, &shared)].concat()]), Recognised::Effect("shared_memory_region"));
    let shared = field(6, &[field(1, b"y"), field(2, &field(1, b"shared_memory_region"))].concat());
    assert_eq!(asked(PATH, &[[infer.clone(), shared].concat()]), Recognised::Effect("shared_memory_region"));
    // the same bytes on a path of JSON are nothing
    assert_eq!(asked("/v2/models/m/infer", &[infer]), Recognised::No);
    assert_eq!(asked("/tei.v1.Embed/Embed", &[field(1, b"text")]), Recognised::Yes);
}

/// Calls of these are not copied unless the user names their route.
const NAMED_ONLY: [Family; 4] = [Family::OipGrpcStream, Family::OpenAiTranscription, Family::OpenAiSpeech, Family::Forecast];

#[test]
fn every_protocol_but_streams_of_calls_has_a_signature() {
    let forms = Recogniser::default().forms;
    for (family, [request, answer]) in Family::ALL.iter().zip(&forms) {
        let is_known = !matches!(request, MessageForm::Unknown) && !matches!(answer, MessageForm::Unknown);
        assert_eq!(
            is_known,
            !NAMED_ONLY.contains(family),
            "{family:?}: calls are never copied unless the user names their route"
        );
    }
}

proptest! {
    #[test]
    fn no_body_is_too_strange(body in proptest::collection::vec(any::<u8>(), 0..80), at in 0..CALLS.len(), cut in 0..200_usize) {
        let (path, asked, _) = CALLS[at];
        let recogniser = Recogniser::default();
        let mixed = [&asked.as_bytes()[..cut.min(asked.len())], &body].concat();
        for media in [Media::Json, Media::JsonBefore(cut as u64), Media::Lines, Media::Events, Media::Other] {
            for body in [&body, &mixed] {
                let _ = recogniser.request(&Method::POST, path, WholeBody::Document(media, body));
                let _ = recogniser.answer(&Method::POST, path, WholeBody::Document(media, body));
            }
        }
        let messages = [Bytes::from(body)];
        let _ = recogniser.request(&Method::POST, "/inference.GRPCInferenceService/ModelInfer", WholeBody::Messages(&messages));
    }
}
