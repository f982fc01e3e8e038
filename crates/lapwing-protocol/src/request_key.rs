//! What requests are divided by: the value of a header field, a cookie, a place in a JSON body, or the trace.

use std::hash::Hasher;

use http::{HeaderMap, header};

use crate::BodyPointer;
use crate::trace_context::TRACEPARENT;
use lapwing_ledger::TraceContext;
use lapwing_settings::SplitKey;

/// Finds the key of a request.
#[derive(Debug)]
pub struct RequestKey {
    key: SplitKey,
    /// Where it is, if a body has it.
    in_body: Option<BodyPointer>,
}

impl RequestKey {
    /// Finds `key`.
    #[must_use]
    pub fn new(key: SplitKey) -> Self {
        Self { in_body: if let SplitKey::Json(pointer) = &key { BodyPointer::new(pointer) } else { None }, key }
    }

    /// What it finds.
    #[must_use]
    pub const fn key(&self) -> &SplitKey {
        &self.key
    }

    /// Where it is, if a body has it.
    #[must_use]
    pub const fn in_body(&self) -> Option<&BodyPointer> {
        self.in_body.as_ref()
    }

    /// What `of` makes of the key of a request with these headers, or `in_body`, which was found there; `None` without a key, or if it is empty.
    pub fn with<T>(&self, headers: &HeaderMap, in_body: Option<&[u8]>, of: impl Fn(&[u8]) -> T) -> Option<T> {
        let found = |key: &[u8]| (!key.is_empty()).then(|| of(key));
        match &self.key {
            SplitKey::Trace => found(&TraceContext::parse(headers.get(&TRACEPARENT)?.as_bytes())?.trace.0),
            SplitKey::Json(_) => found(in_body?),
            SplitKey::Header(name) => found(headers.get(name)?.as_bytes().trim_ascii()),
            SplitKey::Cookie(name) => headers.get_all(header::COOKIE).iter().find_map(|field| {
                let mut cookies = field.as_bytes().split(|byte| *byte == b';');
                cookies.find_map(|cookie| found(cookie.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?))
            }),
        }
    }
}

/// SipHash-2-4, which keeps those who choose their keys from choosing their side.
#[allow(deprecated, reason = "its successor may be another function in the next release of Rust, and keys would change sides")]
#[must_use]
pub fn hash_key(seed: (u64, u64), key: &[u8]) -> u64 {
    let mut hasher = std::hash::SipHasher::new_with_keys(seed.0, seed.1);
    hasher.write(key);
    hasher.finish()
}
