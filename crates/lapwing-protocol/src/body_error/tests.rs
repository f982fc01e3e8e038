//! Whole answers of every protocol that can say that it failed, and legal answers that look like it. Each is read whole, byte by
//! byte and in pieces; the outcome must be the same.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};

use crate::exchange_properties::{glance, read_response};
use crate::{ExchangeReader, Protocols};
use lapwing_ledger::{Ledger, Outcome, Stamp};

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const LINES: &str = "application/x-ndjson";
const OPENAI_CHUNK: &str =
    r#"data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#;

/// How an exchange ended that the status calls a success, and whether its answer is complete by itself.
fn outcome(path: &str, content_type: &str, body: &[u8]) -> (Outcome, bool) {
    let read = |length: usize| {
        let protocols = Protocols::default();
        let asked = if content_type.starts_with("application/grpc") { content_type } else { JSON };
        let head = |kind: &str| HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_str(kind).unwrap())]);
        let reader = protocols.open(&protocols.detect(&Method::POST, path), &head(asked));
        // an unknown protocol is read as the proxy reads it
        let mut reader: ExchangeReader = reader.or_else(|| protocols.open_for_errors()).unwrap();
        reader.response_head(200, &head(content_type));
        let mut glance = glance(&mut reader, &head(content_type));
        body.chunks(length.max(1)).for_each(|piece| read_response(&mut reader, &mut glance, piece, 1));
        let mut ledger = Ledger::open(Stamp::now(), 0);
        ledger.outcome = Outcome::Ok;
        let is_complete = reader.is_complete();
        reader.close(&mut ledger);
        (ledger.outcome, is_complete)
    };
    let whole = read(body.len());
    for length in [1, 2, 3, 7, 64] {
        assert_eq!(read(length), whole, "{path} in pieces of {length}: {}", String::from_utf8_lossy(body));
    }
    whole
}

fn check(expected: Outcome, answers: &[(&str, &str, &str)]) {
    for (path, content_type, body) in answers {
        assert_eq!(outcome(path, content_type, body.as_bytes()).0, expected, "{path} {content_type}: {body}");
    }
}

