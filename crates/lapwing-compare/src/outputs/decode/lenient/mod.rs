//! JSON as servers write it, into the nodes of a [`Document`]: what the standard allows, and what strict parsers refuse of it.
//!
//! - `NaN`, `Infinity`, `-Infinity` (Python's `json`, Triton, TF Serving), `nan`, `inf` (C and C++), `1.#INF` and `-nan(ind)` (MSVC), and
//!   `None`, `True`, `undefined`, in any case;
//! - a byte order mark, NUL bytes and record separators around a document, several documents in a row (they become one array), a comma
//!   before
//!   a closing bracket, texts in single quotes, numbers as `+1`, `.5`, `5.` and `007`;
//! - control characters and invalid UTF-8 in texts, lone halves of surrogate pairs, unknown escapes. Each stays different from every other:
//!   a byte or unit that is no character is U+FFFD and its digits in hexadecimal.
//!
//! A number beyond doubles (`1e400`) stays the text that it is, so that only the same digits are equal to it. One pass, no recursion; what
//! is open is bounded by [`MAX_DEPTH`].

use memchr::memchr2;
use smallvec::SmallVec;

use super::AnswerDecodeError;
use super::document::{Document, Node};

/// How many values may be nested.
const MAX_DEPTH: usize = 128;
/// The most bytes between the brackets of `nan(…)`.
const NAN_BYTES: usize = 40;

impl Document {
    /// Parses one document, or several in a row as one array.
    ///
    /// # Errors
    ///
    /// The text is not JSON as servers write it, or it is nested deeper than 128 values.
    pub fn parse(text: &[u8]) -> Result<Self, AnswerDecodeError> {
        let mut document = Self::default();
        document.append(text)?;
        Ok(document)
    }

    /// Parses a document and appends its nodes. What was appended before a fault stays.
    pub(crate) fn append(&mut self, text: &[u8]) -> Result<(), AnswerDecodeError> {
        if self.would_overflow(text.len()) {
            return Err(AnswerDecodeError::malformed("more than 4 GiB of JSON"));
        }
        append(self, text)
    }
}

/// Appends a document, or several in a row as one array. What was appended before a fault stays.
fn append(document: &mut Document, text: &[u8]) -> Result<(), AnswerDecodeError> {
    let from = document.len();
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut parser = Parser { text, at: 0, document };
    parser.value()?;
    let mut is_wrapped = false;
    while parser.has_more() {
        if !is_wrapped {
            parser.document.wrap(from);
            is_wrapped = true;
        }
        parser.value()?;
    }
    if is_wrapped {
        parser.document.close_array(from);
    }
    Ok(())
}

/// The number that a word or a text means where it is not finite: `NaN`, `-inf`, `Infinity` …; `None` for any other.
pub(crate) fn not_finite(word: &[u8]) -> Option<f64> {
    let (sign, rest) = match word {
        [b'-', rest @ ..] => (-1.0, rest),
        [b'+', rest @ ..] => (1.0, rest),
        rest => (1.0, rest),
    };
    let is = |name: &str| rest.eq_ignore_ascii_case(name.as_bytes());
    let is_nan = is("nan")
        || (rest.len() > 4 && rest[..4].eq_ignore_ascii_case(b"nan(") && rest.ends_with(b")"))
        || ["1.#IND", "1.#QNAN", "1.#SNAN", "1.#NAN"].into_iter().any(is);
    match is_nan {
        true => Some(f64::NAN),
        false if is("infinity") || is("inf") || is("1.#INF") => Some(sign * f64::INFINITY),
        false => None,
    }
}

struct Parser<'t, 'd> {
    text: &'t [u8],
    at: usize,
    document: &'d mut Document,
}

/// An open container.
#[derive(Clone, Copy)]
struct Open {
    at: usize,
    is_object: bool,
}

