//! Where an answer would say that it failed, by its head.

use http::HeaderMap;

use super::super::media::Media;
use lapwing_compression::is_coded;

/// Where an answer would say that it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorPlace {
    /// In trailers, or nowhere that is read.
    Nowhere,
    /// In its only document, of JSON that is in no coding.
    Document,
    /// In any of its documents, or in its last frame; or in a document that has to be decoded first.
    Stream,
}

impl ErrorPlace {
    /// The place in an answer with this head, of which `content_type` is a part.
    #[must_use]
    pub fn of(headers: &HeaderMap, content_type: &[u8]) -> Self {
        let begins = |with: &[u8]| content_type.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
        // most answers need no other field
        if content_type == b"application/json" {
            Self::of_document(headers)
        } else if begins(b"application/grpc") {
            if begins(b"application/grpc-web") { Self::Stream } else { Self::Nowhere }
        } else if begins(b"application/connect+") {
            Self::Stream
        } else {
            match Media::of(headers) {
                Media::Events | Media::Lines => Self::Stream,
                Media::Json => Self::of_document(headers),
                _ => Self::Nowhere,
            }
        }
    }

    fn of_document(headers: &HeaderMap) -> Self {
        if is_coded(headers) { Self::Stream } else { Self::Document }
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
            let packed = if place == ErrorPlace::Document { ErrorPlace::Stream } else { place };
            assert_eq!(ErrorPlace::of(&headers, kind.as_bytes()), packed, "{kind}: a glance sees nothing of it");
        }
        assert_eq!(ErrorPlace::of(&HeaderMap::new(), b""), ErrorPlace::Document);
    }
}
