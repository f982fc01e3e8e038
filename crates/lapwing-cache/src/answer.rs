//! A stored answer, what it costs, and how it is given again.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::header::{
    AGE, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, StatusCode};

use crate::answer_id::IdPlace;
use crate::answerable::RequestTerms;
use crate::key::{KeyForm, KeyedRequest};
use crate::refusal::CacheRefusal;
use crate::storable::{AnswerParts, StoringTerms};
use lapwing_ledger::{Server, Stamp};
use lapwing_protocol::{Media, servers::table};

/// What an allocator adds to a block, at most: to the next of its sizes, a fifth of small ones.
const fn block(bytes: usize) -> u64 {
    (bytes + bytes / 5 + 16) as u64
}

/// Fields that belong to one connection, or that are written anew.
const OF_CONNECTION: [HeaderName; 8] = [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, CONTENT_LENGTH, AGE, DATE];
/// Fields that belong to one exchange: what it was called, what it took, and what proves it.
const OF_EXCHANGE: &[&str] = &[
    "authentication-info",
    "correlation-id",
    "keep-alive",
    "proxy-authentication-info",
    "proxy-connection",
    "request-id",
    "server-timing",
    "traceparent",
    "traceresponse",
    "tracestate",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "x-correlation-id",
    "x-envoy-upstream-service-time",
    "x-process-time",
    "x-request-id",
    "x-response-time",
    "x-runtime",
    "x-trace-id",
];
/// Fields that say something of the body's bytes, which are not the same with another `id`.
const OF_BYTES: &[&str] = &["content-digest", "content-md5", "digest", "etag", "repr-digest"];
/// How many bytes of a body with binary tensors are JSON.
const JSON_BYTES: HeaderName = HeaderName::from_static("inference-header-content-length");

/// An answer that may be given again.
#[derive(Debug)]
pub struct StoredAnswer {
    pub(crate) headers: Box<[(HeaderName, HeaderValue)]>,
    pub(crate) trailers: Option<Box<[(HeaderName, HeaderValue)]>>,
    pub(crate) body: Bytes,
    /// Where its `id` stands, if the key is of tensors.
    pub(crate) id: Option<IdPlace>,
    pub(crate) asked: Stamp,
    pub(crate) terms: StoringTerms,
    pub(crate) service_ns: u64,
    pub(crate) cost: u64,
    /// Whether it was given since it is here, and whether it is being asked for anew.
    pub(crate) was_given: AtomicBool,
    pub(crate) is_refreshed: AtomicBool,
}

/// An answer given again.
#[derive(Debug)]
pub struct AnswerAgain {
    /// Always 200: no other is stored.
    pub status: StatusCode,
    /// Its head, with `Age`, `Date` and `Content-Length` of now.
    pub headers: HeaderMap,
    /// Its body, in pieces that share the stored bytes.
    pub body: [Bytes; 3],
    /// What follows the body.
    pub trailers: Option<HeaderMap>,
}

impl StoredAnswer {
    /// Copies an answer to this request, which was asked for then, came on these terms and took so long. Its age
    /// begins when it was asked for.
    ///
    /// Everything is copied once to a block of its own, because pieces of a body and of a head keep whole buffers of their
    /// connection alive.
    ///
    /// # Errors
    ///
    /// If the key says nothing of the request's `id`, and the answer's cannot be replaced.
    pub fn new(
        request: &KeyedRequest,
        answer: AnswerParts<'_>,
        terms: StoringTerms,
        service_ns: u64,
        asked: Stamp,
    ) -> Result<Self, CacheRefusal> {
        let mut block_of_all = BytesMut::with_capacity(length(answer));
        answer.body.iter().for_each(|piece| block_of_all.extend_from_slice(piece));
        let body_bytes = block_of_all.len();
        let of = [Some(answer.headers), answer.trailers];
        of.into_iter()
            .flatten()
            .flat_map(|fields| kept(fields, request.form))
            .for_each(|(_, value)| block_of_all.extend_from_slice(value.as_bytes()));
        let mut rest = block_of_all.freeze();
        let block_bytes = rest.len();
        let body = rest.split_to(body_bytes);
        let id = match request.form {
            KeyForm::Bytes => None,
            KeyForm::Tensors => Some(place_of_id(answer.headers, &body).ok_or(CacheRefusal::UnreadableId)?),
        };
        let mut fields = |fields: &HeaderMap| -> Box<[_]> {
            let copy =
                |(name, value): (&HeaderName, &HeaderValue)| Some((name.clone(), copied(value, rest.split_to(value.len()))?));
            kept(fields, request.form).filter_map(copy).collect()
        };
        let (headers, trailers) = (fields(answer.headers), answer.trailers.map(&mut fields));
        let (was_given, is_refreshed) = Default::default();
        let mut stored = Self { headers, trailers, body, id, asked, terms, service_ns, cost: 0, was_given, is_refreshed };
        stored.cost = stored.bytes_beside(block_bytes);
        Ok(stored)
    }