impl Parser<'_, '_> {
    /// Whether something but space follows.
    fn has_more(&mut self) -> bool {
        while self.text.get(self.at).is_some_and(|byte| is_space(*byte) || matches!(byte, 0 | 0x1e)) {
            self.at += 1;
        }
        self.at < self.text.len()
    }

    /// The next byte that is not space.
    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(|byte| is_space(*byte)) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn fault(&self, what: &str) -> AnswerDecodeError {
        AnswerDecodeError::malformed(format!("not JSON: {what} at byte {}", self.at))
    }

    /// Appends one value with all that is in it.
    fn value(&mut self) -> Result<(), AnswerDecodeError> {
        let mut open: SmallVec<[Open; 16]> = SmallVec::new();
        self.has_more();
        loop {
            match self.peek() {
                Some(byte @ (b'{' | b'[')) => {
                    if open.len() == MAX_DEPTH {
                        return Err(AnswerDecodeError::malformed(format!("JSON nested deeper than {MAX_DEPTH} values")));
                    }
                    self.at += 1;
                    let is_object = byte == b'{';
                    let at = if is_object { self.document.open_object() } else { self.document.open_array() };
                    open.push(Open { at, is_object });
                    if !self.closes(&mut open) {
                        self.key(&open)?;
                        continue;
                    }
                }
                Some(quote @ (b'"' | b'\'')) => self.quoted(quote)?,
                Some(_) => self.scalar()?,
                None => return Err(self.fault("the end of the text")),
            }
            // after a value: close what ends here
            loop {
                if open.is_empty() {
                    return Ok(());
                }
                if self.closes(&mut open) {
                    continue;
                }
                if self.peek() != Some(b',') {
                    return Err(self.fault("neither a comma nor the end of a container"));
                }
                self.at += 1;
                if !self.closes(&mut open) {
                    self.key(&open)?;
                    break;
                }
            }
        }
    }

    /// Closes the innermost container if it ends here.
    fn closes(&mut self, open: &mut SmallVec<[Open; 16]>) -> bool {
        let Some(Open { at, is_object }) = open.last().copied() else { return false };
        if self.peek() != Some(if is_object { b'}' } else { b']' }) {
            return false;
        }
        self.at += 1;
        open.pop();
        if is_object {
            self.document.close_object(at);
        } else {
            self.document.close_array(at);
        }
        true
    }

    /// Appends the key of the member that follows, if the innermost container is an object.
    fn key(&mut self, open: &[Open]) -> Result<(), AnswerDecodeError> {
        if !open.last().is_some_and(|open| open.is_object) {
            return Ok(());
        }
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.quoted(quote)?,
            _ => return Err(self.fault("a key that is no text")),
        }
        if self.peek() != Some(b':') {
            return Err(self.fault("a key without a colon"));
        }
        self.at += 1;
        Ok(())
    }

    /// Appends a text, from its opening quote on.
    fn quoted(&mut self, quote: u8) -> Result<(), AnswerDecodeError> {
        let (text, mut at) = (self.text, self.at + 1);
        let is_closed = self.document.push_text(|into| {
            loop {
                let rest = text.get(at..).unwrap_or_default();
                let Some(length) = memchr2(quote, b'\\', rest) else { return Err(()) };
                push_lossless(into, &rest[..length]);
                at += length + 1;
                if rest[length] == quote {
                    return Ok(());
                }
                at += escape(into, &text[at..]);
            }
        });
        if is_closed.is_err() {
            return Err(self.fault("a text that is cut off"));
        }
        self.at = at;
        Ok(())
    }

    /// Appends a number or a word.
    fn scalar(&mut self) -> Result<(), AnswerDecodeError> {
        let rest = &self.text[self.at..];
        let mut length = rest.iter().position(|byte| !is_scalar(*byte)).unwrap_or(rest.len());
        // `nan(ind)`
        if rest.get(length) == Some(&b'(') {
            length += rest[length..].iter().take(NAN_BYTES).position(|byte| *byte == b')').map_or(0, |end| end + 1);
        }
        let token = &rest[..length];
        let node = match number(token) {
            Some(number) => Some(number),
            None if token.is_empty() => None,
            None => word(token),
        };
        match node {
            Some(node) => self.document.push(node),
            // a number beyond doubles
            None if is_figure(token) && parsed(token).is_some() => {
                let kept = self.document.push_text(|into| -> Result<(), ()> {
                    push_lossless(into, token);
                    Ok(())
                });
                debug_assert!(kept.is_ok());
            }
            // without the word itself, because it may be anything and messages go to logs
            None => return Err(self.fault("neither a value nor a word of one")),
        }
        self.at += length;
        Ok(())
    }
}

