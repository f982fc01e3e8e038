//! Whether a call depends on calls before it, or calls after it on it: the server keeps something of them. Such calls may be neither reordered nor
//! repeated nor answered by another.
//!
//! - Open Inference Protocol: the parameter `sequence_id`, unless it is 0 or empty (Triton's sequence extension);
//! - OpenAI: `previous_response_id`, `conversation`, and `store`, which the Responses API does unless it is `false`;
//! - TorchServe: the fields `ts_request_sequence_id` and `ts_request_sequence_start`.

use http::HeaderMap;

use crate::tag::{Tag, TagValue};

/// The parameter's name.
const SEQUENCE_ID: &[u8] = b"sequence_id";
/// The fields of a TorchServe sequence: its name, and that the server is to give one.
const SEQUENCE_FIELDS: [&str; 2] = ["ts_request_sequence_id", "ts_request_sequence_start"];

/// What a request's body says of what the server keeps.
#[derive(Debug, Default)]
pub(crate) struct KeptState {
    /// The parameter of which a value comes next is the sequence: over gRPC, parameters are a map.
    is_named: bool,
    is_of_sequence: bool,
    /// It names what was kept before.
    has_predecessor: bool,
    /// Whether its answer is kept, if it says so.
    stores: Option<bool>,
}

impl KeptState {
    /// Records a watched value.
    pub(crate) fn note(&mut self, tag: Tag, seen: TagValue<'_>) {
        match (tag, seen) {
            // its value may be of a kind that nobody watches
            (Tag::ParameterName, TagValue::Text { head, .. }) => {
                self.is_named = head == SEQUENCE_ID;
                self.is_of_sequence |= self.is_named;
            }
            (Tag::ParameterValue, _) if !std::mem::take(&mut self.is_named) => {}
            (Tag::SequenceId | Tag::ParameterValue, _) => self.is_of_sequence = !is_empty(seen),
            (Tag::Predecessor, _) => self.has_predecessor |= !is_empty(seen),
            (Tag::Stores, TagValue::Bool(stores)) => self.stores = Some(stores),
            _ => {}
        }
    }

    /// Whether the call is one of several, where the server keeps an answer by itself if it `keeps`.
    pub(crate) fn is_stateful(&self, keeps: bool) -> bool {
        self.is_of_sequence || self.has_predecessor || self.stores.unwrap_or(keeps)
    }
}

/// Whether the head of a request says so.
pub(crate) fn is_stateful_by_head(headers: &HeaderMap) -> bool {
    SEQUENCE_FIELDS.iter().any(|name| headers.get(*name).is_some_and(|value| !value.is_empty()))
}

