//! What is known of a request before it is answered: for those who decide by it where it goes.

use super::{ExchangeReader, Protocol};
use crate::detect::Family;

/// Whether a request's body tells the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelInBody {
    /// It does not: its protocol has no name there, its head has named the model, or the request is a stream of messages.
    Absent,
    /// It may, and it is not read: its format or its coding is not known.
    Unread,
    /// It may, and it is read as it passes.
    Read,
}

impl ExchangeReader {
    /// Whether the request's body tells the model. To be asked before its first piece.
    #[must_use]
    pub fn model_in_body(&self) -> ModelInBody {
        let this = &*self.0;
        let is_named_there = match this.protocol {
            // a client may wait for an answer to its first message before it sends another
            None | Some(Protocol::Known(Family::OipGrpcStream)) => false,
            Some(protocol) => this.tables.plan(protocol).names_model,
        };
        if !is_named_there || this.facts.model().is_some() {
            ModelInBody::Absent
        } else if this.request.reader.is_on() {
            ModelInBody::Read
        } else {
            ModelInBody::Unread
        }
    }

    /// The model's name, as far as it is known.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.0.facts.model()
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue, Method};

    use super::*;
    use crate::Protocols;

    fn opened(path: &str, fields: &[(&'static str, &'static str)]) -> ExchangeReader {
        let protocols = Protocols::default();
        let head: HeaderMap =
            fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect();
        protocols.open(&protocols.detect(&Method::POST, path), &head).unwrap()
    }

    #[test]
    fn a_body_tells_the_model_if_its_protocol_has_a_name_there_and_it_can_be_read() {
        const JSON: (&str, &str) = ("content-type", "application/json");
        const GRPC: (&str, &str) = ("content-type", "application/grpc");
        for (path, fields, expected) in [
            ("/v1/chat/completions", &[JSON][..], ModelInBody::Read),
            ("/v1/chat/completions", &[JSON, ("content-encoding", "gzip")], ModelInBody::Read),
            ("/v1/chat/completions", &[JSON, ("content-encoding", "lzma")], ModelInBody::Unread),
            ("/v1/chat/completions", &[("content-type", "application/msgpack")], ModelInBody::Unread),
            ("/v2/models/m/infer", &[JSON], ModelInBody::Absent),
            ("/inference.GRPCInferenceService/ModelInfer", &[GRPC], ModelInBody::Read),
            ("/inference.GRPCInferenceService/ModelStreamInfer", &[GRPC], ModelInBody::Absent),
        ] {
            assert_eq!(opened(path, fields).model_in_body(), expected, "{path} {fields:?}");
        }
    }

    #[test]
    fn the_last_name_of_a_body_counts() {
        let mut reader = opened("/v1/completions", &[("content-type", "application/json")]);
        assert_eq!(reader.model(), None);
        reader.request(br#"{"prompt": "x", "model": "fir"#);
        assert_eq!(reader.model(), None);
        reader.request(br#"st""#);
        assert_eq!(reader.model(), Some("first"));
        reader.request(br#", "model": "last"}"#);
        assert_eq!(reader.model(), Some("last"));
    }
}
