//! Reads server-sent events (`text/event-stream`), piece by piece, by the rules of the HTML standard. The payload of `data:`
//! lines is passed on as it arrives, without being kept. Comments, ids and unknown fields are skipped.

use memchr::memchr2;

/// How many bytes of an event's name are kept.
pub const NAME_BYTES: usize = 64;

/// A part of an event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SsePiece<'a> {
    /// The event's name (`event:`), its first [`NAME_BYTES`] bytes, at the end of its line. If there are several, the last one
    /// counts.
    Name(&'a [u8]),
    /// A field named `error` that is not empty, at its first byte. The standard knows no such field; llama.cpp wrote its errors into
    /// one.
    Error,
    /// The next bytes of the event's data, at least one. A line feed separates two `data:` lines.
    Data(&'a [u8]),
    /// A blank line: the event is complete. Not returned for an event without any `data:` line, which the standard drops.
    End,
}

/// The position in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the name of a field, of which this many bytes came.
    Field(u8),
    /// After the colon, where one space may follow.
    Colon(Field),
    Value(Field),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Data,
    Event,
    Error,
    Other,
}

/// A byte order mark, which may be before the first line.
const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// A reader of event streams.
#[derive(Clone, Debug)]
pub struct SseReader {
    state: State,
    /// The name of the field so far.
    field: [u8; 5],
    /// Whether the last line ended with a carriage return, whose line feed may follow.
    is_after_cr: bool,
    /// How much of a byte order mark was read; `None` after it.
    mark: Option<u8>,
    /// Whether the event has a `data:` line.
    has_data: bool,
    name: [u8; NAME_BYTES],
    name_len: usize,
}

impl Default for SseReader {
    fn default() -> Self {
        Self::new()
    }
}

impl SseReader {
    /// A reader at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        let (state, mark, name) = (State::Field(0), Some(0), [0; NAME_BYTES]);
        Self { state, field: [0; 5], is_after_cr: false, mark, has_data: false, name, name_len: 0 }
    }

    /// Reads the next piece of a stream. An event that is cut off by the end of the stream has no `End`.
    pub fn feed(&mut self, bytes: &[u8], on: &mut impl FnMut(SsePiece<'_>)) {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if self.is_passed_over(*first) {
                rest = &rest[1..];
                continue;
            }
            if let State::Value(field) = self.state {
                let end = memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
                let (value, behind) = rest.split_at(end);
                self.value(field, value, on);
                rest = behind;
                if let Some(end) = behind.first() {
                    self.line_end(*end, on);
                    rest = &behind[1..];
                }
                continue;
            }
            rest = &rest[usize::from(self.byte(*first, on))..];
        }
    }

    /// Skips the line feed of a line that has ended, or a byte order mark.
    fn is_passed_over(&mut self, byte: u8) -> bool {
        if std::mem::take(&mut self.is_after_cr) && byte == b'\n' {
            return true;
        }
        match self.mark.take() {
            Some(came) if byte == MARK[usize::from(came)] => {
                self.mark = Some(came + 1).filter(|came| usize::from(*came) < MARK.len());
                // an incomplete byte order mark becomes an unknown field name
                self.state = if self.mark.is_some() { State::Field(u8::MAX) } else { State::Field(0) };
                true
            }
            _ => false,
        }
    }

    /// Handles a byte of a field's name, or after its colon. Returns whether it was consumed.
    fn byte(&mut self, byte: u8, on: &mut impl FnMut(SsePiece<'_>)) -> bool {
        match (self.state, byte) {
            (State::Field(0), b'\r' | b'\n') => {
                self.is_after_cr = byte == b'\r';
                if std::mem::take(&mut self.has_data) {
                    on(SsePiece::End);
                }
            }
            (State::Field(came), b':' | b'\r' | b'\n') => {
                let field = self.named(came);
                self.begin(field, on);
                self.state = State::Colon(field);
                if byte != b':' {
                    self.line_end(byte, on);
                }
            }
            (State::Field(came), _) => {
                if let Some(place) = self.field.get_mut(usize::from(came)) {
                    *place = byte;
                }
                self.state = State::Field(came.saturating_add(1));
            }
            (State::Colon(field) | State::Value(field), _) => {
                self.state = State::Value(field);
                return byte == b' ';
            }
        }
        true
    }

    fn named(&self, came: u8) -> Field {
        match self.field.get(..usize::from(came)) {
            Some(b"data") => Field::Data,
            Some(b"event") => Field::Event,
            Some(b"error") => Field::Error,
            _ => Field::Other,
        }
    }

    fn begin(&mut self, field: Field, on: &mut impl FnMut(SsePiece<'_>)) {
        match field {
            Field::Data if std::mem::replace(&mut self.has_data, true) => on(SsePiece::Data(b"\n")),
            Field::Event => self.name_len = 0,
            _ => {}
        }
    }

    fn value(&mut self, field: Field, value: &[u8], on: &mut impl FnMut(SsePiece<'_>)) {
        match field {
            Field::Data if !value.is_empty() => on(SsePiece::Data(value)),
            Field::Error if !value.is_empty() => {
                self.state = State::Value(Field::Other);
                on(SsePiece::Error);
            }
            Field::Event => {
                let n = value.len().min(NAME_BYTES - self.name_len);
                self.name[self.name_len..self.name_len + n].copy_from_slice(&value[..n]);
                self.name_len += n;
            }
            _ => {}
        }
    }

    fn line_end(&mut self, byte: u8, on: &mut impl FnMut(SsePiece<'_>)) {
        if let State::Colon(Field::Event) | State::Value(Field::Event) = self.state {
            on(SsePiece::Name(&self.name[..self.name_len]));
        }
        self.is_after_cr = byte == b'\r';
        self.state = State::Field(0);
    }
}

#[cfg(test)]
mod tests;