/// Whether it is no name of anything.
fn is_empty(seen: TagValue<'_>) -> bool {
    match seen {
        TagValue::Number(number) => number == 0.0,
        TagValue::Text { bytes, .. } => bytes == 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_TYPE;
    use http::{HeaderMap, HeaderName, HeaderValue, Method};
    use proptest::prelude::*;

    use crate::Protocols;

    const INFER: &str = "/v2/models/m/infer";
    const RESPONSES: &str = "/v1/responses";
    const GRPC: &str = "/inference.GRPCInferenceService/ModelInfer";

    /// Whether a request is stateful whose body comes in pieces of this many bytes.
    fn read(path: &str, fields: &[(&'static str, &'static str)], body: &[u8], piece: usize) -> bool {
        let protocols = Protocols::default();
        let kind = if path == GRPC { "application/grpc" } else { "application/json" };
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        headers.extend(fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))));
        let mut reader = protocols.open(&protocols.detect(&Method::POST, path), &headers).unwrap();
        body.chunks(piece).for_each(|piece| reader.request(piece));
        reader.asked_work(body.len() as u64);
        reader.is_stateful(&headers)
    }

    fn rest(parameters: &str, piece: usize) -> bool {
        let own = r#"{"name": "sequence_id", "shape": [1], "parameters": {"sequence_id": 9}, "data": [1]}"#;
        read(INFER, &[], format!(r#"{{"parameters": {parameters}, "inputs": [{own}]}}"#).as_bytes(), piece)
    }

    /// A field with a length, of fewer than 128 bytes.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    /// A call of `ModelInfer` whose parameters have these names and values.
    fn grpc(parameters: &[(&str, &[u8])], piece: usize) -> bool {
        let entries = parameters.iter().map(|(name, value)| field(4, &[field(1, name.as_bytes()), field(2, value)].concat()));
        let message = [field(1, b"m")].into_iter().chain(entries).collect::<Vec<_>>().concat();
        read(GRPC, &[], &[&[0, 0, 0, 0, message.len() as u8][..], &message].concat(), piece)
    }

    /// `bool_param`, `int64_param` of 300 and of 0, `string_param` of "300" and of "", `double_param`, which is not read, `uint64_param`.
    const BOOL: &[u8] = &[0x08, 1];
    const INT64: &[u8] = &[0x10, 0xac, 0x02];
    const ZERO: &[u8] = &[0x10, 0];
    const STRING: &[u8] = b"\x1a\x03300";
    const EMPTY: &[u8] = &[0x1a, 0];
    const DOUBLE: &[u8] = &[0x21, 0, 0, 0, 0, 0, 0, 8, 64];
    const UINT64: &[u8] = &[0x28, 0xac, 0x02];

    proptest! {
        #[test]
        fn a_sequence_is_seen_however_its_bytes_come(piece in 1_usize..200) {
            prop_assert_eq!(rest(r#"{"timeout": 1, "sequence_id": 42, "sequence_start": true}"#, piece), true);
            prop_assert!(grpc(&[("timeout", UINT64), ("sequence_id", INT64), ("a", ZERO)], piece));
            prop_assert!(!grpc(&[("timeout", UINT64), ("sequence_id", ZERO), ("a", INT64)], piece));
        }

        #[test]
        fn what_follows_a_response_is_seen_however_its_bytes_come(piece in 1_usize..100) {
            let body = br#"{"store": false, "input": [{"content": "x"}], "previous_response_id": "resp_1"}"#;
            prop_assert!(read(RESPONSES, &[], body, piece));
        }
    }

    #[test]
    fn a_sequence_has_a_name() {
        for sequence in [r#""a""#, "1", "-1", "18446744073709551615", "true", "{}", "[]"] {
            assert!(rest(&format!(r#"{{"sequence_id": {sequence}}}"#), 7), "{sequence}");
        }
        for none in ["0", r#""""#, "null", "0.0"] {
            assert!(!rest(&format!(r#"{{"sequence_id": {none}}}"#), 7), "{none}");
        }
        // it is a parameter of the request
        for others in
            ["{}", "[]", r#""sequence_id""#, r#"{"a": {"sequence_id": 1}}"#, r#"{"sequence_id_": 1}"#, r#"{"Sequence_id": 1}"#]
        {
            assert!(!rest(others, 7), "{others}");
        }
        for kind in [BOOL, INT64, STRING, DOUBLE, UINT64, &[]] {
            assert!(grpc(&[("sequence_id", kind)], 3), "{kind:?}");
        }
        for none in [ZERO, EMPTY] {
            assert!(!grpc(&[("sequence_id", none)], 3), "{none:?}");
        }
        assert!(!grpc(&[("sequence", INT64), ("priority", UINT64)], 3));
    }

    #[test]
    fn what_a_server_of_the_responses_api_keeps() {
        for (path, body, expected) in [
            (RESPONSES, r#"{"input": "x"}"#, true),
            (RESPONSES, r#"{"input": "x", "store": null}"#, true),
            (RESPONSES, r#"{"input": "x", "store": false}"#, false),
            (RESPONSES, r#"{"store": false, "previous_response_id": null, "conversation": null}"#, false),
            (RESPONSES, r#"{"store": false, "previous_response_id": ""}"#, false),
            (RESPONSES, r#"{"store": false, "conversation": "conv_1"}"#, true),
            (RESPONSES, r#"{"store": false, "conversation": {"id": "conv_1"}}"#, true),
            // of several the last counts, as parsers take it; one name of what was kept is enough
            (RESPONSES, r#"{"store": false, "store": true}"#, true),
            (RESPONSES, r#"{"store": true, "store": false}"#, false),
            (RESPONSES, r#"{"store": false, "previous_response_id": "a", "previous_response_id": ""}"#, true),
            (RESPONSES, r#"{"store": false, "input": [{"previous_response_id": "a", "store": true}]}"#, false),
            ("/v1/chat/completions", r#"{"messages": []}"#, false),
            ("/v1/chat/completions", r#"{"messages": [], "store": true}"#, true),
            ("/v1/chat/completions", r#"{"messages": [{"store": true}], "metadata": {"store": true}}"#, false),
            ("/v2/models/m/generate", r#"{"text_input": "x", "parameters": {"sequence_id": 3}}"#, true),
            ("/v2/models/m/generate", r#"{"text_input": "x", "sequence_id": 3}"#, true),
            ("/v1/embeddings", r#"{"input": "x", "store": true, "sequence_id": 3}"#, false),
        ] {
            for piece in [1, 11, body.len()] {
                assert_eq!(read(path, &[], body.as_bytes(), piece), expected, "{path} {body}");
            }
        }
    }

    #[test]
    fn a_head_may_say_so() {
        let of = |fields: &[(&'static str, &'static str)]| read("/predictions/m", fields, b"{}", 2);
        assert!(of(&[("ts_request_sequence_id", "s")]) && of(&[("ts_request_sequence_start", "true")]));
        assert!(!of(&[]) && !of(&[("ts_request_sequence_id", "")]));
    }

    #[test]
    fn of_a_body_that_is_not_read_nobody_knows() {
        assert!(read(INFER, &[("content-encoding", "lzma")], b"{}", 2));
        let deep = format!(r#"{{"inputs": {}"#, "[".repeat(10_000));
        assert!(!read(INFER, &[], deep.as_bytes(), 999), "it is JSON as far as it goes");
    }
}
