//! Which answers may be stored, and for how long: RFC 9111, where it can apply to a POST by agreement.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{AGE, CONTENT_LENGTH, CONTENT_TYPE, DATE, EXPIRES, SET_COOKIE, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::directives::{Directives, seconds};
use crate::key::KeyRules;
use crate::refusal::{CacheRefusal, GRPC_STATUS};
use lapwing_protocol::{Media, is_grpc};

/// What precedes a message of gRPC.
const GRPC_PREFIX: usize = 5;

/// An answer as it came.
#[derive(Clone, Copy, Debug)]
pub struct AnswerParts<'a> {
    /// Its status.
    pub status: StatusCode,
    /// Its head.
    pub headers: &'a HeaderMap,
    /// Its body, in pieces.
    pub body: &'a [Bytes],
    /// What followed the body.
    pub trailers: Option<&'a HeaderMap>,
    /// Whether it came to its end.
    pub is_complete: bool,
}

/// What may be stored, by the configuration.
#[derive(Clone, Copy, Debug)]
pub struct StoringRules {
    /// The longest time for which an answer is good, in nanoseconds.
    pub ttl_ns: u64,
    /// The largest body, in bytes.
    pub max_entry: u64,
}

/// How an answer may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoringTerms {
    /// For how long it is good, in nanoseconds.
    pub fresh_ns: u64,
    /// How old it was already, in seconds: a cache nearer to the server had it.
    pub age_s: u64,
}

/// Why an answer must not be stored, as far as its head tells before its body has come.
pub(crate) fn head_refusal(status: StatusCode, headers: &HeaderMap, rules: StoringRules) -> Option<CacheRefusal> {
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if status != StatusCode::OK {
        Some(CacheRefusal::Status)
    } else if length.is_some_and(|length| length > rules.max_entry) {
        Some(CacheRefusal::TooLarge)
    } else if is_stream(headers) {
        Some(CacheRefusal::Stream)
    } else {
        None
    }
}

fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let is_mixed = kind.get(..9).is_some_and(|start| start.eq_ignore_ascii_case(b"multipart"));
    is_mixed || matches!(Media::of(headers), Media::Events | Media::Lines)
}

impl AnswerParts<'_> {
    /// The terms on which it may be stored, under keys made by `keys`.
    ///
    /// # Errors
    ///
    /// Why it must not be.
    pub fn terms(&self, rules: StoringRules, keys: &KeyRules) -> Result<StoringTerms, CacheRefusal> {
        if !self.is_complete {
            return Err(CacheRefusal::Incomplete);
        }
        if self.status != StatusCode::OK {
            return Err(CacheRefusal::Status);
        }
        let bytes: u64 = self.body.iter().map(|piece| piece.len() as u64).sum();
        if bytes > rules.max_entry {
            return Err(CacheRefusal::TooLarge);
        }
        if is_grpc(self.headers) {
            self.check_grpc(bytes)?;
        }
        if is_stream(self.headers) {
            return Err(CacheRefusal::Stream);
        }
        let fields = [Some(self.headers), self.trailers];
        if fields.into_iter().flatten().any(|fields| fields.contains_key(SET_COOKIE) || fields.contains_key("set-cookie2")) {
            return Err(CacheRefusal::SetCookie);
        }
        check_vary(self.headers, keys)?;
        let directives = Directives::of(self.headers);
        if directives.no_store {
            Err(CacheRefusal::NoStore)
        } else if directives.private {
            Err(CacheRefusal::Private)
        } else if directives.no_cache {
            Err(CacheRefusal::NoCache)
        } else {
            self.lifetime(&directives, rules.ttl_ns)
        }
    }

    /// One message, and the status 0 after it.
    fn check_grpc(&self, bytes: u64) -> Result<(), CacheRefusal> {
        let statuses =
            |fields: &HeaderMap| fields.get_all(GRPC_STATUS).iter().map(|status| status.as_bytes() == b"0").collect::<Vec<_>>();
        if self.trailers.map(statuses).as_deref() != Some(&[true]) || self.headers.contains_key(GRPC_STATUS) {
            return Err(CacheRefusal::GrpcStatus);
        }
        let prefix: Vec<u8> = self.body.iter().flat_map(|piece| piece.iter().copied()).take(GRPC_PREFIX).collect();
        let is_one = match prefix[..] {
            [_, a, b, c, d] => u64::from(u32::from_be_bytes([a, b, c, d])) + GRPC_PREFIX as u64 == bytes,
            _ => false,
        };
        if is_one { Ok(()) } else { Err(CacheRefusal::Stream) }
    }

    fn lifetime(&self, directives: &Directives, ttl_ns: u64) -> Result<StoringTerms, CacheRefusal> {
        // several ages: the greatest
        let ages = self.headers.get_all(AGE).iter().map(|age| seconds(Some(age.as_bytes().trim_ascii())).unwrap_or(0));
        let age_s = ages.max().unwrap_or(0);
        let granted_s = directives.s_maxage.or(directives.max_age).or_else(|| expires_after(self.headers));
        let left_ns = granted_s.map(|granted| granted.saturating_sub(age_s).saturating_mul(1_000_000_000));
        let fresh_ns = left_ns.map_or(ttl_ns, |left| left.min(ttl_ns));
        if fresh_ns == 0 { Err(CacheRefusal::Expired) } else { Ok(StoringTerms { fresh_ns, age_s }) }
    }
}

