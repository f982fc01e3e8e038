//! Which requests may be answered by an earlier answer, and which of them: RFC 9111, where it can apply to a POST by agreement of
//! whoever turns the cache on.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request};

use crate::directives::Directives;
use crate::refusal::CacheRefusal;
use crate::sampled::SamplingReader;
use lapwing_protocol::{Media, Recognised, Recogniser, WholeBody, is_grpc};

/// Fields that ask for an answer on a condition, for a part of it, or for another protocol.
const CONDITIONS: [HeaderName; 7] = [IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE, UPGRADE];
/// What precedes a message of gRPC.
const GRPC_PREFIX: usize = 5;

/// What a request allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTerms {
    /// Whether it may be answered by an earlier answer. If not, its own answer may still be stored.
    pub may_answer: bool,
    /// Whether it must not be sent on: if there is no answer, the client is told 504.
    pub only_if_cached: bool,
    /// The age that its answer may have, in nanoseconds.
    pub max_age_ns: u64,
    /// For how long its answer must still be good, in nanoseconds.
    pub min_fresh_ns: u64,
}

impl RequestTerms {
    /// What the head of a request allows, whatever it asks for.
    ///
    /// # Errors
    ///
    /// Why its answer is its own, and must not be stored.
    pub fn of(headers: &HeaderMap) -> Result<Self, CacheRefusal> {
        let directives = Directives::of(headers);
        if directives.no_store {
            return Err(CacheRefusal::RequestNoStore);
        }
        if CONDITIONS.iter().any(|name| headers.contains_key(name)) {
            return Err(CacheRefusal::Conditional);
        }
        let ns = |seconds: u64| seconds.saturating_mul(1_000_000_000);
        Ok(Self {
            may_answer: !directives.no_cache && directives.max_age != Some(0),
            only_if_cached: directives.only_if_cached,
            max_age_ns: directives.max_age.map_or(u64::MAX, ns),
            min_fresh_ns: directives.min_fresh.map_or(0, ns),
        })
    }
}

/// Tells requests that may be answered by an earlier answer from others.
#[derive(Clone, Debug, Default)]
pub struct AnswerableCheck {
    recogniser: Recogniser,
    sampling: SamplingReader,
}

impl AnswerableCheck {
    /// What a request with this head and whole body allows.
    ///
    /// # Errors
    ///
    /// Why its answer is its own, and must not be stored.
    pub fn terms<B>(&self, head: &Request<B>, body: &[Bytes]) -> Result<RequestTerms, CacheRefusal> {
        let terms = Self::terms_of_head(head)?;
        self.body_refusal(head, body).map_or(Ok(terms), Err)
    }

    /// What the head of a request allows.
    ///
    /// # Errors
    ///
    /// Why its answer is its own, and must not be stored.
    pub fn terms_of_head<B>(head: &Request<B>) -> Result<RequestTerms, CacheRefusal> {
        let headers = head.headers();
        let terms = RequestTerms::of(headers)?;
        let is_plain = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"identity");
        if !headers.get_all(CONTENT_ENCODING).iter().all(is_plain) {
            return Err(CacheRefusal::Compressed);
        }
        if headers.get("ts_request_sequence_id").or_else(|| headers.get("ts_request_sequence_start")).is_some() {
            return Err(CacheRefusal::Stateful);
        }
        Ok(terms)
    }

    /// Why the answer to a request with this whole body is its own. What has the key of a request that was let pass need not be asked.
    ///
    /// The body is read three times, at about the speed at which it is parsed; 1 MB takes milliseconds at worst.
    #[must_use]
    pub fn body_refusal<B>(&self, head: &Request<B>, body: &[Bytes]) -> Option<CacheRefusal> {
        if !self.recogniser.is_repeatable(head, body) {
            return Some(self.why_not_repeatable(head, body));
        }
        let path = head.uri().path();
        if is_grpc(head.headers()) {
            self.sampling.refusal_of_call(path, body)
        } else {
            self.sampling.refusal(path, &json_of(head.headers(), body))
        }
    }

    /// Why a call has an effect beyond its answer, or that nobody knows what it is.
    fn why_not_repeatable<B>(&self, head: &Request<B>, body: &[Bytes]) -> CacheRefusal {
        let (method, path, whole) = (head.method(), head.uri().path(), Bytes::from(body.concat()));
        let recognised = if is_grpc(head.headers()) {
            let message = [whole.slice(whole.len().min(GRPC_PREFIX)..)];
            self.recogniser.request(method, path, WholeBody::Messages(&message))
        } else {
            self.recogniser.request(method, path, WholeBody::Document(Media::of(head.headers()), &whole))
        };
        match recognised {
            Recognised::Effect(member) if member.contains("shared_memory") => CacheRefusal::SharedMemory,
            Recognised::Effect(_) => CacheRefusal::Stateful,
            Recognised::Yes | Recognised::Error | Recognised::No => CacheRefusal::NotRepeatable,
        }
    }
}

