//! What a server sends: replies and pushes, of which the outer ones are shown with how many nulls are in them.

use arrayvec::ArrayVec;
use memchr::memchr;
use smallvec::SmallVec;

use super::command_reader::number;
use crate::unread::Unread;

/// How much of a text is looked at.
const PREFIX: usize = 24;
/// How deep replies may nest.
const DEPTH: usize = 32;
/// The most elements of an aggregate.
const ELEMENTS: u64 = 1 << 32;

/// A value that has come whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyValue<'t> {
    /// The byte that it began with.
    pub(crate) kind: u8,
    pub(crate) is_null: bool,
    /// How many elements it has; of a map, keys and values.
    pub(crate) elements: u64,
    /// How many of them are null.
    pub(crate) nulls: u64,
    /// The beginning of a line; of a bulk string only where it was asked for.
    pub(crate) text: &'t [u8],
    /// How many bytes of this reading follow it.
    pub(crate) after: usize,
}

impl ReplyValue<'_> {
    pub(crate) const fn is_error(&self) -> bool {
        matches!(self.kind, b'-' | b'!')
    }
}

/// What gets the values.
pub(crate) trait ReplySink {
    /// Whether texts of bulk strings are looked at, in an aggregate that began with `kind`.
    fn wants_texts(&self, kind: u8) -> bool;
    /// An element of the reply that began with `kind`, at the place `at`.
    fn element(&mut self, kind: u8, at: u64, value: &ReplyValue<'_>);
    /// A reply or a push.
    fn reply(&mut self, value: &ReplyValue<'_>) -> Result<(), Unread>;
}

/// Reads what a server sends.
#[derive(Debug, Default)]
pub(crate) struct ReplyReader {
    state: State,
    held: ArrayVec<u8, PREFIX>,
    /// Whether a line is longer than what is held of it.
    is_long: bool,
    frames: SmallVec<[Frame; 3]>,
    /// How many bytes of this reading have not been looked at.
    rest: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Start,
    Line {
        kind: u8,
    },
    /// A bulk string, with its line end. A chunk of a streamed one is followed by others.
    Bulk {
        kind: u8,
        length: u64,
        left: u64,
        is_chunk: bool,
    },
    /// Between the chunks of a streamed string.
    Chunks,
}

/// An aggregate that has begun.
#[derive(Clone, Copy, Debug)]
struct Frame {
    kind: u8,
    /// Elements that have not come; `None` if only its end says how many.
    left: Option<u64>,
    elements: u64,
    nulls: u64,
}

impl ReplyReader {
    /// Reads the next bytes, and shows `sink` the values that they complete.
    pub(crate) fn read(&mut self, mut bytes: &[u8], sink: &mut impl ReplySink) -> Result<(), Unread> {
        while let Some((first, rest)) = bytes.split_first() {
            match self.state {
                State::Start | State::Chunks => {
                    let is_known = matches!(first, b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(')
                        || matches!(first, b'$' | b'=' | b'!' | b'*' | b'~' | b'%' | b'>' | b'|' | b'.');
                    let is_chunk = matches!(self.state, State::Chunks);
                    if if is_chunk { *first != b';' } else { !is_known } {
                        return Err(Unread::Malformed);
                    }
                    self.held.clear();
                    self.is_long = false;
                    (self.state, bytes) = (State::Line { kind: *first }, rest);
                }
                State::Line { kind } => {
                    let end = memchr(b'\n', bytes);
                    let piece = &bytes[..end.unwrap_or(bytes.len())];
                    let room = (PREFIX - self.held.len()).min(piece.len());
                    self.held.extend(piece[..room].iter().copied());
                    self.is_long |= room < piece.len();
                    let Some(end) = end else { return Ok(()) };
                    bytes = &bytes[end + 1..];
                    self.rest = bytes.len();
                    self.line(kind, sink)?;
                }
                State::Bulk { kind, length, left, is_chunk } => {
                    let taken = left.min(bytes.len() as u64);
                    let (piece, after) = bytes.split_at(taken as usize);
                    if self.frames.len() <= 1 && sink.wants_texts(self.frames.first().map_or(0, |frame| frame.kind)) {
                        let text = (length - (length + 2 - left).min(length)).min(taken) as usize;
                        let room = (PREFIX - self.held.len()).min(text);
                        self.held.extend(piece[..room].iter().copied());
                    }
                    bytes = after;
                    self.rest = bytes.len();
                    self.state = State::Bulk { kind, length, left: left - taken, is_chunk };
                    if left == taken && is_chunk {
                        self.state = State::Chunks;
                    } else if left == taken {
                        self.scalar(kind, false, sink)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A line has come that began with `kind`.
    fn line(&mut self, kind: u8, sink: &mut impl ReplySink) -> Result<(), Unread> {
        if self.held.last() == Some(&b'\r') && !self.is_long {
            self.held.pop();
        }
        match kind {
            b'+' | b'-' | b':' | b'#' | b',' | b'(' => self.scalar(kind, false, sink),
            b'_' => self.scalar(kind, true, sink),
            b'.' => match self.frames.last().copied() {
                Some(frame) if frame.left.is_none() => {
                    self.frames.pop();
                    self.complete(frame, sink)
                }
                _ => Err(Unread::Malformed),
            },
            b'$' | b'=' | b'!' | b';' => self.bulk(kind, sink),
            _ => self.aggregate(kind, sink),
        }
    }

    /// The length of a bulk string, or of a chunk of one, has come.
    fn bulk(&mut self, kind: u8, sink: &mut impl ReplySink) -> Result<(), Unread> {
        if &self.held[..] == b"?" && kind == b'$' {
            self.state = State::Chunks;
            return Ok(());
        }
        let length = self.number()?;
        self.held.clear();
        match u64::try_from(length) {
            Ok(0) if kind == b';' => self.scalar(b'$', false, sink),
            Ok(length) => {
                self.state = State::Bulk { kind, length, left: length + 2, is_chunk: kind == b';' };
                Ok(())
            }
            Err(_) if length == -1 && kind == b'$' => self.scalar(kind, true, sink),
            Err(_) => Err(Unread::Malformed),
        }
    }

    /// The length of an aggregate has come.
    fn aggregate(&mut self, kind: u8, sink: &mut impl ReplySink) -> Result<(), Unread> {
        let each = if matches!(kind, b'%' | b'|') { 2 } else { 1 };
        let left = if &self.held[..] == b"?" { None } else { Some(self.number()?) };
        self.held.clear();
        if left == Some(-1) && kind == b'*' {
            return self.scalar(kind, true, sink);
        }
        let left = left.map(|left| u64::try_from(left).map_err(|_| Unread::Malformed)).transpose()?;
        if left.is_some_and(|left| left > ELEMENTS) {
            return Err(Unread::Malformed);
        }
        if self.frames.len() >= DEPTH {
            return Err(Unread::TooDeep);
        }
        let frame = Frame { kind, left: left.map(|left| left * each), elements: 0, nulls: 0 };
        self.state = State::Start;
        if frame.left == Some(0) {
            return self.complete(frame, sink);
        }
        self.frames.push(frame);
        Ok(())
    }

    fn number(&self) -> Result<i64, Unread> {
        number(&self.held).filter(|_| !self.is_long).ok_or(Unread::Malformed)
    }

    /// A value without elements has come; its text is held.
    fn scalar(&mut self, kind: u8, is_null: bool, sink: &mut impl ReplySink) -> Result<(), Unread> {
        let held = std::mem::take(&mut self.held);
        let text = if is_null { &[] } else { &held[..] };
        let after = self.rest;
        self.value(ReplyValue { kind, is_null, elements: 0, nulls: 0, text, after }, sink)
    }

    fn complete(&mut self, frame: Frame, sink: &mut impl ReplySink) -> Result<(), Unread> {
        let Frame { kind, elements, nulls, .. } = frame;
        self.value(ReplyValue { kind, is_null: false, elements, nulls, text: &[], after: self.rest }, sink)
    }

    /// A value has come, and with it perhaps those that it ends.
    fn value(&mut self, mut value: ReplyValue<'_>, sink: &mut impl ReplySink) -> Result<(), Unread> {
        self.state = State::Start;
        loop {
            // what follows attributes is the value that they are of
            if value.kind == b'|' {
                return Ok(());
            }
            let depth = self.frames.len();
            let Some(frame) = self.frames.last_mut() else { return sink.reply(&value) };
            if depth == 1 {
                sink.element(frame.kind, frame.elements, &value);
            }
            frame.elements += 1;
            frame.nulls += u64::from(value.is_null);
            if let Some(left) = &mut frame.left {
                *left -= 1;
                if *left > 0 {
                    return Ok(());
                }
            } else {
                return Ok(());
            }
            let Some(Frame { kind, elements, nulls, .. }) = self.frames.pop() else { return Ok(()) };
            value = ReplyValue { kind, is_null: false, elements, nulls, text: &[], after: self.rest };
        }
    }
}
