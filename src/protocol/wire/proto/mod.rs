//! A protobuf message read as it passes, piece by piece: watched fields come out when their last byte was read. Whatever else
//! has a length is passed over by it, in constant time. Groups, which nobody sends any more, end the reading.
//!
//! Linear: each byte of a watched varint, number or text is read once, the rest is not looked at.

mod fields;

use std::sync::Arc;

pub use fields::{DEPTH, ProtoFields, ProtoShape};
use fields::{Field, Node, ROOT};

use super::json::TEXT_BYTES;

/// Protobuf itself allows no message of 2 GiB.
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
        /// How many it has.
        bytes: u64,
    },
    /// A message, at its end.
    Message {
        /// How many bytes it has.
        bytes: u64,
    },
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Tag,
    Varint,
    Length,
    /// A number of this many bytes.
    Fixed(u32),
    /// This many bytes of a text.
    Text(u64),
    /// This many bytes that nobody looks into.
    Skip(u64),
    Broken,
}

/// A message that is looked into, or a run of packed values. Places are counted from the start of the outermost message.
#[derive(Clone, Copy, Debug)]
struct Open<T> {
    /// Where its fields are looked up.
    node: Node,
    start: u64,
    end: u64,
    /// It is handed over at its end.
    tag: Option<T>,
}

/// A reader of protobuf, for one message at a time.
#[derive(Clone, Debug)]
pub struct ProtoReader<T> {
    fields: Arc<ProtoFields<T>>,
    state: State,
    open: Vec<Open<T>>,
    /// The field that is being read, if it or something in it is watched.
    field: Option<Field<T>>,
    /// Where the packed run of `field` ends.
    packed_end: Option<u64>,
    /// How many bytes of the message were read.
    at: u64,
    /// A varint or number so far, and how many bits of it came.
    value: u64,
    bits: u32,
    /// How many bytes the text or message has that is being read, and the first of a text.
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

    /// Ready for another message, whatever became of this one.
    pub fn restart(&mut self) {
        self.open.clear();
        (self.state, self.packed_end) = (State::Tag, None);
        (self.at, self.value, self.bits) = (0, 0, 0);
    }

    /// No more bytes come. Returns whether the message is complete: nothing in it was broken or cut.
    #[must_use]
    pub fn end(&self) -> bool {
        self.state == State::Tag && self.bits == 0 && self.open.is_empty()
    }

    /// Whether what came was no protobuf; nothing is handed over any more.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Reads the next piece of one message and hands each watched value to `on` when its last byte was read.
    pub fn feed(&mut self, bytes: &[u8], on: &mut impl FnMut(T, ProtoValue<'_>)) {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let taken = match self.state {
                State::Broken => return,
                State::Text(left) | State::Skip(left) => self.run(rest, left, on),
                _ => {
                    self.at += 1;
                    if self.at > self.limit() {
                        // what is read goes beyond what it is in
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

    /// Takes bytes of a text, or of what is passed over. Returns how many.
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

    /// A byte of a tag, a varint, a length or a number.
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

    /// The length of what follows came.
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

    /// Where the innermost open thing ends.
    fn limit(&self) -> u64 {
        self.packed_end.or(self.open.last().map(|open| open.end)).unwrap_or(u64::MAX)
    }

    /// A field, or one of packed values, ended; with it, perhaps, what it is in.
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
