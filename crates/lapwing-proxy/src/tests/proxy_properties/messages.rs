//! The messages in what peers sent and received, read by a second, plain reader that shares no code with the proxy. It knows
//! whole messages only, and says where it is unsure rather than guess.

/// A complete message of HTTP/1.1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlainMessage {
    /// The parts of the first line.
    pub(crate) start: Vec<Vec<u8>>,
    /// Names in lower case.
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

impl PlainMessage {
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.fields.iter().filter(move |(own, _)| own == name.as_bytes()).map(|(_, value)| &value[..])
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }
}

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Request,
    /// A response to a request; the flag: to `HEAD`.
    Response(bool),
}

/// Why there is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// More bytes may complete it.
    Partial,
    /// It is malformed, or nothing that this reader knows.
    Odd(&'static str),
}

use Unread::{Odd, Partial};

/// Reads the first message of `bytes`; the rest of them. With `is_all`, no more bytes come.
pub(crate) fn read_message(bytes: &[u8], expected: Expected, is_all: bool) -> Result<(PlainMessage, &[u8]), Unread> {
    let (first, mut rest) = line(bytes)?;
    let start: Vec<Vec<u8>> = first.splitn(3, |byte| *byte == b' ').map(<[u8]>::to_vec).collect();
    let is_start = match (expected, &start[..]) {
        (Expected::Request, [method, target, version]) => {
            is_token(method) && !target.iter().any(u8::is_ascii_control) && !target.is_empty() && is_version(version)
        }
        (Expected::Response(_), [version, status, ..]) => {
            is_version(version) && status.len() == 3 && status.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    };
    if !is_start {
        return Err(Odd("first line"));
    }
    let mut message = PlainMessage { start, ..PlainMessage::default() };
    (message.fields, rest) = fields(rest)?;
    let codings: Vec<&[u8]> = message.values("transfer-encoding").collect();
    let lengths: Vec<&[u8]> = message.values("content-length").collect();
    let has_no_body = match expected {
        Expected::Request => codings.is_empty() && lengths.is_empty(),
        Expected::Response(is_head) => is_head || matches!(&message.start[1][..], [b'1', ..] | b"204" | b"304"),
    };
    let (body, rest) = match (&codings[..], &lengths[..]) {
        ([_, ..], [_, ..]) => return Err(Odd("two framings")),
        _ if has_no_body => (Vec::new(), rest),
        ([coding], []) if coding.eq_ignore_ascii_case(b"chunked") => chunks(rest)?,
        ([], [length]) => {
            let length = number(length, 10).ok_or(Odd("Content-Length"))?;
            let body = rest.get(..length).ok_or(Partial)?;
            (body.to_vec(), &rest[length..])
        }
        ([], []) if is_all => (rest.to_vec(), &rest[rest.len()..]),
        ([], []) => return Err(Partial),
        _ => return Err(Odd("framing")),
    };
    message.body = body;
    Ok((message, rest))
}

/// Names in lower case, and values.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// Every field up to the empty line.
fn fields(mut rest: &[u8]) -> Result<(Fields, &[u8]), Unread> {
    let mut fields = Vec::new();
    loop {
        let (field, after) = line(rest)?;
        rest = after;
        if field.is_empty() {
            return Ok((fields, rest));
        }
        let at = field.iter().position(|byte| *byte == b':').ok_or(Odd("field without colon"))?;
        let (name, value) = (&field[..at], field[at + 1..].trim_ascii());
        if !is_token(name) || value.iter().any(|byte| *byte < b' ' && *byte != b'\t') {
            return Err(Odd("field"));
        }
        fields.push((name.to_ascii_lowercase(), value.to_vec()));
    }
}

/// The content of chunks, without extensions.
fn chunks(mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), Unread> {
    let mut body = Vec::new();
    loop {
        let (size, after) = line(rest)?;
        let size = number(size, 16).ok_or(Odd("size of a chunk"))?;
        if size == 0 {
            return fields(after).map(|(_, rest)| (body, rest));
        }
        body.extend_from_slice(after.get(..size).ok_or(Partial)?);
        rest = match &after[size..] {
            [b'\r', b'\n', rest @ ..] => rest,
            [] | [b'\r'] => return Err(Partial),
            _ => return Err(Odd("end of a chunk")),
        };
    }
}

/// A line, without its end, which must be CRLF.
fn line(bytes: &[u8]) -> Result<(&[u8], &[u8]), Unread> {
    let at = bytes.iter().position(|byte| *byte == b'\n').ok_or(Partial)?;
    let line = bytes[..at].strip_suffix(b"\r").ok_or(Odd("line ends without CR"))?;
    if line.contains(&b'\r') {
        return Err(Odd("CR within a line"));
    }
    Ok((line, &bytes[at + 1..]))
}

fn number(digits: &[u8], base: u32) -> Option<usize> {
    let is_number = (1..=12).contains(&digits.len()) && digits.iter().all(|byte| char::from(*byte).is_digit(base));
    usize::from_str_radix(std::str::from_utf8(digits).ok().filter(|_| is_number)?, base).ok()
}

fn is_version(version: &[u8]) -> bool {
    matches!(version, b"HTTP/1.1" | b"HTTP/1.0")
}

fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

/// What an HTTP/2 connection begins with, on the client's side.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The content of every stream that ended with END_STREAM, in the order of their ends, and what is wrong with the frames, if
/// anything is: of a peer's own frames it means nothing, of the proxy's it is a fault.
pub(crate) fn streams(bytes: &[u8]) -> (Vec<Vec<u8>>, Option<&'static str>) {
    let mut rest = bytes.strip_prefix(PREFACE).unwrap_or(bytes);
    let (mut open, mut ended, mut ended_ids) = (Vec::<(u32, Vec<u8>)>::new(), Vec::new(), Vec::new());
    let (mut fault, mut in_block) = (None, None);
    while let [a, b, c, kind, flags, d, e, f, g, after @ ..] = rest {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let stream = u32::from_be_bytes([*d & 127, *e, *f, *g]);
        let Some(payload) = after.get(..length) else { break };
        rest = &after[length..];
        if in_block.is_some_and(|block| (9, block) != (*kind, stream)) || (in_block.is_none() && *kind == 9) {
            fault = Some("a header block is interrupted");
        }
        if matches!(kind, 0 | 1) && ended_ids.contains(&stream) {
            fault = Some("a stream goes on after its end");
        }
        match kind {
            0 => {
                let padding = if flags & 8 == 0 { Some((0, 0)) } else { payload.first().map(|n| (1, usize::from(*n))) };
                let content = padding.and_then(|(at, n)| payload.get(at..payload.len().checked_sub(n)?));
                let Some(content) = content else {
                    fault = Some("padding");
                    continue;
                };
                content_of(&mut open, stream).extend_from_slice(content);
            }
            1 => {
                content_of(&mut open, stream);
                in_block = (flags & 4 == 0).then_some(stream);
            }
            9 if flags & 4 != 0 => in_block = None,
            _ => {}
        }
        if matches!(kind, 0 | 1)
            && flags & 1 != 0
            && let Some(at) = open.iter().position(|(id, _)| *id == stream)
        {
            ended.push(open.swap_remove(at).1);
            ended_ids.push(stream);
        }
    }
    (ended, fault)
}

fn content_of(open: &mut Vec<(u32, Vec<u8>)>, stream: u32) -> &mut Vec<u8> {
    let at = open.iter().position(|(id, _)| *id == stream).unwrap_or_else(|| {
        open.push((stream, Vec::new()));
        open.len() - 1
    });
    &mut open[at].1
}
