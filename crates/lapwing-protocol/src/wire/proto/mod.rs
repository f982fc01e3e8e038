//! Reads a protobuf message as it passes, piece by piece, and returns watched fields when their last byte was read. Other fields
//! with a length are skipped by it, in constant time. Groups, which are obsolete, end the reading.
//!
//! Linear: each byte of a watched varint, number or text is read once; other bytes are not examined.

mod fields;

use std::sync::Arc;

pub use fields::{DEPTH, ProtoFields, ProtoShape};
use fields::{Field, Node, ROOT};

use super::json::TEXT_BYTES;

/// The protobuf limit: a message must be smaller than 2 GiB.
const MAX_LENGTH: u64 = i32::MAX as u64;

/// A watched value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProtoValue<'a> {
    /// As it is on the wire: a negative `int64` in two's complement, a `sint64` in zigzag.
    Varint(u64),
    /// Four bytes; a `float` by [`f32::from_bits`].
    Fixed32(u32),
    /// Eight bytes.
    Fixed64(u64),
    /// Eight bytes as a number.
    Double(f64),
    /// A string or bytes.
    Text {
        /// The first bytes, at most [`TEXT_BYTES`].
        head: &'a [u8],
        /// Its length in bytes.
        bytes: u64,
    },
    /// A message, at its end.
    Message {
        /// Its length in bytes.
        bytes: u64,
    },
}

/// The meaning of the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Tag,
    Varint,
    Length,
    /// A number of this many bytes.
    Fixed(u32),
    /// This many bytes of a text.
    Text(u64),
    /// This many bytes that are skipped.
    Skip(u64),
    Broken,
}

/// A message whose fields are read, or a run of packed values. Positions are counted from the start of the outermost message.
#[derive(Clone, Copy, Debug)]
struct Open<T> {
    /// The node to look up its fields in.
    node: Node,
    start: u64,
    end: u64,
    /// Whether it is returned at its end.
    tag: Option<T>,
}

/// A reader of protobuf, one message at a time.
#[derive(Clone, Debug)]
pub struct ProtoReader<T> {
    fields: Arc<ProtoFields<T>>,
    state: State,
    open: Vec<Open<T>>,
    /// The field that is being read, if it or a field in it is watched.
    field: Option<Field<T>>,
    /// The end of the packed run of `field`.
    packed_end: Option<u64>,
    /// How many bytes of the message were read.
    at: u64,
    /// The varint or number so far, and the number of its bits read.
    value: u64,
    bits: u32,
    /// The length of the text or message that is being read, and the first bytes of a text.
    bytes: u64,
    head: [u8; TEXT_BYTES],
}

impl<T: Copy> ProtoReader<T> {
    /// A reader that watches these fields.
    #[must_use]
    pub fn new(fields: Arc<ProtoFields<T>>) -> Self {
        let open = Vec::with_capacity(fields.depth());
        let (state, head) = (State::Tag, [0; TEXT_BYTES]);
        Self { fields, state, open, field: None, packed_end: None, at: 0, value: 0, bits: 0, bytes: 0, head }
    }

    /// Prepares for another message, whatever the state of this one.
    pub fn restart(&mut self) {
        self.open.clear();
        (self.state, self.packed_end) = (State::Tag, None);
        (self.at, self.value, self.bits) = (0, 0, 0);
    }

    /// Ends the message. Returns whether it is complete and valid.
    #[must_use]
    pub fn end(&self) -> bool {
        self.state == State::Tag && self.bits == 0 && self.open.is_empty()
    }

