//! The key of a request: two requests have the same if, and only if, the same answer may be given to both.
//!
//! 256 bits of keyed BLAKE3 over where a request goes, what it wants, who asks, and its body. Never fewer bits: a collision would
//! be somebody else's answer. The key of the hash is a secret of the process, so nobody can tell from a key what was asked, nor
//! look for collisions elsewhere.

mod canonical;
mod datatype;
mod elements;
mod fields;
mod header_names;
mod tensors;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::{Hash, Hasher};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, HOST};
use http::{HeaderMap, HeaderName, Request};
use smallvec::SmallVec;

use self::fields::FieldHasher;
use self::header_names::{JSON_BYTES, is_credential, is_negotiated};
use crate::generation::CacheGeneration;
use lapwing_protocol::Media;

/// What this encoding is called: a key made otherwise is another.
const ENCODING: &[u8] = b"lapwing cache key 1";

/// The fields, in their order.
mod tag {
    pub(crate) const ENCODING: u8 = 0;
    pub(crate) const POOL: u8 = 1;
    pub(crate) const METHOD: u8 = 2;
    pub(crate) const AUTHORITY: u8 = 3;
    pub(crate) const PATH: u8 = 4;
    pub(crate) const MODEL: u8 = 5;
    pub(crate) const VERSION: u8 = 6;
    pub(crate) const SCOPE: u8 = 8;
    pub(crate) const IDENTITY: u8 = 9;
    pub(crate) const HEADERS: u8 = 10;
    pub(crate) const JSON_BYTES: u8 = 11;
    pub(crate) const BODY: u8 = 12;
    pub(crate) const TENSORS: u8 = 13;
    /// Begins what a key in a generation is made of, where keys without begin with `ENCODING`.
    pub(crate) const GENERATION: u8 = 255;
}

/// The key of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// All of it, as a second level has it.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A number that is as evenly distributed as the key.
    #[must_use]
    pub const fn sample(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

impl From<[u8; 32]> for CacheKey {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// Whoever sent the request could choose its body, but not the secret of the hash, so eight bytes are enough for a table.
impl Hash for CacheKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.sample());
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CacheKey({:016x})", self.sample())
    }
}

/// What of a body makes the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyForm {
    /// Its bytes.
    #[default]
    Bytes,
    /// The tensors that it has, if it is a request of the Open Inference Protocol that is understood; else its bytes.
    Tensors,
}

/// With whom an answer may be shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyScope {
    /// Requests with the same credentials.
    #[default]
    Credentials,
    /// All requests. Whoever says so says for all answers what `public` would (RFC 9111, section 3.5).
    Shared,
}

/// How keys are made for some of the requests.
#[derive(Clone, Debug, Default)]
pub struct KeyRules {
    /// What of a body makes the key.
    pub form: KeyForm,
    /// With whom an answer may be shared.
    pub scope: KeyScope,
    /// Further fields of the head that change the answer.
    pub vary: Box<[HeaderName]>,
}

impl KeyRules {
    /// Whether requests with other values of this field have other keys.
    #[must_use]
    pub fn covers(&self, name: &HeaderName) -> bool {
        let text = name.as_str();
        is_negotiated(text) || self.scope == KeyScope::Credentials && is_credential(text) || self.vary.contains(name)
    }
}

/// What is asked beside what its head and its body say.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyContext<'a> {
    /// The upstreams that it goes to: other ones may have another model of the same name.
    pub pool: &'a str,
    /// The model, if it is known.
    pub model: Option<&'a str>,
    /// The version of the model, if it is known.
    pub version: Option<&'a str>,
    /// Who asks, by what the connection proves, such as the hash of a certificate.
    pub identity: Option<&'a [u8]>,
    /// Before which answers are not given any more.
    pub generation: CacheGeneration,
}

/// A request's key, and what an answer from the cache has to say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedRequest {
    /// The key, in the generation of this process.
    pub key: CacheKey,
    /// The key without a generation, which processes with the same secret share.
    pub shared: CacheKey,
    /// What made it. With [`KeyForm::Tensors`], the answer's `id` is not the request's.
    pub form: KeyForm,
    /// The request's `id` as JSON, with its quotes, if the key is of tensors.
    pub id: Option<Box<str>>,
}

/// Makes keys.
pub struct KeyMaker {
    secret: [u8; 32],
}

impl fmt::Debug for KeyMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyMaker").finish_non_exhaustive()
    }
}

impl KeyMaker {
    /// With a secret of this process, or of those that share a second level.
    #[must_use]
    pub const fn new(secret: [u8; 32]) -> Self {
        Self { secret }
    }

