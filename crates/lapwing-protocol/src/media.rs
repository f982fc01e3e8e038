//! The format of a body, by the head of its message.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName};

/// The number of bytes of a body that are JSON before binary tensors follow (Open Inference Protocol).
const JSON_BYTES: HeaderName = HeaderName::from_static("inference-header-content-length");

/// The format of a body, once `Content-Encoding` is decoded.
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
    /// The fields of a form, some of which may be files (`multipart/form-data`).
    Form,
    /// Records of a table, one a line.
    Csv,
    /// A format that is not read.
    Other,
}

impl Media {
    /// The format that a head announces.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let Some(kind) = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes) else {
            return Self::json(headers);
        };
        let kind = kind.split(|byte| matches!(byte, b';' | b' ' | b'\t')).next().unwrap_or_default();
        let is = |name: &[u8]| kind.eq_ignore_ascii_case(name);
        let begins = |name: &[u8]| kind.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        if is(b"application/json") {
            Self::json(headers)
        } else if is(b"text/event-stream") {
            Self::Events
        } else if begins(b"application/grpc") {
            // gRPC-Web as text is base64, and is not read
            if begins(b"application/grpc-web-text") { Self::Other } else { Self::Grpc }
        } else if is(b"application/octet-stream") {
            Self::binary(headers).unwrap_or(Self::Other)
        } else if is(b"multipart/form-data") {
            Self::Form
        } else if is(b"text/csv") || is(b"application/csv") {
            Self::Csv
        } else if is_lines(kind) {
            Self::Lines
        } else if [&b"+json"[..], b"/json", b"/x-json"].into_iter().any(|with| ends(kind, with))
            || is(b"application/x-www-form-urlencoded")
            || is(b"text/plain")
        {
            // the second is curl's default for a JSON body; the third is what some clients send
            Self::json(headers)
        } else {
            Self::Other
        }
    }

    /// Whether a head announces what browsers send: a form, or a page.
    pub(crate) fn is_form(headers: &HeaderMap) -> bool {
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

/// Whether a type is one of the names for JSON documents one after another.
fn is_lines(kind: &[u8]) -> bool {
    let Some(at) = kind.iter().position(|byte| *byte == b'/') else { return false };
    let name = &kind[at + 1..];
    let name = if name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(b"x-")) { &name[2..] } else { name };
    [&b"ndjson"[..], b"jsonl", b"jsonlines", b"json-lines", b"json-seq", b"json-stream", b"stream+json", b"ldjson"]
        .into_iter()
        .any(|known| name.eq_ignore_ascii_case(known))
        || ends(name, b"+json-seq")
}

fn ends(kind: &[u8], with: &[u8]) -> bool {
    kind.len() >= with.len() && kind[kind.len() - with.len()..].eq_ignore_ascii_case(with)
}

/// Whether a content type is gRPC's own, with or without the name of a format; gRPC-Web's is none.
#[must_use]
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let rest = headers.get(CONTENT_TYPE).and_then(|kind| kind.as_bytes().strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_tell_the_format() {
        for (kind, media) in [
            ("application/json", Media::Json),
            ("Application/JSON; charset=utf-8", Media::Json),
            ("application/json\t;charset=utf-8", Media::Json),
            ("application/vnd.x+json", Media::Json),
            ("application/vnd.x+JSON", Media::Json),
            ("text/json", Media::Json),
            ("application/x-json", Media::Json),
            ("application/x-www-form-urlencoded", Media::Json),
            ("text/plain", Media::Json),
            ("text/event-stream; charset=utf-8", Media::Events),
            ("Text/Event-Stream;charset=UTF-8", Media::Events),
            ("application/x-ndjson", Media::Lines),
            ("application/ndjson; charset=utf-8", Media::Lines),
            ("application/jsonl", Media::Lines),
            ("application/x-jsonlines", Media::Lines),
            ("application/jsonlines", Media::Lines),
            ("application/json-lines", Media::Lines),
            ("application/json-seq", Media::Lines),
            ("application/geo+json-seq", Media::Lines),
            ("application/stream+json", Media::Lines),
            ("application/x-json-stream", Media::Lines),
            ("text/x-ndjson", Media::Lines),
            ("application/grpc", Media::Grpc),
            ("application/grpc+proto", Media::Grpc),
            ("application/grpc-web-text", Media::Other),
            ("application/octet-stream", Media::Other),
            ("image/jpeg", Media::Other),
            ("multipart/form-data; boundary=application/json", Media::Form),
            ("text/csv; header=present", Media::Csv),
            ("json", Media::Other),
            ("", Media::Other),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())]);
            assert_eq!(Media::of(&headers), media, "{kind}");
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