/// A finite number; `None` if it is none.
fn number(token: &[u8]) -> Option<Node> {
    if !is_figure(token) {
        return None;
    }
    let text = std::str::from_utf8(token).ok()?;
    if let Ok(whole) = text.parse::<u64>() {
        return Some(Node::Unsigned(whole));
    }
    match text.parse::<i64>() {
        // −0 is a separate float
        Ok(whole) if whole != 0 => Some(Node::Signed(whole)),
        _ => parsed(token).filter(|number| number.is_finite()).map(Node::Float),
    }
}

/// A token of digits as a double, infinite if it is beyond them.
fn parsed(token: &[u8]) -> Option<f64> {
    std::str::from_utf8(token).ok()?.parse().ok()
}

/// Whether the token has the form of a number and not of a word such as `-inf`.
fn is_figure(token: &[u8]) -> bool {
    token.iter().find(|byte| !matches!(byte, b'-' | b'+' | b'.')).is_some_and(u8::is_ascii_digit)
}

fn word(token: &[u8]) -> Option<Node> {
    let is = |names: &[&str]| names.iter().any(|name| token.eq_ignore_ascii_case(name.as_bytes()));
    Some(match token {
        _ if is(&["null", "none", "undefined", "nil"]) => Node::Null,
        _ if is(&["true"]) => Node::Bool(true),
        _ if is(&["false"]) => Node::Bool(false),
        _ => Node::Float(not_finite(token)?),
    })
}

/// Appends bytes, of which those that are no characters become U+FFFD and their digits.
fn push_lossless(into: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        into.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| into.push_str(&format!("\u{fffd}{byte:02x}")));
    }
}

/// Appends the character of an escape; `rest` begins after its backslash. Returns how many bytes it has there.
fn escape(into: &mut String, rest: &[u8]) -> usize {
    let plain = match rest.first() {
        Some(b'n') => '\n',
        Some(b't') => '\t',
        Some(b'r') => '\r',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'u') => return unit_escape(into, rest),
        Some(byte @ (b'"' | b'\'' | b'\\' | b'/')) => char::from(*byte),
        // unknown: the backslash is one of the text
        _ => {
            into.push('\\');
            return 0;
        }
    };
    into.push(plain);
    1
}

/// `\uXXXX`, or two of them that are one character.
fn unit_escape(into: &mut String, rest: &[u8]) -> usize {
    let unit = |at: usize| u32::from_str_radix(std::str::from_utf8(rest.get(at..at + 4)?).ok()?, 16).ok();
    let Some(first) = unit(1) else {
        into.push('\\');
        return 0;
    };
    let second = (rest.get(5..7) == Some(b"\\u")).then(|| unit(7)).flatten();
    if let (0xd800..=0xdbff, Some(second @ 0xdc00..=0xdfff)) = (first, second) {
        let code = 0x1_0000 + ((first & 0x3ff) << 10 | (second & 0x3ff));
        into.extend(char::from_u32(code));
        return 11;
    }
    match char::from_u32(first) {
        Some(character) => into.push(character),
        None => into.push_str(&format!("\u{fffd}{first:04x}")),
    }
    5
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0x0b | 0x0c)
}

/// Whether a number or a word may contain this byte.
const fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.' | b'#' | b'_')
}

#[cfg(test)]
mod tests;
