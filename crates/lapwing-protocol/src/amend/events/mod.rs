//! Reads a stream of server-sent events (WHATWG HTML, 9.2) event by event. At most one unfinished event is held back, never more
//! than [`MAX_EVENT_BYTES`]; comments and blank lines are never held back.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::usage::{ChunkAction, UsageStyle, action_for, style_of};

/// The largest event that is examined, in bytes.
pub const MAX_EVENT_BYTES: usize = 1 << 20;

/// The data of the event that ends a stream of completions.
const DONE: &str = "[DONE]";

/// Why the rest of a stream cannot be examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventStreamError {
    /// A chunk is not a JSON object.
    #[error("a chunk is not a JSON object")]
    NotJson,
    /// An event is too large.
    #[error("an event is larger than {MAX_EVENT_BYTES} bytes")]
    TooLarge,
    /// Lines end with a lone carriage return, which no known server sends.
    #[error("lines end with a lone carriage return")]
    LoneReturn,
}

/// Removes from a stream the usage that only the amended request caused.
#[derive(Debug)]
pub struct UsageRemover {
    events: Events,
    style: UsageStyle,
}

impl UsageRemover {
    /// For a server with this style.
    #[must_use]
    pub fn new(style: UsageStyle) -> Self {
        Self { events: Events::default(), style }
    }

    /// Takes the next bytes and returns the bytes to pass on now, possibly none. After an error it returns everything that was
    /// held, and the rest of the stream must pass unchanged.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8]) -> (Bytes, Option<EventStreamError>) {
        self.events.held.extend_from_slice(bytes);
        let mut passed = Passed::default();
        let fault = loop {
            match self.events.next() {
                Ok(Some(event)) => {
                    if let Err(fault) = passed.put(&event, self.style) {
                        break Some(fault);
                    }
                }
                Ok(None) => return (passed.bytes.freeze(), None),
                Err(fault) => break Some(fault),
            }
        };
        passed.bytes.extend_from_slice(&self.events.rest());
        (passed.bytes.freeze(), fault)
    }

    /// Ends the stream and returns what was held: an event without its end.
    #[must_use]
    pub fn end(&mut self) -> Bytes {
        let mut passed = Passed::default();
        // a chunk that broke off passes unchanged; that is not an error of this side
        let _ = passed.put(&self.events.rest(), self.style);
        passed.bytes.freeze()
    }

    /// Whether nothing is held back.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.held.is_empty()
    }
}

/// The output for some events.
#[derive(Default)]
struct Passed {
    bytes: BytesMut,
    /// The position after the last member of the last chunk.
    tail: Option<usize>,
}

impl Passed {
    fn put(&mut self, event: &[u8], style: UsageStyle) -> Result<(), EventStreamError> {
        let Some((at, json)) = chunk(event) else {
            self.bytes.extend_from_slice(event);
            return Ok(());
        };
        let Some(verdict) = action_for(json, style) else {
            self.bytes.extend_from_slice(event);
            return Err(EventStreamError::NotJson);
        };
        let cut = match verdict {
            ChunkAction::Keep => at.end..at.end,
            ChunkAction::Cut(cut) => at.start + cut.start..at.start + cut.end,
            ChunkAction::Drop(carried) => {
                self.carry(carried);
                return Ok(());
            }
        };
        let tail = at.start + json.rfind('}').unwrap_or_default();
        self.tail = Some(self.bytes.len() + tail - cut.len());
        self.bytes.extend_from_slice(event.get(..cut.start).unwrap_or_default());
        self.bytes.extend_from_slice(event.get(cut.end..).unwrap_or_default());
        Ok(())
    }

    /// Moves a member of a dropped chunk into the chunk before it, where the server would have put it, if both arrived together.
    fn carry(&mut self, carried: Option<(&str, &str)>) {
        let (Some((name, value)), Some(tail)) = (carried, self.tail) else { return };
        let rest = self.bytes.split_off(tail);
        self.bytes.extend_from_slice(format!(",\"{name}\":{value}").as_bytes());
        self.bytes.extend_from_slice(&rest);
    }
}