#[test]
fn whole_answers_that_are_errors() {
    check(
        Outcome::BodyError,
        &[
            ("/v1/chat/completions", JSON, r#"{"error":{"message":"x","type":"server_error","param":null,"code":500}}"#),
            (
                "/v1/chat/completions",
                JSON,
                r#"{"object":"error","message":"x","type":"BadRequestError","param":null,"code":400}"#,
            ),
            ("/v1/chat/completions", JSON, r#"{"id":"1","object":"chat.completion","choices":[{"finish_reason":"error"}]}"#),
            ("/v1/completions", JSON, r#"{"choices":[{"text":"a","finish_reason":"abort"}],"usage":{"completion_tokens":1}}"#),
            ("/v1/embeddings", JSON, r#"{"error":"input is too long","error_type":"validation"}"#),
            ("/v1/responses", JSON, r#"{"id":"r","status":"failed","error":{"code":"server_error","message":"x"},"output":[]}"#),
            ("/v1/responses", JSON, r#"{"id":"r","status":"failed","error":null}"#),
            ("/generate", JSON, r#"{"error":"Request failed","error_type":"generation"}"#),
            ("/generate", JSON, r#"{"text":"a","meta_info":{"finish_reason":{"type":"abort","message":"x","status_code":500}}}"#),
            ("/api/chat", JSON, r#"{"error":"model runner has unexpectedly stopped"}"#),
            ("/embed", JSON, r#"{"error":"x","error_type":"Backend"}"#),
            ("/v2/models/m/infer", JSON, r#"{"error":"[request id: <id>] x"}"#),
            ("/v2/models/m/generate", JSON, r#"{"error":"failed to decode"}"#),
            ("/v1/models/m:predict", JSON, "{\n    \"error\": \"x\"\n}"),
            ("/predictions/m", JSON, "{\n  \"code\": 503,\n  \"type\": \"InternalServerException\",\n  \"message\": \"x\"\n}\n"),
            ("/predict", JSON, r#"{"detail":"CUDA out of memory"}"#),
            ("/predict", JSON, r#"{"detail":[{"loc":["body"],"msg":"field required","type":"missing"}]}"#),
            ("/", JSON, r#"{"jsonrpc":"2.0","error":{"code":-32601,"message":"x"},"id":1}"#),
            // of no known protocol
            ("/rpc", JSON, r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":""}}"#),
            ("/rpc", JSON, r#"{"result":null,"error":{"code":-5,"message":"x"},"id":"1"}"#),
            ("/rpc", JSON, r#"[{"id":1,"error":{"code":-1,"message":"x"}},{"id":2,"error":{"code":-1,"message":"x"}}]"#),
            ("/graphql", JSON, r#"{"errors":[{"message":"x"}],"data":null}"#),
            ("/score", JSON, r#"{"request_id":"8","error":true}"#),
            ("/score", JSON, r#" { "error" : "x", "prediction": null } "#),
        ],
    );
}

#[test]
fn streams_that_fail_at_once_or_after_some_tokens() {
    let after = |line: &str| format!("{OPENAI_CHUNK}\n\n{OPENAI_CHUNK}\n\n{line}\n\ndata: [DONE]\n\n");
    for line in [
        r#"data: {"error":{"message":"Context size has been exceeded.","type":"invalid_request_error","code":400}}"#,
        r#"data: {"error": {"object": "error", "message": "x", "type": "InternalServerError", "code": 500}}"#,
        r#"data: {"object": "error", "message": "x", "type": "InternalServerError", "param": null, "code": 500}"#,
        r#"data: {"error":"x","error_type":"generation"}"#,
        r#"error: {"code":500,"message":"context shift is disabled","type":"server_error"}"#,
        "event: error\ndata: null",
        r#"data: {"id":"1","choices":[{"index":0,"delta":{},"finish_reason":"error"}]}"#,
        r#"data: {"type":"error","sequence_number":3,"code":"server_error","message":"x","param":null}"#,
    ] {
        for body in [after(line), format!("{line}\n\n")] {
            for path in ["/v1/chat/completions", "/v1/completions", "/stream"] {
                assert_eq!(outcome(path, EVENTS, body.as_bytes()), (Outcome::BodyError, true), "{path} {body}");
            }
        }
    }
    check(
        Outcome::BodyError,
        &[
            (
                "/v1/responses",
                EVENTS,
                "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{}}}\n\n",
            ),
            ("/v1/responses", EVENTS, "event: error\ndata: {\"type\":\"error\",\"message\":\"x\"}\n\n"),
            (
                "/v1/messages",
                EVENTS,
                "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n",
            ),
            ("/generate_stream", EVENTS, "data:{\"error\":\"x\",\"error_type\":\"overloaded\"}\n\n"),
            ("/v2/models/m/generate_stream", EVENTS, "data: {\"error\":\"x\"}\n\n"),
            ("/api/generate", LINES, "{\"response\":\"a\",\"done\":false}\n{\"error\":\"an error was encountered\"}\n"),
            ("/v1/models/m:predict", LINES, "{\"predictions\":[1]}\n{\"error\":\"x\"}\n"),
            ("/lines", LINES, "{\"a\":1}\n{\"error\":\"x\"}"),
        ],
    );
}

#[test]
fn legal_answers_that_look_like_errors_are_none() {
    check(
        Outcome::Ok,
        &[
            (
                "/v1/chat/completions",
                JSON,
                r#"{"choices":[{"message":{"content":"{\"error\":\"x\"} error"},"finish_reason":"stop"}]}"#,
            ),
            ("/v1/chat/completions", JSON, r#"{"object":"chat.completion","error":null,"choices":[{"finish_reason":"length"}]}"#),
            ("/v1/responses", JSON, r#"{"id":"r","status":"completed","error":null,"output":[{"type":"error"}]}"#),
            (
                "/v1/responses",
                JSON,
                r#"{"id":"r","status":"incomplete","error":null,"incomplete_details":{"reason":"max_output_tokens"}}"#,
            ),
            ("/v1/embeddings", JSON, r#"{"object":"list","data":[{"object":"embedding","embedding":[0.1]}]}"#),
            ("/v2/models/m/infer", JSON, r#"{"model_name":"error","outputs":[{"name":"error","data":[1]}]}"#),
            ("/v1/models/m:predict", JSON, r#"{"predictions":[{"error":"x"},{"error":"y"}]}"#),
            ("/predict", JSON, r#"{"prediction":0.5,"error":0.03}"#),
            ("/predict", JSON, r#"{"error":"","label":"error"}"#),
            ("/predict", JSON, r#"{"error":"None","label":1}"#),
            ("/predict", JSON, r#"{"error":false}"#),
            ("/predict", JSON, r#"{"error":{}}"#),
            ("/predict", JSON, r#"{"error":{"mean":0.1,"std":0.2}}"#),
            ("/predict", JSON, r#"{"error":[0.1,0.2]}"#),
            ("/predict", JSON, r#"{"detail":"sunny","temperature":21}"#),
            ("/predict", JSON, r#"{"code":404,"label":"x"}"#),
            ("/predict", JSON, r#""error""#),
            ("/predict", JSON, r#"[{"error":"x"},{"label":1}]"#),
            ("/rpc", JSON, r#"{"jsonrpc":"2.0","id":1,"result":{"error":"x"}}"#),
            ("/rpc", JSON, r#"{"result":7,"error":null,"id":1}"#),
            ("/rpc", JSON, r#"[{"id":1,"error":{"code":1,"message":"x"}},{"id":2,"result":1}]"#),
            ("/graphql", JSON, r#"{"errors":[{"message":"x"}],"data":{"a":1,"b":null}}"#),
            ("/graphql", JSON, r#"{"errors":[],"data":null}"#),
            ("/v1/responses", EVENTS, "data: {\"type\":\"response.incomplete\",\"response\":{\"status\":\"incomplete\"}}\n\n"),
            ("/v1/chat/completions", EVENTS, "event: errors\ndata: {\"choices\":[{\"delta\":{\"content\":\"error: x\"}}]}\n\n"),
            ("/stream", EVENTS, ": error: x\ndata: error: y\ndata: z\n\ndata: {\"error\":null,\"text\":\"error\"}\n\n"),
            ("/api/chat", LINES, "{\"message\":{\"content\":\"x\"},\"done\":true,\"error\":\"\"}\n"),
            ("/stream", EVENTS, "data: {\"detail\":\"loading\"}\n\ndata: {\"errors\":[1]}\n\ndata: {\"text\":\"x\"}\n\n"),
            ("/image", "image/png", "{\"error\":\"x\"}"),
        ],
    );
}

#[test]
fn an_error_in_a_long_document_that_begins_like_one_is_bounded() {
    let long = |error: &str| format!(r#"{{"error":null,"outputs":["{}"],"error":"{error}"}}"#, "x".repeat(100_000));
    check(Outcome::Ok, &[("/v2/models/m/infer", JSON, &long("x"))]);
    let message = format!(r#"{{"error":{{"code":500,"message":"{}"}}}}"#, "x".repeat(100_000));
    check(Outcome::BodyError, &[("/v2/models/m/infer", JSON, &message), ("/v1/chat/completions", JSON, &message)]);
}

#[test]
fn calls_of_grpc_web_and_connect_end_by_their_code() {
    let frame = |flag: u8, payload: &str| [&[flag, 0, 0, 0, u8::try_from(payload.len()).unwrap()], payload.as_bytes()].concat();
    let service = "/inference.GRPCInferenceService/ModelInfer";
    for (kind, flag, payload, expected) in [
        ("application/grpc-web+proto", 0x80, "grpc-status: 0\r\n", Outcome::Ok),
        ("application/grpc-web+proto", 0x80, "grpc-status: 3\r\ngrpc-message: x\r\n", Outcome::ClientError),
        ("application/grpc-web", 0x80, "grpc-status: 14\r\n", Outcome::ServerError),
        ("application/connect+json", 2, "{}", Outcome::Ok),
        ("application/connect+json", 2, r#"{"error":{"code":"unavailable"}}"#, Outcome::ServerError),
        ("application/connect+proto", 2, r#"{"error":{"code":"not_found"}}"#, Outcome::ClientError),
    ] {
        let body = [frame(0, "abc"), frame(flag, payload)].concat();
        for path in [service, "/any.Service/Method"] {
            assert_eq!(outcome(path, kind, &body), (expected, true), "{path} {kind} {payload}");
            assert_eq!(outcome(path, kind, &body[..body.len() - 1]), (Outcome::Ok, false), "cut off");
        }
    }
}

#[test]
fn a_message_of_a_triton_stream_says_that_it_failed() {
    let message = |fields: &[u8]| [&[0, 0, 0, 0, u8::try_from(fields.len()).unwrap()], fields].concat();
    let stream = "/inference.GRPCInferenceService/ModelStreamInfer";
    let (failed, fine) = (message(b"\x0a\x03bad"), message(b"\x12\x03\x0a\x01m"));
    let of = |body: &[u8]| outcome(stream, "application/grpc", body).0;
    assert_eq!((of(&fine), of(&failed)), (Outcome::Ok, Outcome::BodyError));
    assert_eq!((of(&[&fine[..], &failed].concat()), of(&message(b"\x0a\x00"))), (Outcome::BodyError, Outcome::Ok));
}

#[test]
fn nothing_is_read_where_bodies_are_not_to_be() {
    let config = serde_json::from_str(r#"{"read_bodies": false}"#).unwrap();
    assert!(Protocols::new(&config).open_for_errors().is_none());
}
