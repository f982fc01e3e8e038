//! Tests of several parts together.

mod answers;
mod coalescing;
mod costs;
mod forgetting;
mod ghosts;
mod refreshing;
mod routing;
mod sealing;
mod storing;
mod verifying;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::answer::StoredAnswer;
use crate::answerable::RequestTerms;
use crate::key::{CacheKey, KeyForm, KeyedRequest};
use crate::storable::{AnswerParts, StoringTerms};
use lapwing_ledger::Stamp;

pub(crate) const SECOND: u64 = 1_000_000_000;

/// So many nanoseconds after the clock began.
pub(crate) fn at(ns: u64) -> Stamp {
    Stamp::from_ns(1).unwrap().plus(ns)
}

pub(crate) fn wall() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)
}

pub(crate) fn key(number: u64) -> CacheKey {
    CacheKey::from(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

pub(crate) fn request(form: KeyForm, id: Option<&str>) -> KeyedRequest {
    KeyedRequest { key: key(1), shared: key(2), form, id: id.map(Into::into) }
}

pub(crate) const FREE: RequestTerms =
    RequestTerms { may_answer: true, only_if_cached: false, max_age_ns: u64::MAX, min_fresh_ns: 0 };

pub(crate) fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    map
}

/// An answer that is good for a minute.
pub(crate) fn answer(request: &KeyedRequest, fields: &[(&'static str, &str)], body: &[u8], now: Stamp) -> Option<StoredAnswer> {
    let body: Vec<Bytes> = body.chunks(7).map(Bytes::copy_from_slice).collect();
    let parts = AnswerParts { status: StatusCode::OK, headers: &headers(fields), body: &body, trailers: None, is_complete: true };
    StoredAnswer::new(request, parts, StoringTerms { fresh_ns: 60 * SECOND, age_s: 0 }, 5_000_000, now).ok()
}
