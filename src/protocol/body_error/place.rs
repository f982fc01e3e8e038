//! Where an answer would say that it failed, by its head.

use http::HeaderMap;

use super::super::media::Media;

/// Where an answer would say that it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorPlace {
    /// In trailers, or nowhere that is read.
    Nowhere,
    /// In its only document, of JSON.
    Document,
    /// In any of its documents, or in its last frame.
    Stream,
}

impl ErrorPlace {
    /// The place in an answer with this head, of which `content_type` is a part.
    #[must_use]
    pub fn of(headers: &HeaderMap, content_type: &[u8]) -> Self {
        let begins = |with: &[u8]| content_type.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
        // what most answers are is told without a look at other fields
        if content_type == b"application/json" {
            Self::Document
        } else if begins(b"application/grpc") {
            if begins(b"application/grpc-web") { Self::Stream } else { Self::Nowhere }
        } else if begins(b"application/connect+") {
            Self::Stream
        } else {
            match Media::of(headers) {
                Media::Events | Media::Lines => Self::Stream,
                Media::Json => Self::Document,
                _ => Self::Nowhere,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

    use super::*;

    #[test]
    fn heads_tell_the_place() {
        for (kind, place) in [
            ("application/json", ErrorPlace::Document),
            ("Application/JSON; charset=utf-8", ErrorPlace::Document),
            ("application/problem+json", ErrorPlace::Document),
            ("text/event-stream; charset=utf-8", ErrorPlace::Stream),
            ("application/x-ndjson", ErrorPlace::Stream),
            ("application/grpc-web-text+proto", ErrorPlace::Stream),
            ("application/connect+proto", ErrorPlace::Stream),
            ("application/grpc+proto", ErrorPlace::Nowhere),
            ("image/png", ErrorPlace::Nowhere),
        ] {
            let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())]);
            assert_eq!(ErrorPlace::of(&headers, kind.as_bytes()), place, "{kind}");
            headers.insert(CONTENT_ENCODING, "br".parse().unwrap());
            let packed = ErrorPlace::of(&headers, b"text/event-stream");
            assert_eq!(packed, ErrorPlace::Nowhere, "it cannot be read");
        }
        assert_eq!(ErrorPlace::of(&HeaderMap::new(), b""), ErrorPlace::Document);
    }
}
