//! Reads a JSON document as it passes, piece by piece, and returns each watched value when its last byte was read. Memory is
//! fixed at construction (a text keeps its first [`TEXT_BYTES`]), nesting is bounded by [`DEPTH`], and parts that are not watched
//! are skipped in blocks. It expects valid JSON and is not a validator: it may detect a broken document late or, in parts that
//! are not watched, never.
//!
//! Linear: every byte is read once by one of the states, and the blocks of `skip` and `numbers` at most once more.

mod numbers;
mod paths;
mod quote;
mod skip;
mod text;
mod value;
mod vectors;

use std::sync::Arc;

use numbers::{Numbers, Run};
pub use paths::{DEPTH, ElementMode, JsonPaths, PathStep};
use paths::{NOWHERE, Node};
use skip::{Skip, Skipped};
use smallvec::SmallVec;
pub use text::TEXT_BYTES;
use text::Text;
use value::word;
pub use value::{JsonItem, JsonValue};
use vectors::is_space;

const RECORD_SEPARATOR: u8 = 0x1e;
/// Longer keys match nothing.
const KEY_BYTES: usize = 64;
/// Longer numbers are dropped.
const NUMBER_BYTES: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A value must follow.
    Value,
    /// The first element must follow, or the end of the array.
    FirstElement,
    /// The first element or key must follow, or the end of a container that is only counted.
    FirstCounted,
    /// The first key must follow, or the end of the object.
    FirstKey,
    /// A key must follow.
    Key,
    Colon,
    /// A comma must follow, or the end of the container.
    After,
    InKey,
    InText,
    InScalar,
    InNumbers,
    Skip,
    Done,
    Broken,
}

/// An open container whose content is read.
#[derive(Clone, Copy, Debug)]
struct Frame {
    node: Node,
    is_object: bool,
    /// The number of elements or keys that began.
    len: u64,
}

/// A reader of JSON, for one document at a time.
#[derive(Clone, Debug)]
pub struct JsonReader<T> {
    paths: Arc<JsonPaths<T>>,
    state: State,
    frames: SmallVec<[Frame; 8]>,
    /// The node of the value that follows or is being read.
    node: Node,
    text: Text,
    skip: Skip,
    numbers: Numbers,
    /// Whether the container that `skip` passes is an object.
    skips_object: bool,
}

impl<T: Copy> JsonReader<T> {
    /// A reader that watches these paths.
    #[must_use]
    pub fn new(paths: Arc<JsonPaths<T>>) -> Self {
        let frames = SmallVec::with_capacity(paths.depth());
        let (text, skip, numbers) = (Text::new(), Skip::new(false, 0), Numbers::default());
        Self { paths, state: State::Value, frames, node: 0, text, skip, numbers, skips_object: false }
    }

    /// Prepares for another document, whatever the state of this one.
    pub fn restart(&mut self) {
        self.frames.clear();
        (self.state, self.node) = (State::Value, 0);
    }

