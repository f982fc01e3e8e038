//! Reads the frame that ends an answer of gRPC-Web, or a stream of the Connect protocol: it carries the call's status, which
//! gRPC over HTTP/2 has in trailers. Each frame has a head of five bytes, a flag and a length; all others are passed over by length.
//!
//! Sources: PROTOCOL-WEB.md of gRPC (flag 0x80, fields as in HTTP/1.1), connectrpc.com/docs/protocol (flag 0x02, a JSON document
//! with `error` if it failed; flag 0x01 with it: compressed).

use std::sync::{Arc, LazyLock};

use lapwing_compression::{Codings, ContentCoding, unpack_start};

use super::quads::Quads;
use crate::wire::{JsonPaths, JsonReader, JsonValue};

/// How much of such a frame is kept and read.
const FRAME_BYTES: usize = 16 * 1024;
/// How much of it is read once it is decompressed.
const UNPACKED_BYTES: usize = 64 * 1024;
/// gRPC's code for an error that names none.
const UNKNOWN: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndFrame {
    GrpcWeb,
    Connect,
}

/// A reader of an answer up to the frame that ends it.
#[derive(Debug)]
pub(crate) struct EndFrameReader {
    kind: EndFrame,
    /// If the body is base64.
    quads: Option<Quads>,
    /// How many bytes of a frame's head came.
    head: u8,
    flag: u8,
    left: u32,
    kept: Vec<u8>,
    /// The status as a code of gRPC, once the frame came.
    code: Option<u32>,
    /// The frame came, and its status is unknown or `code`.
    is_over: bool,
}

impl EndFrameReader {
    /// A reader for a body of this `Content-Type`, if it ends with such a frame.
    pub(crate) fn of(content_type: &[u8]) -> Option<Self> {
        let rest = |prefix: &[u8]| {
            let (start, rest) = content_type.split_at_checked(prefix.len())?;
            start.eq_ignore_ascii_case(prefix).then_some(rest)
        };
        let (kind, is_text) = match (rest(b"application/grpc-web"), rest(b"application/connect+")) {
            (Some(rest), _) => (EndFrame::GrpcWeb, rest.get(..5).is_some_and(|rest| rest.eq_ignore_ascii_case(b"-text"))),
            (_, Some(_)) => (EndFrame::Connect, false),
            _ => return None,
        };
        let quads = is_text.then(Quads::default);
        Some(Self { kind, quads, head: 0, flag: 0, left: 0, kept: Vec::new(), code: None, is_over: false })
    }

    /// The call's status as a code of gRPC, 0 for success; `None` before its frame came, or where that cannot be read.
    pub(crate) const fn code(&self) -> Option<u32> {
        self.code
    }

    /// Whether the frame came that ends the answer: clients leave then.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Reads the next piece of the body.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let Some(mut quads) = self.quads else { return self.frames(bytes) };
        quads.feed(bytes, |bytes| self.frames(bytes));
        self.quads = Some(quads);
    }

    fn frames(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(first) = rest.first().filter(|_| !self.is_over) {
            if self.head < 5 {
                if self.head == 0 {
                    (self.flag, self.left) = (*first, 0);
                } else {
                    self.left = self.left << 8 | u32::from(*first);
                }
                self.head += 1;
                rest = &rest[1..];
            } else {
                let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                if self.is_end() {
                    let room = FRAME_BYTES.saturating_sub(self.kept.len()).min(taken);
                    self.kept.extend_from_slice(&rest[..room]);
                }
                self.left -= taken as u32;
                rest = &rest[taken..];
            }
            if self.head == 5 && self.left == 0 {
                self.head = 0;
                if self.is_end() {
                    self.end();
                }
            }
        }
    }

    const fn is_end(&self) -> bool {
        match self.kind {
            EndFrame::GrpcWeb => self.flag & 0x80 != 0,
            EndFrame::Connect => self.flag & 0x02 != 0,
        }
    }

    /// The frame came: reads what was kept of it.
    fn end(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        self.is_over = true;
        self.code = match (self.kind, self.flag & 0x01 != 0) {
            (EndFrame::GrpcWeb, false) => grpc_status(&kept),
            (EndFrame::GrpcWeb, true) => grpc_status(&unpacked(&kept)),
            (EndFrame::Connect, false) => connect_status(&kept),
            (EndFrame::Connect, true) => connect_status(&unpacked(&kept)),
        };
    }
}

/// Decodes gzip, within a bound: the code is at the beginning. Other encodings stay unread.
fn unpacked(packed: &[u8]) -> Vec<u8> {
    unpack_start(&Codings::from(ContentCoding::Gzip), packed, UNPACKED_BYTES)
}

fn grpc_status(fields: &[u8]) -> Option<u32> {
    fields.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
        let is_status = name.trim_ascii().eq_ignore_ascii_case(b"grpc-status");
        is_status.then(|| std::str::from_utf8(value[1..].trim_ascii()).ok()?.parse().ok()).flatten()
    })
}

