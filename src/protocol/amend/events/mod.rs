//! A stream of server-sent events (WHATWG HTML, 9.2), event by event. At most one unfinished event is held back, never
//! more than [`MAX_EVENT_BYTES`]; comments and blank lines never are.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::usage::{ChunkAction, UsageStyle, judge, shows};

/// The largest event that is looked at, in bytes.
pub const MAX_EVENT_BYTES: usize = 1 << 20;

/// What ends a stream of completions.
const DONE: &str = "[DONE]";

/// Why the rest of a stream cannot be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventStreamError {
    /// A chunk is no JSON object.
    #[error("a chunk is no JSON object")]
    NotJson,
    /// An event is too large.
    #[error("an event is larger than {MAX_EVENT_BYTES} bytes")]
    TooLarge,
    /// Lines end with a lone carriage return, which nobody sends.
    #[error("lines end with a lone carriage return")]
    LoneReturn,
}

/// Takes out of a stream what usage was asked for.
#[derive(Debug)]
pub struct UsageRemover {
    events: Events,
    habit: UsageStyle,
}

impl UsageRemover {
    /// For a server of that habit.
    #[must_use]
    pub fn new(habit: UsageStyle) -> Self {
        Self { events: Events::default(), habit }
    }

    /// Takes the next bytes; gives what passes now, which may be nothing. After a fault all that was held is given, and
    /// the rest of the stream must pass as it is.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8]) -> (Bytes, Option<EventStreamError>) {
        self.events.held.extend_from_slice(bytes);
        let mut passed = Passed::default();
        let fault = loop {
            match self.events.next() {
                Ok(Some(event)) => {
                    if let Err(fault) = passed.put(&event, self.habit) {
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

    /// The stream is over: gives what was held, an event without its end.
    #[must_use]
    pub fn end(&mut self) -> Bytes {
        let mut passed = Passed::default();
        // a chunk that broke off passes as it is: that is no fault of this side
        let _ = passed.put(&self.events.rest(), self.habit);
        passed.bytes.freeze()
    }

    /// Whether nothing is held back.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.held.is_empty()
    }
}

/// What passes of some events.
#[derive(Default)]
struct Passed {
    bytes: BytesMut,
    /// Behind the last member of the last chunk.
    tail: Option<usize>,
}

impl Passed {
    fn put(&mut self, event: &[u8], habit: UsageStyle) -> Result<(), EventStreamError> {
        let Some((at, json)) = chunk(event) else {
            self.bytes.extend_from_slice(event);
            return Ok(());
        };
        let Some(verdict) = judge(json, habit) else {
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

    /// Puts a member of a dropped chunk where the server would have put it: into the chunk before, if that came along.
    fn carry(&mut self, carried: Option<(&str, &str)>) {
        let (Some((name, value)), Some(tail)) = (carried, self.tail) else { return };
        let rest = self.bytes.split_off(tail);
        self.bytes.extend_from_slice(format!(",\"{name}\":{value}").as_bytes());
        self.bytes.extend_from_slice(&rest);
    }
}

/// Learns a server's habit from a stream for which nobody asked for usage.
#[derive(Debug, Default)]
pub struct UsageStyleDetector {
    events: Events,
    seen: Option<UsageStyle>,
    is_done: bool,
}

impl UsageStyleDetector {
    /// Looks at the next bytes. Gives the habit once the stream has come to its end.
    ///
    /// # Errors
    ///
    /// If the stream cannot be read: it teaches nothing.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Option<UsageStyle>, EventStreamError> {
        if self.is_done {
            return Ok(None);
        }
        self.events.held.extend_from_slice(bytes);
        while let Some(event) = self.events.next()? {
            if let Some((_, json)) = chunk(&event) {
                let shown = shows(json);
                // the strongest that was seen: an unasked chunk, then a mark
                let rank = |habit: Option<UsageStyle>| habit.map(|habit| habit as u8);
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

/// The JSON of an event that is a chunk, and where it stands in it.
fn chunk(event: &[u8]) -> Option<(Range<usize>, &str)> {
    let (at, data) = data(event)?;
    // what is not UTF-8 is not JSON either, and is judged so
    let json = std::str::from_utf8(data).unwrap_or("\u{fffd}");
    (json != DONE && !json.is_empty()).then_some((at, json))
}

/// The data of an event that has exactly one line of it, and where it stands.
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

/// Tells events apart.
#[derive(Debug, Default)]
struct Events {
    held: BytesMut,
    /// How far `held` has been looked through.
    at: usize,
    /// Where its current line began.
    line: usize,
}

impl Events {
    /// The next whole event, its blank line included; a comment before an event is one by itself, as is a blank line.
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

    /// All that is held.
    fn rest(&mut self) -> BytesMut {
        (self.at, self.line) = (0, 0);
        self.held.split()
    }
}

#[cfg(test)]
mod tests;
