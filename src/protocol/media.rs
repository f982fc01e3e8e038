//! The format of a body, by the head of its message.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName};

/// The number of bytes of a body that are JSON before binary tensors follow (Open Inference Protocol).
const JSON_BYTES: HeaderName = HeaderName::from_static("inference-header-content-length");

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// One JSON document.
    Json,
    /// This many bytes of JSON, then tensors.
    JsonBefore(u64),
    /// Server-sent events.
    Events,
    /// JSON documents one after another.
    Lines,
    /// gRPC messages.
    Grpc,
    /// A format that is not read, or compressed.
    Other,
}

impl Media {
    /// The format that a head announces. That of a compressed body is `Other`.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let plain = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
        if headers.get(CONTENT_ENCODING).is_some_and(|value| !plain(value)) {
            return Self::Other;
        }
        Self::of_decompressed(headers)
    }

    /// The format that a head announces, once `Content-Encoding` is undone.
    #[must_use]
    pub fn of_decompressed(headers: &HeaderMap) -> Self {
        let Some(kind) = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes) else {
            return Self::json(headers);
        };
        let kind = kind.split(|byte| matches!(byte, b';' | b' ')).next().unwrap_or_default();
        let is = |name: &[u8]| kind.eq_ignore_ascii_case(name);
        let begins = |name: &[u8]| kind.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        if is(b"application/json") {
            Self::json(headers)
        } else if is(b"text/event-stream") {
            Self::Events
        } else if begins(b"application/grpc") {
            // gRPC-Web as text is base64, and is not read
            if begins(b"application/grpc-web-text") { Self::Other } else { Self::Grpc }
        } else if [&b"application/x-ndjson"[..], b"application/ndjson", b"application/jsonl", b"application/json-lines"]
            .into_iter()
            .any(is)
        {
            Self::Lines
        } else if is(b"application/octet-stream") {
            Self::binary(headers).unwrap_or(Self::Other)
        } else if kind.ends_with(b"+json") || is(b"application/x-www-form-urlencoded") || is(b"text/plain") {
            // the second is curl's default for a JSON body; the third is what some clients send
            Self::json(headers)
        } else {
            Self::Other
        }
    }

    /// Whether a head announces what browsers send: a form, or a page.
    pub(super) fn is_form(headers: &HeaderMap) -> bool {
        let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], http::HeaderValue::as_bytes);
        let begins = |name: &[u8]| kind.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        begins(b"application/x-www-form-urlencoded") || begins(b"multipart/") || begins(b"text/html")
    }

    fn json(headers: &HeaderMap) -> Self {
        Self::binary(headers).unwrap_or(Self::Json)
    }

    fn binary(headers: &HeaderMap) -> Option<Self> {
        // to pass over a few names costs less than to look up one that is seldom there
        let (_, length) = headers.iter().find(|(name, _)| **name == JSON_BYTES)?;
        length.to_str().ok()?.trim().parse().ok().map(Self::JsonBefore)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_tell_the_format() {
        for (kind, media) in [
            ("application/json", Media::Json),
            ("Application/JSON; charset=utf-8", Media::Json),
            ("application/vnd.x+json", Media::Json),
            ("application/x-www-form-urlencoded", Media::Json),
            ("text/event-stream; charset=utf-8", Media::Events),
            ("application/x-ndjson", Media::Lines),
            ("application/grpc", Media::Grpc),
            ("application/grpc+proto", Media::Grpc),
            ("application/grpc-web-text", Media::Other),
            ("application/octet-stream", Media::Other),
            ("image/jpeg", Media::Other),
            ("multipart/form-data; boundary=application/json", Media::Other),
        ] {
            let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())]);
            assert_eq!(Media::of(&headers), media, "{kind}");
            headers.insert(CONTENT_ENCODING, "gzip".parse().unwrap());
            assert_eq!(Media::of(&headers), Media::Other, "{kind}");
        }
        let mut headers = HeaderMap::new();
        assert_eq!(Media::of(&headers), Media::Json);
        headers.insert(JSON_BYTES, "120".parse().unwrap());
        assert_eq!(Media::of(&headers), Media::JsonBefore(120));
        headers.insert(CONTENT_TYPE, "application/octet-stream".parse().unwrap());
        assert_eq!(Media::of(&headers), Media::JsonBefore(120));
        headers.insert(JSON_BYTES, "-1".parse().unwrap());
        assert_eq!(Media::of(&headers), Media::Other);
    }
}