    /// The bytes of memory of all of it, where the copied block has `block_bytes`.
    pub(crate) fn bytes_beside(&self, block_bytes: usize) -> u64 {
        let fields = |fields: &[(HeaderName, HeaderValue)]| {
            // names that the library does not know have a block each
            let names: u64 = fields.iter().map(|(name, _)| block(name.as_str().len() + 40)).sum();
            block(size_of_val(fields)) + names
        };
        // the count of those who share the block has a block too
        let shared = block(48);
        block(size_of::<Self>() + 16)
            + block(block_bytes)
            + shared
            + fields(&self.headers)
            + self.trailers.as_deref().map_or(0, fields)
    }

    /// What it costs in bytes, with all that keeps it.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// What it took when it was asked for, in nanoseconds: what an answer from here saves.
    #[must_use]
    pub const fn service_ns(&self) -> u64 {
        self.service_ns
    }

    /// The bytes of its body.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// When it was asked for.
    pub(crate) const fn asked(&self) -> Stamp {
        self.asked
    }

    /// How old it is here, in nanoseconds.
    pub(crate) const fn kept_ns(&self, now: Stamp) -> u64 {
        now.since(self.asked)
    }

    /// For how long it is good from when it was stored, in nanoseconds.
    pub(crate) const fn terms(&self) -> StoringTerms {
        self.terms
    }

    /// How old it is in all, in nanoseconds.
    pub(crate) const fn age_ns(&self, now: Stamp) -> u64 {
        self.terms.age_s.saturating_mul(1_000_000_000).saturating_add(self.kept_ns(now))
    }

    /// Whether it is as young as a request wants it, and good for as long.
    pub(crate) const fn suits(&self, request: &RequestTerms, now: Stamp) -> bool {
        let left_ns = self.terms.fresh_ns.saturating_sub(self.kept_ns(now));
        self.age_ns(now) <= request.max_age_ns && left_ns >= request.min_fresh_ns
    }