/// The JSON of a body, before the tensors that may follow it.
fn json_of(headers: &HeaderMap, body: &[Bytes]) -> Vec<Bytes> {
    let mut left = match Media::of(headers) {
        Media::JsonBefore(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    let of_json = |piece: &Bytes| {
        let taken = piece.slice(..piece.len().min(left));
        left -= taken.len();
        taken
    };
    body.iter().map(of_json).filter(|piece| !piece.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFER: &str = "/v2/models/m/infer";
    const BODY: &str = r#"{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}"#;

    fn terms(path: &str, headers: &[(&str, &str)], body: &str) -> Result<RequestTerms, CacheRefusal> {
        let head = headers.iter().fold(Request::post(path), |head, (name, value)| head.header(*name, *value));
        let pieces: Vec<Bytes> = body.as_bytes().chunks(10).map(Bytes::copy_from_slice).collect();
        AnswerableCheck::default().terms(&head.body(()).unwrap(), &pieces)
    }

    #[test]
    fn a_plain_call_may_be_answered_on_its_terms() {
        let free = RequestTerms { may_answer: true, only_if_cached: false, max_age_ns: u64::MAX, min_fresh_ns: 0 };
        for (control, expected) in [
            ("", free),
            ("max-stale=9", free),
            ("no-cache", RequestTerms { may_answer: false, ..free }),
            ("max-age=0", RequestTerms { may_answer: false, max_age_ns: 0, ..free }),
            ("max-age=2", RequestTerms { max_age_ns: 2_000_000_000, ..free }),
            ("min-fresh=1, only-if-cached", RequestTerms { min_fresh_ns: 1_000_000_000, only_if_cached: true, ..free }),
        ] {
            assert_eq!(terms(INFER, &[("cache-control", control)], BODY), Ok(expected), "{control}");
        }
        let embedding = r#"{"model": "m", "input": "x"}"#;
        assert!(terms("/v1/embeddings", &[], embedding).is_ok());
    }

    #[test]
    fn others_are_refused_for_a_reason() {
        let shared = BODY.replace("}]}", r#"}], "outputs": [{"name": "y", "parameters": {"shared_memory_region": "r"}}]}"#);
        let input_in_it = BODY.replace("\"data\": [1]", r#""parameters": {"shared_memory_region": "r"}"#);
        let sequence = BODY.replace("{\"inputs\"", r#"{"parameters": {"sequence_id": 3}, "inputs""#);
        for (path, headers, body, expected) in [
            (INFER, &[("cache-control", "no-store")][..], BODY, CacheRefusal::RequestNoStore),
            (INFER, &[("if-none-match", "\"a\"")], BODY, CacheRefusal::Conditional),
            (INFER, &[("range", "bytes=0-1")], BODY, CacheRefusal::Conditional),
            (INFER, &[("content-encoding", "gzip")], BODY, CacheRefusal::Compressed),
            (INFER, &[], &shared, CacheRefusal::SharedMemory),
            (INFER, &[], &input_in_it, CacheRefusal::NotRepeatable),
            (INFER, &[], &sequence, CacheRefusal::Stateful),
            ("/predictions/m", &[("ts_request_sequence_id", "s")], "{}", CacheRefusal::Stateful),
            ("/orders", &[], BODY, CacheRefusal::NotRepeatable),
            (
                "/v1/chat/completions",
                &[],
                r#"{"model": "m", "messages": [{"role": "user", "content": "x"}]}"#,
                CacheRefusal::Sampled,
            ),
        ] {
            assert_eq!(terms(path, headers, body), Err(expected), "{path} {headers:?} {body}");
        }
    }
}
