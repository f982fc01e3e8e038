//! Reads forms (`multipart/form-data`, RFC 7578), piece by piece. Each field is returned at its end with its name and the beginning
//! of its value; files are passed over. It keeps a line of a part's head and the first bytes of a value, whatever comes.
//!
//! Linear: every byte is examined once. In a file, the next carriage return is searched for.

use arrayvec::ArrayVec;
use memchr::memchr;

/// The longest boundary that the standard allows (RFC 2046, section 5.1.1).
const BOUNDARY_BYTES: usize = 70;
/// How many bytes of a value are kept.
const VALUE_BYTES: usize = 128;
/// How many bytes of a line of a part's head are kept.
const LINE_BYTES: usize = 256;
/// The field of a part's head that has its name.
const DISPOSITION: &[u8] = b"content-disposition:";
/// What precedes the boundary, at the end of a part.
const BEFORE: &[u8; 4] = b"\r\n--";

/// A field of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormField<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The first bytes of its value, at most 128.
    pub head: &'a [u8],
    /// The length of its value.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In a part's value, or before the first part; of the delimiter this many bytes came.
    Value {
        matched: usize,
    },
    /// After a delimiter, of whose end this many bytes came: two dashes end the form, a line feed begins a part.
    Delimiter {
        dashes: u8,
    },
    Head,
    Done,
}

/// A reader of one form.
#[derive(Clone, Debug)]
pub struct FormReader {
    delimiter: ArrayVec<u8, { BOUNDARY_BYTES + 4 }>,
    state: State,
    line: ArrayVec<u8, LINE_BYTES>,
    /// The field's name; `None` in a file, and in what has no name.
    name: Option<ArrayVec<u8, LINE_BYTES>>,
    value: ArrayVec<u8, VALUE_BYTES>,
    bytes: u64,
}

impl FormReader {
    /// A reader of the form that this `Content-Type` announces; `None` if it has no boundary, or too long a one.
    #[must_use]
    pub fn new(content_type: &[u8]) -> Option<Self> {
        let boundary = parameter(content_type, b"boundary").filter(|boundary| !boundary.is_empty())?;
        let mut delimiter: ArrayVec<u8, { BOUNDARY_BYTES + 4 }> = BEFORE.iter().copied().collect();
        delimiter.try_extend_from_slice(boundary).ok()?;
        // the first delimiter has no line before it
        let state = State::Value { matched: 2 };
        Some(Self { delimiter, state, line: ArrayVec::new(), name: None, value: ArrayVec::new(), bytes: 0 })
    }

    /// Whether the form has ended; what follows is not read.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Reads the next piece.
    pub fn feed(&mut self, bytes: &[u8], on: &mut impl FnMut(FormField<'_>)) {
        let mut rest = bytes;
        while let Some((byte, behind)) = rest.split_first() {
            match self.state {
                State::Value { matched: 0 } => {
                    let end = memchr(b'\r', rest).unwrap_or(rest.len());
                    self.append(&rest[..end]);
                    rest = &rest[end..];
                    if !rest.is_empty() {
                        rest = &rest[1..];
                        self.state = State::Value { matched: 1 };
                    }
                    continue;
                }
                State::Value { matched } => self.value_byte(matched, *byte, on),
                State::Delimiter { dashes } => {
                    self.state = match (byte, dashes) {
                        (b'-', 1) => State::Done,
                        (b'-', _) => State::Delimiter { dashes: 1 },
                        (b'\n', _) => State::Head,
                        _ => State::Delimiter { dashes: 0 },
                    };
                    self.line.clear();
                }
                State::Head if *byte == b'\n' => self.line_end(),
                State::Head => {
                    let _ = self.line.try_push(*byte); // what is longer is cut
                }
                State::Done => return,
            }
            rest = behind;
        }
    }

    /// Takes a byte after `matched` bytes of the delimiter.
    fn value_byte(&mut self, matched: usize, byte: u8, on: &mut impl FnMut(FormField<'_>)) {
        if self.delimiter[matched] != byte {
            // only its first byte is a carriage return, so nothing of what came can begin another one
            let passed = std::mem::take(&mut self.delimiter);
            self.append(&passed[..matched]);
            self.delimiter = passed;
            let matched = usize::from(byte == b'\r');
            self.state = State::Value { matched };
            if matched == 0 {
                self.append(&[byte]);
            }
            return;
        }
        if matched + 1 < self.delimiter.len() {
            self.state = State::Value { matched: matched + 1 };
            return;
        }
        if let Some(name) = self.name.take() {
            on(FormField { name: &name, head: &self.value, bytes: self.bytes });
        }
        self.state = State::Delimiter { dashes: 0 };
    }

    fn append(&mut self, bytes: &[u8]) {
        let n = bytes.len().min(self.value.remaining_capacity());
        if self.name.is_some() {
            self.value.extend(bytes[..n].iter().copied());
        }
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
    }

    fn line_end(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = line.trim_ascii_end();
        if line.is_empty() {
            self.value.clear();
            self.bytes = 0;
            self.state = State::Value { matched: 0 };
            return;
        }
        if line.get(..DISPOSITION.len()).is_some_and(|start| start.eq_ignore_ascii_case(DISPOSITION)) {
            let is_file = parameter(line, b"filename").or_else(|| parameter(line, b"filename*")).is_some();
            self.name = parameter(line, b"name").filter(|_| !is_file).map(|name| name.iter().copied().take(LINE_BYTES).collect());
        }
    }
}

/// The value of a parameter of a field, without its quotes.
fn parameter<'a>(field: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut is_quoted = false;
    let mut parts = field.split(move |byte| {
        is_quoted ^= *byte == b'"';
        *byte == b';' && !is_quoted
    });
    parts.find_map(|part| {
        let at = part.iter().position(|byte| *byte == b'=')?;
        let (own, value) = (part[..at].trim_ascii(), part[at + 1..].trim_ascii());
        let is_quoted = value.len() >= 2 && value.starts_with(b"\"") && value.ends_with(b"\"");
        let value = if is_quoted { &value[1..value.len() - 1] } else { value };
        own.eq_ignore_ascii_case(name).then_some(value)
    })
}

#[cfg(test)]
mod tests;
