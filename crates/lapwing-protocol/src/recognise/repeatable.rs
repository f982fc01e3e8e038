//! Whether a call may be sent twice, by its request alone: before anybody knows how it is answered.

use bytes::Bytes;
use http::Request;
use http::header::CONTENT_ENCODING;

use super::{Recognised, Recogniser, WholeBody};
use crate::Media;

/// What precedes a message of gRPC: a byte that says whether it is compressed, and its length in four.
const GRPC_PREFIX: usize = 5;

impl Recogniser {
    /// Whether a request is a call of a known protocol that leaves nothing behind: it belongs to no sequence, uses no shared memory and stores
    /// nothing. One that is compressed, or has several messages, is not read, and is none.
    #[must_use]
    pub fn is_repeatable<B>(&self, head: &Request<B>, body: &[Bytes]) -> bool {
        let is_plain = |coding: &http::HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"identity");
        if !head.headers().get_all(CONTENT_ENCODING).iter().all(is_plain) {
            return false;
        }
        let whole = match body {
            [one] => one.clone(),
            many => Bytes::from(many.concat()),
        };
        let (method, path) = (head.method(), head.uri().path());
        let recognised = match Media::of(head.headers()) {
            Media::Grpc => match only_message(&whole) {
                Some(message) => self.request(method, path, WholeBody::Messages(&[message])),
                None => Recognised::No,
            },
            media => self.request(method, path, WholeBody::Document(media, &whole)),
        };
        recognised == Recognised::Yes
    }
}

/// The message of a unary gRPC call, if it is not compressed.
fn only_message(body: &Bytes) -> Option<Bytes> {
    let (prefix, message) = body.split_at_checked(GRPC_PREFIX)?;
    let length = u32::from_be_bytes(prefix.get(1..)?.try_into().ok()?);
    (prefix.first() == Some(&0) && usize::try_from(length) == Ok(message.len())).then(|| body.slice(GRPC_PREFIX..))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str, headers: &[(&str, &str)], body: &[&[u8]]) -> bool {
        let mut head = Request::post(path);
        for (name, value) in headers {
            head = head.header(*name, *value);
        }
        let body: Vec<Bytes> = body.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
        Recogniser::default().is_repeatable(&head.body(()).unwrap(), &body)
    }

    const INFER: &str = "/v2/models/m/infer";
    const TENSOR: &[u8] = br#"{"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}"#;

    #[test]
    fn a_call_that_leaves_nothing_behind_may_be_sent_twice() {
        assert!(asked(INFER, &[], &[TENSOR]));
        let (first, rest) = TENSOR.split_at(17);
        assert!(asked(INFER, &[("content-encoding", "identity")], &[first, rest]), "in pieces");
        assert!(!asked(INFER, &[("content-encoding", "gzip")], &[TENSOR]), "nobody has read it");
        let of_a_sequence =
            br#"{"parameters": {"sequence_id": 7}, "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}"#;
        assert!(!asked(INFER, &[], &[of_a_sequence]));
        assert!(!asked("/v1/orders", &[], &[TENSOR]), "nobody knows what it does");
        assert!(!asked(INFER, &[], &[]) && !asked(INFER, &[], &[b"{"]));
    }

    #[test]
    fn of_grpc_one_whole_message_that_is_not_compressed() {
        let path = "/inference.GRPCInferenceService/ModelInfer";
        let grpc = [("content-type", "application/grpc")];
        // model_name "m"; inputs: name "x", datatype "FP32", shape [1]
        let message = b"\x0a\x01m\x2a\x0c\x0a\x01x\x12\x04FP32\x1a\x01\x01";
        let mut framed = vec![0, 0, 0, 0, u8::try_from(message.len()).unwrap()];
        framed.extend_from_slice(message);
        assert!(asked(path, &grpc, &[&framed]));
        let compressed = [&[1], &framed[1..]].concat();
        assert!(!asked(path, &grpc, &[&compressed]));
        assert!(!asked(path, &grpc, &[&framed, &framed]), "two messages");
        assert!(!asked(path, &grpc, &[&framed[..7]]) && !asked(path, &grpc, &[b"\0\0"]));
    }
}