    /// The key of a request with this head and this body, which came in pieces.
    ///
    /// Linear in the body, at some gigabytes a second for bytes. Tensors of JSON are read number by number, at about 20 ns each.
    /// What is not data of a tensor is bounded, and 1 MB of hostile JSON takes 10 ms at most (`tests/costs.rs`; 2026-11-30, 2
    /// cores of an AMD EPYC).
    #[must_use]
    pub fn key<B>(&self, head: &Request<B>, body: &[Bytes], context: KeyContext<'_>, rules: &KeyRules) -> KeyedRequest {
        let headers = head.headers();
        let mut hasher = FieldHasher::new(&self.secret);
        hasher.field(tag::ENCODING, Some(ENCODING));
        hasher.field(tag::POOL, Some(context.pool.as_bytes()));
        hasher.field(tag::METHOD, Some(head.method().as_str().as_bytes()));
        let authority = head.uri().authority().map(|authority| authority.as_str().as_bytes());
        hasher.field(tag::AUTHORITY, authority.or_else(|| headers.get(HOST).map(http::HeaderValue::as_bytes)));
        hasher.field(tag::PATH, head.uri().path_and_query().map(|path| path.as_str().as_bytes()));
        hasher.field(tag::MODEL, context.model.map(str::as_bytes));
        hasher.field(tag::VERSION, context.version.map(str::as_bytes));
        hasher.field(tag::SCOPE, Some(&[u8::from(rules.scope == KeyScope::Shared)]));
        hasher.field(tag::IDENTITY, context.identity.filter(|_| rules.scope == KeyScope::Credentials));
        hash_headers(&mut hasher, headers, rules);
        if rules.form == KeyForm::Tensors
            && let Some((shared, id)) = self.of_tensors(&hasher, headers, body)
        {
            return self.in_generation(context.generation, shared, KeyForm::Tensors, id);
        }
        // as many of them as there are: two numbers would mean something else to each server
        hasher.raw(&[tag::JSON_BYTES]);
        hash_values(&mut hasher, headers.get_all(JSON_BYTES).iter());
        hasher.raw(&[tag::BODY]);
        hasher.count(body.iter().map(Bytes::len).sum());
        body.iter().for_each(|piece| hasher.raw(piece));
        self.in_generation(context.generation, hasher.finish(), KeyForm::Bytes, None)
    }

    /// The key of one generation, which costs one more block than the key of all.
    fn in_generation(&self, generation: CacheGeneration, shared: [u8; 32], form: KeyForm, id: Option<Box<str>>) -> KeyedRequest {
        let mut bytes = [tag::GENERATION; 49];
        bytes[1..33].copy_from_slice(&shared);
        bytes[33..].copy_from_slice(&generation.to_bytes());
        let key = CacheKey(*blake3::keyed_hash(&self.secret, &bytes).as_bytes());
        KeyedRequest { key, shared: CacheKey(shared), form, id }
    }

    /// The key of the tensors in a body, after what precedes it; `None` if it is not understood.
    fn of_tensors(&self, before: &FieldHasher, headers: &HeaderMap, body: &[Bytes]) -> Option<([u8; 32], Option<Box<str>>)> {
        let is_plain = |coding: &http::HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"identity");
        if !headers.get_all(CONTENT_ENCODING).iter().all(is_plain) {
            return None;
        }
        let json_bytes = match Media::of(headers) {
            Media::Json if !headers.contains_key(JSON_BYTES) => None,
            Media::JsonBefore(bytes) if headers.get_all(JSON_BYTES).iter().count() == 1 => Some(usize::try_from(bytes).ok()?),
            _ => return None,
        };
        let whole = match body {
            [one] => one.clone(),
            many => Bytes::from(many.concat()),
        };
        let (json, binary) = whole.split_at_checked(json_bytes.unwrap_or(whole.len()))?;
        let mut hasher = before.clone();
        hasher.raw(&[tag::TENSORS]);
        let id = tensors::hash(&mut hasher, json, binary)?;
        Some((hasher.finish(), id))
    }
}

/// The fields that count, by their names: which came first does not matter, and of values with the same name it does.
fn hash_headers(hasher: &mut FieldHasher, headers: &HeaderMap, rules: &KeyRules) {
    let mut found: SmallVec<[_; 16]> = headers.keys().filter(|name| rules.covers(name)).collect();
    found.sort_unstable_by_key(|name| name.as_str());
    hasher.raw(&[tag::HEADERS]);
    hasher.count(found.len());
    for name in found {
        hasher.value(name.as_str().as_bytes());
        hash_values(hasher, headers.get_all(name).iter());
    }
}

fn hash_values<'h>(hasher: &mut FieldHasher, values: impl Iterator<Item = &'h http::HeaderValue>) {
    let values: SmallVec<[_; 2]> = values.collect();
    hasher.count(values.len());
    values.iter().for_each(|value| hasher.value(value.as_bytes()));
}