/// How many seconds after its `Date` an answer expires. One that cannot be read is in the past (section 5.3); without a `Date`,
/// nobody knows.
fn expires_after(headers: &HeaderMap) -> Option<u64> {
    let time = |name: HeaderName| -> Option<SystemTime> {
        let mut values = headers.get_all(name).iter();
        let value = values.next()?;
        values.next().is_none().then(|| httpdate::parse_http_date(value.to_str().ok()?).ok())?
    };
    if !headers.contains_key(EXPIRES) {
        return None;
    }
    let (Some(expires), Some(date)) = (time(EXPIRES), time(DATE)) else { return Some(0) };
    Some(expires.duration_since(date).unwrap_or(Duration::ZERO).as_secs())
}

/// Every field with which an answer varies must be in its key.
fn check_vary(headers: &HeaderMap, keys: &KeyRules) -> Result<(), CacheRefusal> {
    let names = headers.get_all(VARY).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    for name in names.map(<[u8]>::trim_ascii).filter(|name| !name.is_empty()) {
        if name == b"*" {
            return Err(CacheRefusal::VaryAny);
        }
        if !HeaderName::from_bytes(name).is_ok_and(|name| keys.covers(&name)) {
            return Err(CacheRefusal::VaryUnkeyed);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyScope;

    const RULES: StoringRules = StoringRules { ttl_ns: 60_000_000_000, max_entry: 20 };

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    fn terms(headers: &[(&'static str, &'static str)], keys: &KeyRules) -> Result<StoringTerms, CacheRefusal> {
        let body = [Bytes::from_static(b"{\"outputs\":"), Bytes::from_static(b"[]}")];
        let parts =
            AnswerParts { status: StatusCode::OK, headers: &map(headers), body: &body, trailers: None, is_complete: true };
        parts.terms(RULES, keys)
    }

    #[test]
    fn an_answer_says_for_how_long_it_is_good() {
        const DATE: (&str, &str) = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        for (headers, fresh_s, age_s) in [
            (&[][..], 60, 0),
            (&[("cache-control", "max-age=3600")], 60, 0),
            (&[("cache-control", "max-age=30")], 30, 0),
            (&[("cache-control", "max-age=30, s-maxage=40")], 40, 0),
            (&[("cache-control", "max-age=30"), ("age", "10")], 20, 10),
            (&[("age", "7")], 60, 7),
            (&[DATE, ("expires", "Sun, 06 Nov 1994 08:49:47 GMT")], 10, 0),
            (&[DATE, ("expires", "0"), ("cache-control", "max-age=5")], 5, 0),
            (&[("vary", "Accept-Encoding, authorization"), ("vary", "accept")], 60, 0),
        ] {
            let expected = StoringTerms { fresh_ns: fresh_s * 1_000_000_000, age_s };
            assert_eq!(terms(headers, &KeyRules::default()), Ok(expected), "{headers:?}");
        }
    }

    #[test]
    fn answers_are_refused_for_a_reason() {
        for (header, expected) in [
            (("cache-control", "no-store"), CacheRefusal::NoStore),
            (("cache-control", "private"), CacheRefusal::Private),
            (("cache-control", "no-cache=\"x\""), CacheRefusal::NoCache),
            (("set-cookie", "a=b"), CacheRefusal::SetCookie),
            (("vary", "accept, *"), CacheRefusal::VaryAny),
            (("vary", "x-locale"), CacheRefusal::VaryUnkeyed),
            (("vary", "a b"), CacheRefusal::VaryUnkeyed),
            (("cache-control", "max-age=0"), CacheRefusal::Expired),
            (("expires", "0"), CacheRefusal::Expired),
            (("expires", "Sun, 06 Nov 1994 08:49:47 GMT"), CacheRefusal::Expired),
            (("content-type", "text/event-stream; charset=utf-8"), CacheRefusal::Stream),
            (("content-type", "application/x-ndjson"), CacheRefusal::Stream),
            (("content-type", "multipart/x-mixed-replace; boundary=a"), CacheRefusal::Stream),
        ] {
            assert_eq!(terms(&[header], &KeyRules::default()), Err(expected), "{header:?}");
        }
        let shared = KeyRules { scope: KeyScope::Shared, ..KeyRules::default() };
        assert_eq!(terms(&[("vary", "authorization")], &shared), Err(CacheRefusal::VaryUnkeyed), "it is in no key");
        let keyed = KeyRules { vary: Box::new([HeaderName::from_static("x-locale")]), ..KeyRules::default() };
        assert!(terms(&[("vary", "X-Locale")], &keyed).is_ok());
        let refused = |status: u16, body: &'static [u8], is_complete| {
            let (headers, body) = (HeaderMap::new(), [Bytes::from_static(body)]);
            let status = StatusCode::from_u16(status).unwrap();
            AnswerParts { status, headers: &headers, body: &body, trailers: None, is_complete }
                .terms(RULES, &KeyRules::default())
                .err()
        };
        assert_eq!(refused(200, b"", true), None);
        for status in [201, 204, 206, 304, 400, 429, 500] {
            assert_eq!(refused(status, b"", true), Some(CacheRefusal::Status));
        }
        assert_eq!(refused(200, b"", false), Some(CacheRefusal::Incomplete));
        assert_eq!(refused(200, &[b'x'; 21], true), Some(CacheRefusal::TooLarge));
    }

    #[test]
    fn a_call_of_grpc_is_one_message_and_a_status() {
        let of =
            |body: &'static [u8], head: &[(&'static str, &'static str)], trailers: Option<&[(&'static str, &'static str)]>| {
                let mut headers = map(head);
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc+proto"));
                let (body, trailers) = (body.chunks(3).map(Bytes::copy_from_slice).collect::<Vec<_>>(), trailers.map(map));
                let parts = AnswerParts {
                    status: StatusCode::OK,
                    headers: &headers,
                    body: &body,
                    trailers: trailers.as_ref(),
                    is_complete: true,
                };
                parts.terms(RULES, &KeyRules::default()).err()
            };
        const OK: &[(&str, &str)] = &[("grpc-status", "0")];
        const ONE: &[u8] = b"\0\0\0\0\x02ab";
        assert_eq!(of(ONE, &[], Some(OK)), None);
        for (trailers, head) in [(None, &[][..]), (None, OK), (Some(&[][..]), &[]), (Some(&[("grpc-status", "13")]), &[])] {
            assert_eq!(of(ONE, head, trailers), Some(CacheRefusal::GrpcStatus), "{trailers:?}");
        }
        assert_eq!(of(ONE, &[], Some(&[("grpc-status", "0"), ("grpc-status", "2")])), Some(CacheRefusal::GrpcStatus));
        for body in [&b""[..], b"\0\0\0", b"\0\0\0\0\x02a", b"\0\0\0\0\x01a\0\0\0\0\x01b"] {
            assert_eq!(of(body, &[], Some(OK)), Some(CacheRefusal::Stream), "{body:?}");
        }
    }
}