#[derive(Clone, Copy)]
enum EndField {
    Error,
    Code,
}

static END_FIELDS: LazyLock<Arc<JsonPaths<EndField>>> =
    LazyLock::new(|| Arc::new(JsonPaths::new([("error", EndField::Error), ("error.code", EndField::Code)])));

/// The status in an `EndStreamResponse`; `None` if it is no JSON.
fn connect_status(document: &[u8]) -> Option<u32> {
    let mut json = JsonReader::new(Arc::clone(&END_FIELDS));
    let (mut code, mut has_error) = (None, false);
    json.feed(document, &mut |field, value| match (field, value) {
        (EndField::Code, JsonValue::Text { head, .. }) => (code, has_error) = (connect_code(head), true),
        (EndField::Error, JsonValue::Object { .. }) => has_error = true,
        _ => {}
    });
    match (has_error, code) {
        (true, code) => Some(code.unwrap_or(UNKNOWN)),
        (false, _) => json.is_done().then_some(0),
    }
}

/// The gRPC code that a Connect code corresponds to.
fn connect_code(name: &[u8]) -> Option<u32> {
    const NAMES: [&[u8]; 16] = [
        b"canceled",
        b"unknown",
        b"invalid_argument",
        b"deadline_exceeded",
        b"not_found",
        b"already_exists",
        b"permission_denied",
        b"resource_exhausted",
        b"failed_precondition",
        b"aborted",
        b"out_of_range",
        b"unimplemented",
        b"internal",
        b"unavailable",
        b"data_loss",
        b"unauthenticated",
    ];
    NAMES.iter().zip(1..).find(|(own, _)| **own == name).map(|(_, code)| code)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn frame(flag: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![flag];
        frame.extend(u32::try_from(payload.len()).unwrap().to_be_bytes());
        frame.extend(payload);
        frame
    }

    fn read(content_type: &str, body: &[u8]) -> Option<(Option<u32>, bool)> {
        let read = |length| {
            let mut reader = EndFrameReader::of(content_type.as_bytes())?;
            body.chunks(length).for_each(|piece| reader.feed(piece));
            Some((reader.code(), reader.is_over()))
        };
        let whole = read(body.len());
        assert!((1..9).all(|length| read(length) == whole));
        whole
    }

    #[test]
    fn the_status_of_grpc_web_is_in_its_last_frame() {
        let message = frame(0, b"\x80grpc-status: 3\r\n");
        let end = |fields: &str| [message.clone(), frame(0x80, fields.as_bytes())].concat();
        for (fields, code) in [
            ("grpc-status: 0\r\n", Some(0)),
            ("grpc-message: a%20grpc-status: 9\r\nGrpc-Status:5\r\n", Some(5)),
            ("grpc-status:14", Some(14)),
            ("grpc-status: x\r\n", None),
            ("", None),
        ] {
            assert_eq!(read("application/grpc-web+proto", &end(fields)), Some((code, true)), "{fields}");
            let text: String =
                [&message[..], &frame(0x80, fields.as_bytes())].iter().map(|part| BASE64_STANDARD.encode(part)).collect();
            assert_eq!(read("application/grpc-web-text+proto", text.as_bytes()), Some((code, true)), "{fields}");
        }
        assert_eq!(read("application/grpc-web", &message), Some((None, false)), "it was cut off");
        assert_eq!(read("application/grpc", &message), None);
        assert_eq!(read("application/proto", &message), None, "the status of a unary call of Connect is that of HTTP");
    }

    #[test]
    fn the_status_of_a_stream_of_connect_is_in_its_last_frame() {
        let message = frame(0, br#"{"error":{"code":"internal"}}"#);
        let pack = |text: &[u8]| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        for (document, code) in [
            ("{}", Some(0)),
            (r#"{"metadata":{"error":["x"]}}"#, Some(0)),
            (r#"{"error":{"code":"unavailable","message":"y"}}"#, Some(14)),
            (r#"{"error":{"message":"y"}}"#, Some(UNKNOWN)),
            (r#"{"error":{"code":"never heard of"}}"#, Some(UNKNOWN)),
            ("", None),
            ("no json", None),
        ] {
            let plain = [message.clone(), frame(2, document.as_bytes())].concat();
            assert_eq!(read("application/connect+json", &plain), Some((code, true)), "{document}");
            let packed = [message.clone(), frame(3, &pack(document.as_bytes()))].concat();
            assert_eq!(read("application/connect+proto", &packed), Some((code, true)), "{document}, packed");
        }
        let details = format!(r#"{{"error":{{"code":"data_loss","details":["{}"]}}}}"#, "x".repeat(1 << 20));
        assert_eq!(read("application/connect+proto", &frame(2, details.as_bytes())), Some((Some(15), true)));
        assert_eq!(read("application/connect+proto", &frame(3, &pack(details.as_bytes()))), Some((Some(15), true)));
        assert_eq!(read("application/connect+proto", &frame(3, b"brotli")), Some((None, true)));
    }
}