    /// The answer to `request`, whose key it has.
    #[must_use]
    pub fn again(&self, request: &KeyedRequest, now: Stamp, wall: SystemTime) -> AnswerAgain {
        let mut headers = map_of(&self.headers, 3);
        let body = match &self.id {
            None => [self.body.clone(), Bytes::new(), Bytes::new()],
            Some(place) => {
                let (range, text) = place.edit(request.id.as_deref());
                correct_json_bytes(&mut headers, range.len(), text.len());
                [self.body.slice(..range.start), Bytes::from(text), self.body.slice(range.end..)]
            }
        };
        headers.insert(AGE, HeaderValue::from(self.age_ns(now) / 1_000_000_000));
        if let Ok(date) =
            HeaderValue::from_str(&httpdate::fmt_http_date(wall.max(SystemTime::UNIX_EPOCH + Duration::from_secs(1))))
        {
            headers.insert(DATE, date);
        }
        let trailers = self.trailers.as_deref().map(|fields| map_of(fields, 0));
        if trailers.is_none() {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.iter().map(Bytes::len).sum::<usize>()));
        }
        AnswerAgain { status: StatusCode::OK, headers, body, trailers }
    }

    /// Whether another answer to the same question says the same: every byte of the body but those of `id`.
    #[must_use]
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.said().concat() == other.said().concat()
    }

    /// The body without its `id`.
    fn said(&self) -> [Bytes; 2] {
        let Some(place) = &self.id else { return [self.body.clone(), Bytes::new()] };
        let (range, _) = place.edit(None);
        [self.body.slice(..range.start), self.body.slice(range.end..)]
    }

    /// 128 bits of BLAKE3 of what [`Self::agrees_with`] compares.
    pub(crate) fn digest(&self) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new();
        self.said().iter().for_each(|part| {
            hasher.update(part);
        });
        let mut digest = [0; 16];
        hasher.finalize_xof().fill(&mut digest);
        digest
    }

    /// The version that the model says to have, if the answer is JSON of the Open Inference Protocol.
    pub(crate) fn model_version(&self) -> Option<Box<str>> {
        #[derive(serde::Deserialize)]
        struct Named<'a> {
            #[serde(borrow)]
            model_version: Option<std::borrow::Cow<'a, str>>,
        }
        let is_json =
            self.headers.iter().any(|(name, value)| name == CONTENT_TYPE && value.as_bytes().starts_with(b"application/json"));
        let named = is_json.then(|| memchr::memmem::find(&self.body, b"\"model_version\"")).flatten();
        named.and_then(|_| serde_json::from_slice::<Named<'_>>(&self.body).ok()?.model_version).map(Into::into)
    }
}

/// How many bytes of an answer are copied at most.
fn length(answer: AnswerParts<'_>) -> usize {
    let values = |fields: &HeaderMap| fields.values().map(HeaderValue::len).sum::<usize>();
    answer.body.iter().map(Bytes::len).sum::<usize>() + values(answer.headers) + answer.trailers.map_or(0, values)
}

/// The fields that are the answer's, rather than its connection's or its exchange's.
fn kept(fields: &HeaderMap, form: KeyForm) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    let of_connection: Vec<&[u8]> =
        fields.get_all(CONNECTION).iter().flat_map(|names| names.as_bytes().split(|byte| *byte == b',')).collect();
    fields.iter().filter(move |(name, _)| {
        let text = name.as_str();
        let is_named = of_connection.iter().any(|named| named.trim_ascii().eq_ignore_ascii_case(text.as_bytes()));
        let is_of_bytes = form == KeyForm::Tensors && OF_BYTES.contains(&text);
        let is_of_exchange = OF_CONNECTION.contains(name) || OF_EXCHANGE.contains(&text) || is_report(text);
        !(is_named || is_of_bytes || is_of_exchange)
    })
}

/// Whether servers report in it what a request took.
fn is_report(name: &str) -> bool {
    Server::ALL.iter().any(|server| table::headers(*server).any(|(reported, _)| reported == name))
}

fn copied(value: &HeaderValue, bytes: Bytes) -> Option<HeaderValue> {
    let mut copy = HeaderValue::from_maybe_shared(bytes).ok()?;
    copy.set_sensitive(value.is_sensitive());
    Some(copy)
}

/// The fields, and room for a few more.
fn map_of(fields: &[(HeaderName, HeaderValue)], more: usize) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(fields.len() + more);
    for (name, value) in fields {
        map.append(name.clone(), value.clone());
    }
    map
}

/// Where the `id` of an answer of the Open Inference Protocol stands; `None` if that cannot be told.
fn place_of_id(headers: &HeaderMap, body: &[u8]) -> Option<IdPlace> {
    if headers.contains_key(CONTENT_ENCODING) {
        return None;
    }
    match Media::of(headers) {
        Media::Json => IdPlace::find(body),
        Media::JsonBefore(bytes) => IdPlace::find(body.get(..usize::try_from(bytes).ok()?)?),
        _ => None,
    }
}

/// Says how many bytes are JSON after some of them were replaced.
fn correct_json_bytes(headers: &mut HeaderMap, removed: usize, added: usize) {
    let length = headers.get(&JSON_BYTES).and_then(|length| length.to_str().ok()?.trim().parse::<usize>().ok());
    if let Some(length) = length {
        headers.insert(JSON_BYTES, HeaderValue::from(length.saturating_sub(removed).saturating_add(added)));
    }
}
