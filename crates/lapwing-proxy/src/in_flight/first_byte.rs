//! Tells streams from whole responses by their framing, and notes when the first byte of a stream's body was read. It reads no
//! content, so a stream of any format has its first byte.
//!
//! A response is a stream if its type says so (server-sent events, JSON lines); if its length is not declared and its body comes in
//! several pieces; or if it is a gRPC response of several messages.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;

use lapwing_tower::outcome::GRPC;

/// The types of streams.
const STREAMS: [&[u8]; 6] = [
    b"text/event-stream",
    b"application/x-ndjson",
    b"application/ndjson",
    b"application/jsonl",
    b"application/json-lines",
    b"application/stream+json",
];
/// A gRPC message's flag and length.
const GRPC_PREFIX: usize = 5;

/// The first byte of a response that may be a stream.
#[derive(Debug, Default)]
pub(crate) struct FirstByte {
    framing: Framing,
    /// When the first byte was read, from the request's start; zero before that.
    first_ns: u64,
    bytes: u64,
    is_stream: bool,
}

#[derive(Debug, Default)]
enum Framing {
    /// The length is declared, or there is no body yet.
    #[default]
    Whole,
    /// A stream by its type.
    Typed,
    /// Only the body's end tells how long it is.
    Undeclared,
    /// gRPC messages; the first one ends at this byte, if its prefix was read.
    Grpc(Option<u64>),
}

impl FirstByte {
    /// The head of a response with this `Content-Type`.
    pub(crate) fn on_head(&mut self, headers: &HeaderMap, content_type: &[u8]) {
        let kind = content_type.split(|byte| matches!(byte, b';' | b' ')).next().unwrap_or_default();
        let framing = if content_type.starts_with(GRPC) {
            Framing::Grpc(None)
        } else if STREAMS.iter().any(|stream| kind.eq_ignore_ascii_case(stream)) {
            Framing::Typed
        } else if headers.contains_key(CONTENT_LENGTH) {
            Framing::Whole
        } else {
            Framing::Undeclared
        };
        *self = Self { framing, ..Self::default() };
    }

    /// A piece of the body was read, `at_ns` from the request's start.
    pub(crate) fn on_piece(&mut self, bytes: &Bytes, at_ns: u64) {
        if matches!(self.framing, Framing::Whole) || bytes.is_empty() {
            return;
        }
        let is_first = self.bytes == 0;
        self.bytes += bytes.len() as u64;
        if is_first {
            self.first_ns = at_ns.max(1);
            if let (Framing::Grpc(end), Some([_, length @ ..])) = (&mut self.framing, bytes.first_chunk::<GRPC_PREFIX>()) {
                *end = Some(GRPC_PREFIX as u64 + u64::from(u32::from_be_bytes(*length)));
            }
        }
        self.is_stream |= match self.framing {
            Framing::Whole => false,
            Framing::Typed => true,
            Framing::Undeclared => !is_first,
            Framing::Grpc(end) => end.is_some_and(|end| self.bytes > end),
        };
    }

    /// The first byte of a stream, from the request's start; zero if the response is none.
    pub(crate) const fn of_stream_ns(&self) -> u64 {
        if self.is_stream { self.first_ns } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(head: &[(&'static str, &str)], pieces: &[&[u8]]) -> u64 {
        let headers: HeaderMap = head.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let mut first = FirstByte::default();
        first.on_head(&headers, headers.get("content-type").map_or(&[], |kind| kind.as_bytes()));
        for (piece, at_ns) in pieces.iter().zip(7..) {
            first.on_piece(&Bytes::copy_from_slice(piece), at_ns);
        }
        first.of_stream_ns()
    }

    #[test]
    fn a_stream_has_a_first_byte_whatever_its_format() {
        let events = ("content-type", "Text/Event-Stream; charset=utf-8");
        assert_eq!(first(&[events], &[b": no data\n\n"]), 7, "one piece without data");
        assert_eq!(first(&[events, ("content-length", "3")], &[b"abc"]), 7);
        assert_eq!(first(&[events], &[b"", b"x"]), 8, "an empty piece is no byte");
        assert_eq!(first(&[("content-type", "audio/wav")], &[b"a", b"b", b"c"]), 7);
        assert_eq!(first(&[], &[b"a", b"b"]), 7);
    }

    #[test]
    fn a_whole_response_has_none() {
        assert_eq!(first(&[("content-length", "2")], &[b"a", b"b"]), 0);
        assert_eq!(first(&[("content-type", "application/json")], &[b"{}"]), 0, "chunked, in one piece");
        assert_eq!(first(&[("content-type", "text/event-stream")], &[]), 0, "no body");
    }

    #[test]
    fn a_grpc_response_is_a_stream_from_its_second_message() {
        let grpc = ("content-type", "application/grpc+proto");
        let message = [&[0, 0, 0, 0, 4][..], b"abcd"].concat();
        assert_eq!(first(&[grpc], &[&message]), 0);
        assert_eq!(first(&[grpc], &[&message[..6], &message[6..]]), 0, "one message in two pieces");
        assert_eq!(first(&[grpc], &[&message, &message]), 7);
        assert_eq!(first(&[grpc], &[&[&message[..], &message[..1]].concat()]), 7);
        assert_eq!(first(&[grpc], &[&message[..3], &message]), 0, "a prefix in pieces is not read");
    }
}