    /// Whether the bytes are not protobuf. Nothing is returned after that.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Reads the next piece of one message and calls `on` with each watched value when its last byte was read.
    pub fn feed(&mut self, bytes: &[u8], on: &mut impl FnMut(T, ProtoValue<'_>)) {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let taken = match self.state {
                State::Broken => return,
                State::Text(left) | State::Skip(left) => self.run(rest, left, on),
                _ => {
                    self.at += 1;
                    if self.at > self.limit() {
                        // the field is longer than the message it is in
                        self.state = State::Broken;
                        return;
                    }
                    self.byte(rest[0], on);
                    1
                }
            };
            at += taken;
        }
    }

    /// Consumes bytes of a text, or of a skipped field. Returns how many.
    fn run(&mut self, rest: &[u8], left: u64, on: &mut impl FnMut(T, ProtoValue<'_>)) -> usize {
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
        self.at += taken as u64;
        let left = left - taken as u64;
        if let State::Text(_) = self.state {
            let kept = usize::try_from(self.bytes - left).unwrap_or(usize::MAX) - taken;
            if let Some(room) = self.head.get_mut(kept..) {
                let n = room.len().min(taken);
                room[..n].copy_from_slice(&rest[..n]);
            }
            self.state = State::Text(left);
        } else {
            self.state = State::Skip(left);
        }
        if left == 0 {
            self.run_ended(on);
        }
        taken
    }

    fn run_ended(&mut self, on: &mut impl FnMut(T, ProtoValue<'_>)) {
        if let Some((tag, shape)) = self.field.and_then(|f| f.watched) {
            let kept = usize::try_from(self.bytes).unwrap_or(usize::MAX).min(TEXT_BYTES);
            match (self.state, shape) {
                (State::Text(_), _) => on(tag, ProtoValue::Text { head: &self.head[..kept], bytes: self.bytes }),
                (_, ProtoShape::Message) => on(tag, ProtoValue::Message { bytes: self.bytes }),
                _ => {}
            }
        }
        self.ended(on);
    }

    /// Handles a byte of a tag, a varint, a length or a number.
    fn byte(&mut self, byte: u8, on: &mut impl FnMut(T, ProtoValue<'_>)) {
        if let State::Fixed(of) = self.state {
            self.value |= u64::from(byte) << self.bits;
            self.bits += 8;
            if self.bits == of * 8 {
                let value = self.take();
                self.fixed(value, on);
            }
            return;
        }
        // the tenth byte has the last bit
        if self.bits == 63 && byte > 1 {
            self.state = State::Broken;
            return;
        }
        self.value |= u64::from(byte & 0x7f) << self.bits;
        self.bits += 7;
        if byte < 0x80 {
            let value = self.take();
            match self.state {
                State::Tag => self.tag(value),
                State::Length => self.length(value, on),
                _ => {
                    if let Some((tag, ProtoShape::Varint | ProtoShape::PackedVarints)) = self.field.and_then(|f| f.watched) {
                        on(tag, ProtoValue::Varint(value));
                    }
                    self.ended(on);
                }
            }
        }
    }

    fn take(&mut self) -> u64 {
        self.bits = 0;
        std::mem::take(&mut self.value)
    }

    fn tag(&mut self, tag: u64) {
        let (number, wire_type) = (u32::try_from(tag >> 3).unwrap_or(0), tag & 7);
        let node = self.open.last().map_or(ROOT, |open| open.node);
        self.field = self.fields.get(node, number);
        self.state = match wire_type {
            _ if number == 0 => State::Broken,
            0 => State::Varint,
            1 => State::Fixed(8),
            2 => State::Length,
            5 => State::Fixed(4),
            _ => State::Broken,
        };
    }

    fn fixed(&mut self, value: u64, on: &mut impl FnMut(T, ProtoValue<'_>)) {
        let of = self.state;
        if let Some((tag, shape)) = self.field.and_then(|f| f.watched) {
            match (of, shape) {
                (State::Fixed(4), ProtoShape::Fixed32) => on(tag, ProtoValue::Fixed32(value as u32)),
                (State::Fixed(8), ProtoShape::Fixed64) => on(tag, ProtoValue::Fixed64(value)),
                (State::Fixed(8), ProtoShape::Double) => on(tag, ProtoValue::Double(f64::from_bits(value))),
                _ => {}
            }
        }
        self.ended(on);
    }

    /// Handles the length of the field that follows.
    fn length(&mut self, bytes: u64, on: &mut impl FnMut(T, ProtoValue<'_>)) {
        let end = self.at.saturating_add(bytes);
        if bytes > MAX_LENGTH || end > self.limit() {
            self.state = State::Broken;
            return;
        }
        self.bytes = bytes;
        let watched = self.field.and_then(|f| f.watched);
        if let Some(node) = self.field.and_then(|f| f.inside) {
            let tag = watched.filter(|(_, shape)| *shape == ProtoShape::Message).map(|(tag, _)| tag);
            self.open.push(Open { node, start: self.at, end, tag });
            return self.ended(on);
        }
        let packed = |state| if bytes > 0 { (Some(end), state) } else { (None, State::Skip(0)) };
        (self.packed_end, self.state) = match watched.map(|(_, shape)| shape) {
            Some(ProtoShape::Varint | ProtoShape::PackedVarints) => packed(State::Varint),
            Some(ProtoShape::Fixed32) => packed(State::Fixed(4)),
            Some(ProtoShape::Fixed64 | ProtoShape::Double) => packed(State::Fixed(8)),
            Some(ProtoShape::Text) => (None, State::Text(bytes)),
            Some(ProtoShape::Message) | None => (None, State::Skip(bytes)),
        };
        if bytes == 0 {
            self.run_ended(on);
        }
    }

    /// The end of the innermost open message or run.
    fn limit(&self) -> u64 {
        self.packed_end.or(self.open.last().map(|open| open.end)).unwrap_or(u64::MAX)
    }

    /// Ends a field or one of packed values, and the messages that end with it.
    fn ended(&mut self, on: &mut impl FnMut(T, ProtoValue<'_>)) {
        match self.packed_end {
            Some(end) if self.at < end => return,
            _ => self.packed_end = None,
        }
        self.state = State::Tag;
        while let Some(open) = self.open.pop_if(|open| open.end == self.at) {
            if let Some(tag) = open.tag {
                on(tag, ProtoValue::Message { bytes: open.end - open.start });
            }
        }
    }
}

#[cfg(test)]
mod tests;