    /// Whether the document is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the bytes are not JSON, or are nested too deep. Nothing is returned after that.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Reads the next piece of one document and calls `on` with each watched value when its last byte was read. Only white space
    /// may follow the document.
    pub fn feed(&mut self, bytes: &[u8], on: &mut impl FnMut(T, JsonValue<'_>)) {
        let read = self.read(bytes, on);
        // some servers end it with the NUL of a text in C
        if self.is_done() && !bytes[read..].iter().all(|b| is_space(*b) || *b == 0) {
            self.state = State::Broken;
        }
    }

    /// Reads the next piece of several documents, with or without white space between them (NDJSON). A broken document ends the
    /// reading.
    pub fn feed_many(&mut self, bytes: &[u8], on: &mut impl FnMut(JsonItem<'_, T>)) {
        let mut at = 0;
        while at < bytes.len() && !self.is_broken() {
            at += self.read(&bytes[at..], &mut |tag, value| on(JsonItem::Value(tag, value)));
            if self.is_done() {
                on(JsonItem::End);
                self.restart();
            }
        }
    }

    /// Ends the input, which completes a document that is a bare number or word. Returns whether the document is complete.
    pub fn end(&mut self, on: &mut impl FnMut(T, JsonValue<'_>)) -> bool {
        if self.state == State::InScalar && self.frames.is_empty() {
            self.scalar(None, on);
        }
        self.is_done()
    }

    /// Reads up to the end of the document or of the bytes; returns the number of bytes read.
    fn read(&mut self, bytes: &[u8], on: &mut impl FnMut(T, JsonValue<'_>)) -> usize {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            at += match self.state {
                State::InKey | State::InText => {
                    let Some((read, whole)) = self.text.read(rest) else { return bytes.len() };
                    self.text_ended(whole, on);
                    read + self.marks_behind(&rest[read..])
                }
                State::InScalar => {
                    let Some(read) = rest.iter().position(|b| !is_scalar(*b)) else {
                        self.text.append(rest);
                        return bytes.len();
                    };
                    self.scalar(Some(&rest[..read]), on);
                    read + self.marks_behind(&rest[read..])
                }
                State::InNumbers => match self.numbers.read(rest) {
                    Run::All => return bytes.len(),
                    Run::Ended(read) => {
                        self.numbers_ended(rest[read], on);
                        read
                    }
                },
                State::Skip => match self.skip.read(rest, DEPTH - self.frames.len() - 1) {
                    Skipped::All => return bytes.len(),
                    Skipped::TooDeep => self.broken(),
                    Skipped::Closed(read) => {
                        self.skipped(rest[read - 1], on);
                        read
                    }
                },
                State::Done | State::Broken => return at,
                _ if is_space(rest[0]) => 1,
                _ => usize::from(self.mark(rest[0], on)),
            };
        }
        at
    }

    fn broken(&mut self) -> usize {
        self.state = State::Broken;
        0
    }

    /// Consumes the marks that most often follow a string, a number or a word: those up to the next string, with no white space between
    /// them. Returns how many; [`Self::mark`] handles all others.
    fn marks_behind(&mut self, rest: &[u8]) -> usize {
        match (self.state, rest) {
            (State::Colon, [b':', b'"', ..]) => {
                self.text.begin(self.is_watched());
                self.state = State::InText;
                2
            }
            (State::After, [b',', b'"', ..]) => {
                let Some(frame) = self.frames.last_mut().filter(|frame| frame.is_object) else { return 0 };
                frame.len += 1;
                self.text.begin(true);
                self.state = State::InKey;
                2
            }
            _ => 0,
        }
    }

    /// Handles a byte outside of strings, numbers and words. Returns whether it was consumed; if not, the state has changed.
    fn mark(&mut self, byte: u8, on: &mut impl FnMut(T, JsonValue<'_>)) -> bool {
        match (self.state, byte) {
            (State::Value, _) => return self.begin(byte),
            (State::FirstElement | State::After, b']') => self.close(false, on),
            (State::FirstKey | State::After, b'}') => self.close(true, on),
            (State::FirstElement, _) => {
                self.next_element();
                return self.begin(byte);
            }
            (State::FirstCounted, b']' | b'}') => self.skipped(byte, on),
            (State::FirstCounted, _) => {
                (self.skip, self.state) = (Skip::new(true, 1), State::Skip);
                return false;
            }
            (State::FirstKey | State::Key, b'"') => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.len += 1;
                }
                self.text.begin(true);
                self.state = State::InKey;
            }
            (State::Colon, b':') => self.state = State::Value,
            (State::After, b',') => match self.frames.last() {
                Some(Frame { is_object: true, .. }) => self.state = State::Key,
                _ => self.next_element(),
            },
            _ => {
                self.broken();
            }
        }
        true
    }

    /// Begins another element of the array, or skips it with all elements after it.
    fn next_element(&mut self) {
        let Some(frame) = self.frames.last_mut() else { return };
        let Frame { node, len, .. } = *frame;
        if self.paths.looks_into_array(node, len) {
            (self.node, self.state) = (self.paths.element(node, len), State::Value);
            frame.len += 1;
        } else {
            self.frames.pop();
            (self.node, self.skips_object, self.state) = (node, false, State::Skip);
            self.skip = Skip::new(self.paths.tag(node).is_some(), len + 1);
        }
    }

    /// Begins a value with this byte. Returns whether the byte was consumed.
    fn begin(&mut self, byte: u8) -> bool {
        match byte {
            b'"' => {
                self.text.begin(self.is_watched());
                self.state = State::InText;
            }
            b'[' | b'{' if self.frames.len() == DEPTH => self.state = State::Broken,
            b'[' | b'{' => self.open(byte == b'{'),
            b'-' | b'0'..=b'9' if self.paths.counts_numbers(self.node) => {
                (self.numbers, self.state) = (Numbers::default(), State::InNumbers);
                return false;
            }
            _ if is_scalar(byte) => {
                self.text.begin(self.is_watched());
                self.state = State::InScalar;
                return false;
            }
            // before each document of a sequence (RFC 7464)
            RECORD_SEPARATOR if self.frames.is_empty() => {}
            // a byte order mark before the document
            0xef | 0xbb | 0xbf if self.frames.is_empty() => {}
            _ => self.state = State::Broken,
        }
        true
    }

    fn is_watched(&self) -> bool {
        self.paths.tag(self.node).is_some()
    }

    fn open(&mut self, is_object: bool) {
        let node = self.node;
        let into = if is_object { self.paths.looks_into_object(node) } else { self.paths.looks_into_array(node, 0) };
        if into {
            self.frames.push(Frame { node, is_object, len: 0 });
            self.state = if is_object { State::FirstKey } else { State::FirstElement };
            return;
        }
        (self.skip, self.skips_object) = (Skip::new(false, 0), is_object);
        self.state = if self.is_watched() { State::FirstCounted } else { State::Skip };
    }

    /// Ends a container whose content was read.
    fn close(&mut self, is_object: bool, on: &mut impl FnMut(T, JsonValue<'_>)) {
        match self.frames.pop() {
            Some(frame) if frame.is_object == is_object => self.container(frame.node, is_object, frame.len, on),
            _ => self.state = State::Broken,
        }
    }

    /// Ends a container that was skipped, with this byte.
    fn skipped(&mut self, byte: u8, on: &mut impl FnMut(T, JsonValue<'_>)) {
        if self.skips_object == (byte == b'}') {
            self.container(self.node, self.skips_object, self.skip.count(), on);
        } else {
            self.state = State::Broken;
        }
    }

    fn container(&mut self, node: Node, is_object: bool, len: u64, on: &mut impl FnMut(T, JsonValue<'_>)) {
        if let Some(tag) = self.paths.tag(node) {
            on(tag, if is_object { JsonValue::Object { len } } else { JsonValue::Array { len } });
        }
        self.ended();
    }

    fn ended(&mut self) {
        self.state = if self.frames.is_empty() { State::Done } else { State::After };
    }

    /// Handles the closing quote of a key or a text, which is `whole` or was kept.
    fn text_ended(&mut self, whole: Option<&[u8]>, on: &mut impl FnMut(T, JsonValue<'_>)) {
        if self.state == State::InKey {
            let parent = self.frames.last().map_or(NOWHERE, |f| f.node);
            let key = whole.map_or_else(|| self.text.whole(KEY_BYTES), |key| Some(key).filter(|key| key.len() <= KEY_BYTES));
            self.node = key.map_or(NOWHERE, |key| self.paths.key(parent, key));
            self.state = State::Colon;
            return;
        }
        if let Some(tag) = self.paths.tag(self.node) {
            let head = whole.map_or_else(|| self.text.head(), |text| &text[..text.len().min(TEXT_BYTES)]);
            on(tag, JsonValue::Text { head, bytes: self.text.bytes() });
        }
        self.ended();
    }

    /// Ends numbers of an array before this byte, which may begin another element.
    fn numbers_ended(&mut self, byte: u8, on: &mut impl FnMut(T, JsonValue<'_>)) {
        let (commas, is_after_comma) = (self.numbers.commas(), self.numbers.is_after_comma());
        // the word of `-Infinity`, which does not consist of digits
        let is_word = !is_after_comma && is_scalar(byte);
        let len = commas + u64::from(byte == b']');
        self.state = match byte {
            b']' if !is_after_comma => State::After,
            _ if is_word => State::InScalar,
            b']' => State::Broken,
            _ if is_after_comma => State::Value,
            _ => State::Broken,
        };
        self.text.begin(self.is_watched());
        if self.is_broken() {
            return;
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.len += commas; // its first element was counted when it began
        }
        if let Some(tag) = self.paths.tag(self.node).filter(|_| len > 0) {
            on(tag, JsonValue::Numbers { len });
        }
    }

    /// Ends a number or a word: `last` are its last bytes; earlier ones may have been kept.
    fn scalar(&mut self, last: Option<&[u8]>, on: &mut impl FnMut(T, JsonValue<'_>)) {
        self.ended();
        let Some(tag) = self.paths.tag(self.node) else { return };
        let token = match last {
            Some(all) if self.text.head().is_empty() => Some(all).filter(|all| all.len() <= NUMBER_BYTES),
            last => {
                self.text.append(last.unwrap_or_default());
                self.text.whole(NUMBER_BYTES)
            }
        };
        match token.map(word) {
            Some(Some(JsonValue::Number(n))) if !n.is_finite() => {}
            Some(Some(value)) => on(tag, value),
            Some(None) => self.state = State::Broken,
            None => {}
        }
    }
}

/// Whether a number or a word may contain this byte.
fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.' | b'#')
}

#[cfg(test)]
mod tests;