/// Learns a server's usage style from a stream whose request did not ask for usage.
#[derive(Debug, Default)]
pub struct UsageStyleDetector {
    events: Events,
    seen: Option<UsageStyle>,
    is_done: bool,
}

impl UsageStyleDetector {
    /// Examines the next bytes. Returns the style once the stream has ended.
    ///
    /// # Errors
    ///
    /// If the stream cannot be read; then nothing is learnt from it.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Option<UsageStyle>, EventStreamError> {
        if self.is_done {
            return Ok(None);
        }
        self.events.held.extend_from_slice(bytes);
        while let Some(event) = self.events.next()? {
            if let Some((_, json)) = chunk(&event) {
                let shown = style_of(json);
                // keep the strongest sign: an unasked chunk, then a mark
                let rank = |style: Option<UsageStyle>| style.map(|style| style as u8);
                if rank(shown) > rank(self.seen) {
                    self.seen = shown;
                }
            } else if data(&event).is_some_and(|(_, data)| data == DONE.as_bytes()) {
                self.is_done = true;
                return Ok(self.seen);
            }
        }
        Ok(None)
    }
}

/// The JSON of an event that is a chunk, and its position in the event.
fn chunk(event: &[u8]) -> Option<(Range<usize>, &str)> {
    let (at, data) = data(event)?;
    // text that is not UTF-8 is not JSON either and gets the same error
    let json = std::str::from_utf8(data).unwrap_or("\u{fffd}");
    (json != DONE && !json.is_empty()).then_some((at, json))
}

/// The data of an event that has exactly one data line, and its position.
fn data(event: &[u8]) -> Option<(Range<usize>, &[u8])> {
    let mut found = None;
    let mut start = 0;
    for line in event.split_inclusive(|b| *b == b'\n') {
        if let Some(value) = line.strip_prefix(b"data:") {
            if found.is_some() {
                return None;
            }
            let value = value.strip_prefix(b" ").unwrap_or(value);
            let from = start + line.len() - value.len();
            found = Some(from..from + value.trim_ascii_end().len());
        }
        start += line.len();
    }
    let at = found?;
    Some((at.clone(), event.get(at)?))
}

/// Splits a stream into events.
#[derive(Debug, Default)]
struct Events {
    held: BytesMut,
    /// How far `held` has been searched.
    at: usize,
    /// Where its current line begins.
    line: usize,
}

impl Events {
    /// The next whole event, including its blank line. A comment before an event counts as an event, and so does a blank
    /// line.
    fn next(&mut self) -> Result<Option<BytesMut>, EventStreamError> {
        loop {
            let rest = self.held.get(self.at..).unwrap_or_default();
            let Some(found) = rest.iter().position(|b| matches!(b, b'\n' | b'\r')) else {
                self.at = self.held.len();
                break;
            };
            self.at += found;
            let end = match (self.held.get(self.at), self.held.get(self.at + 1)) {
                (Some(b'\r'), None) => break,
                (Some(b'\r'), Some(b'\n')) => self.at + 2,
                (Some(b'\r'), Some(_)) => return Err(EventStreamError::LoneReturn),
                _ => self.at + 1,
            };
            let is_blank = self.at == self.line;
            let is_comment = self.line == 0 && self.held.first() == Some(&b':');
            (self.at, self.line) = (end, end);
            if is_blank || is_comment {
                if end > MAX_EVENT_BYTES {
                    return Err(EventStreamError::TooLarge);
                }
                (self.at, self.line) = (0, 0);
                return Ok(Some(self.held.split_to(end)));
            }
        }
        if self.held.len() > MAX_EVENT_BYTES { Err(EventStreamError::TooLarge) } else { Ok(None) }
    }

    /// Takes everything that is held.
    fn rest(&mut self) -> BytesMut {
        (self.at, self.line) = (0, 0);
        self.held.split()
    }
}

#[cfg(test)]
mod tests;
