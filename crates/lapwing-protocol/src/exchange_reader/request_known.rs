//! What is known of a request before it is answered: for those who decide by it where it goes.

use http::{HeaderMap, Method};

use super::{ExchangeReader, Inner, Protocol};
use crate::config::Side;
use crate::detect::Family;
use crate::facts::is_stateful_by_head;
use crate::media::Media;
use crate::plan::{ReadPlan, WatchedFields};
use lapwing_compression::Codings;
use lapwing_ledger::Deadline;

/// Whether a request's body tells something that is to be known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToldByBody {
    /// It does not: its protocol has no place for it there, its head has told it, or the request is a stream of messages.
    #[default]
    Nothing,
    /// It may, and it is not read: its format or its coding is not known.
    Unread,
    /// It may, and it is read as it passes.
    Read,
}

impl ToldByBody {
    /// Whether a request with this head tells what is anywhere in a JSON body.
    #[must_use]
    pub fn of_json(method: &Method, headers: &HeaderMap) -> Self {
        if *method != Method::POST || Media::of(headers) != Media::Json {
            Self::Nothing
        } else if Codings::of(headers).is_ok_and(|codings| codings.is_plain()) {
            Self::Read
        } else {
            Self::Unread
        }
    }
}

impl Inner {
    /// What is read of the request, if it is one call: of a stream of messages the client may wait for an answer before it sends another.
    fn plan_of_call(&self) -> Option<&ReadPlan> {
        let protocol = self.protocol.filter(|protocol| !matches!(protocol, Protocol::Known(Family::OipGrpcStream)))?;
        Some(self.tables.plan(protocol))
    }

    const fn told_by_body(&self, is_told: bool) -> ToldByBody {
        match (is_told, self.request.reader.is_on()) {
            (false, _) => ToldByBody::Nothing,
            (true, false) => ToldByBody::Unread,
            (true, true) => ToldByBody::Read,
        }
    }
}

impl ExchangeReader {
    /// Whether the request's body tells the model. To be asked before its first piece.
    #[must_use]
    pub fn model_in_body(&self) -> ToldByBody {
        let names_model = self.0.plan_of_call().is_some_and(|plan| plan.names_model);
        self.0.told_by_body(names_model && self.0.facts.model().is_none())
    }

    /// Whether the request's body tells its work. To be asked before its first piece.
    #[must_use]
    pub fn work_in_body(&self) -> ToldByBody {
        self.0.told_by_body(self.0.plan_of_call().is_some_and(|plan| !matches!(plan.request, WatchedFields::Nothing)))
    }

    /// The model's name, as far as it is known.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.0.facts.model()
    }

    /// How much a request asks for whose body, of `bytes`, has been read to its end: in its primary unit; where that is the tokens that
    /// the model writes, which nobody knows yet, the tokens that it reads.
    pub fn asked_work(&mut self, bytes: u64) -> Option<u64> {
        let this = &mut *self.0;
        this.facts.read(Side::Request);
        this.request.reader.end(0, &mut this.facts);
        let plan = this.tables.plan(this.protocol?);
        if this.request.unread.is_some() {
            return None;
        }
        this.facts.asked_work(plan, bytes)
    }

    /// Whether the call, with this head, depends on calls before it or later ones on it, after [`Self::asked_work`] has read its body to its end; also
    /// if that could not be read, so that nobody knows.
    #[must_use]
    pub fn is_stateful(&self, headers: &HeaderMap) -> bool {
        let keeps = matches!(self.0.protocol, Some(Protocol::Known(Family::OpenAiResponses)));
        self.0.facts.kept().is_stateful(keeps)
            || matches!(self.0.protocol, Some(Protocol::Known(Family::TorchServe))) && is_stateful_by_head(headers)
            || self.0.request.unread.is_some()
    }

    /// How long a request may take by its body, after [`Self::asked_work`] has read that to its end.
    #[must_use]
    pub fn asked_deadline(&self) -> Option<Deadline> {
        self.0.facts.timeout().deadline()
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

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
            ("/v1/chat/completions", &[JSON][..], ToldByBody::Read),
            ("/v1/chat/completions", &[JSON, ("content-encoding", "gzip")], ToldByBody::Read),
            ("/v1/chat/completions", &[JSON, ("content-encoding", "lzma")], ToldByBody::Unread),
            ("/v1/chat/completions", &[("content-type", "application/msgpack")], ToldByBody::Unread),
            ("/v2/models/m/infer", &[JSON], ToldByBody::Nothing),
            ("/inference.GRPCInferenceService/ModelInfer", &[GRPC], ToldByBody::Read),
            ("/inference.GRPCInferenceService/ModelStreamInfer", &[GRPC], ToldByBody::Nothing),
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

    #[test]
    fn the_work_that_is_asked_for_is_that_of_the_whole_body() {
        const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
        let three = r#"{"inputs": [{"name": "x", "shape": [3, 2], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6]}]}"#;
        for (path, body, expected) in [
            ("/v2/models/m/infer", three, Some(3)),
            ("/v1/embeddings", r#"{"model": "m", "input": ["a", "b", "c", "d"]}"#, Some(1)),
            ("/v1/chat/completions", r#"{"messages": [{"role": "user", "content": "12345678"}]}"#, Some(2)),
            ("/v1/chat/completions", "{}", None),
        ] {
            let mut reader = opened(path, JSON);
            assert_eq!(reader.work_in_body(), ToldByBody::Read);
            body.as_bytes().chunks(7).for_each(|piece| reader.request(piece));
            let asked = [(); 2].map(|()| reader.asked_work(body.len() as u64));
            assert_eq!(asked, [expected; 2], "{path}");
        }
        assert_eq!(opened("/v1/embeddings", &[("content-type", "application/msgpack")]).work_in_body(), ToldByBody::Unread);
    }
}
