//! Reads the inside of a JSON string, piece by piece: its first bytes unescaped, and its length on the wire. Bytes that are not
//! kept are not examined one by one; the next quote or backslash is searched for.

use memchr::memchr2;

use super::quote::closing_quote;
use super::vectors::vectorised;

/// How many bytes of a text are kept.
pub const TEXT_BYTES: usize = 128;

/// The position in an escape sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    No,
    Backslash,
    Hex { left: u8, code: u16 },
}

/// A text that is being read.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    head: [u8; TEXT_BYTES],
    len: usize,
    /// Whether there was more than `head` holds.
    is_cut: bool,
    /// Whether `head` is wanted.
    is_kept: bool,
    /// The length on the wire, between the quotes.
    bytes: u64,
    escape: Escape,
    /// The first half of a surrogate pair, until the second one arrives.
    high: Option<u16>,
}

impl Text {
    pub(crate) fn new() -> Self {
        let escape = Escape::No;
        Self { head: [0; TEXT_BYTES], len: 0, is_cut: false, is_kept: false, bytes: 0, escape, high: None }
    }

    /// Prepares for another text, whose head is kept or not.
    pub(crate) fn begin(&mut self, is_kept: bool) {
        (self.len, self.is_cut, self.is_kept, self.bytes) = (0, false, is_kept, 0);
        (self.escape, self.high) = (Escape::No, None);
    }

    /// The first bytes, unescaped; the last character may be cut.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head[..self.len]
    }

    /// All of it, if it was kept and is at most `limit` bytes long.
    pub(crate) fn whole(&self, limit: usize) -> Option<&[u8]> {
        (self.is_kept && !self.is_cut && self.len <= limit).then(|| self.head())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads up to the closing quote. Returns the number of bytes consumed, including the quote; `None` if the quote did not
    /// come. A text that is whole in `piece`, without escapes, is returned instead of kept: most are.
    pub(crate) fn read<'p>(&mut self, piece: &'p [u8]) -> Option<(usize, Option<&'p [u8]>)> {
        let mut at = 0;
        while let Some(rest) = piece.get(at..).filter(|rest| !rest.is_empty()) {
            if self.escape != Escape::No {
                at += usize::from(self.escaped(rest[0]));
                continue;
            }
            if !self.is_kept || self.is_cut {
                let mut is_escaped = false;
                let end = vectorised(
                    rest.len(),
                    #[inline(always)]
                    || closing_quote(rest, &mut is_escaped),
                );
                if is_escaped {
                    self.escape = Escape::Backslash;
                }
                let Some(read) = end else { break };
                return Some((self.closed(at + read), None));
            }
            let Some(n) = memchr2(b'"', b'\\', rest) else {
                self.append(rest);
                break;
            };
            if rest[n] == b'"' && self.bytes == 0 && at == 0 {
                self.bytes = n as u64;
                return Some((n + 1, Some(&rest[..n])));
            }
            self.append(&rest[..n]);
            at += n + 1;
            if rest[n] == b'"' {
                return Some((self.closed(at), None));
            }
            self.escape = Escape::Backslash;
        }
        self.bytes += piece.len() as u64;
        None
    }

    /// Ends at the quote, which is the last of this many bytes.
    fn closed(&mut self, read: usize) -> usize {
        self.lone_half();
        self.bytes += read as u64 - 1;
        read
    }

    /// Adds to the head as much as fits.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        if self.is_kept && !bytes.is_empty() {
            self.lone_half();
            self.push(bytes);
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let n = bytes.len().min(TEXT_BYTES - self.len);
        self.head[self.len..self.len + n].copy_from_slice(&bytes[..n]);
        self.len += n;
        self.is_cut |= n < bytes.len();
    }

    /// Half a surrogate pair without the other is not a character.
    fn lone_half(&mut self) {
        if self.high.take().is_some() {
            self.push_char(char::REPLACEMENT_CHARACTER);
        }
    }

    fn push_char(&mut self, c: char) {
        self.push(c.encode_utf8(&mut [0; 4]).as_bytes());
    }

    /// Handles a byte after a backslash. Returns whether it belonged to the escape; a quote may cut `\u` short.
    fn escaped(&mut self, byte: u8) -> bool {
        if let Escape::Hex { left, code } = self.escape {
            let Some(digit) = char::from(byte).to_digit(16) else {
                self.escape = Escape::No;
                return false;
            };
            let code = code << 4 | digit as u16;
            self.escape = if left > 1 { Escape::Hex { left: left - 1, code } } else { Escape::No };
            if left == 1 && self.is_kept {
                self.unit(code);
            }
            return true;
        }
        let plain = match byte {
            b'u' => {
                self.escape = Escape::Hex { left: 4, code: 0 };
                return true;
            }
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            other => other,
        };
        self.escape = Escape::No;
        self.append(&[plain]);
        true
    }

    /// Handles a UTF-16 code unit: a character, or half of one.
    fn unit(&mut self, unit: u16) {
        match (self.high, unit) {
            (Some(high), 0xdc00..=0xdfff) => {
                self.high = None;
                let code = 0x1_0000 + ((u32::from(high) & 0x3ff) << 10 | (u32::from(unit) & 0x3ff));
                self.push_char(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            (_, 0xd800..=0xdbff) => {
                self.lone_half();
                self.high = Some(unit);
            }
            _ => {
                self.lone_half();
                self.push_char(char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
    }
}
