//! `gzip` (RFC 1952): members one after another, each with a header, deflated data, and a check.

use flate2::Crc;

use super::deflate::Inflate;
use super::step::{DecodeError, Step};

/// The flags of a header for what follows its first ten bytes.
const HAS_CRC: u8 = 2;
const HAS_EXTRA: u8 = 4;
const HAS_NAME: u8 = 8;
const HAS_COMMENT: u8 = 16;
/// How a header begins: the mark, and the method.
const MARK: [u8; 3] = [0x1f, 0x8b, 8];

/// The position in a member.
enum State {
    /// In the ten bytes that every header has, of which this many came.
    Head(u8),
    /// In the length of the extra field.
    ExtraLength {
        came: u8,
    },
    Extra {
        left: u16,
    },
    Name,
    Comment,
    HeadCheck {
        came: u8,
    },
    Body(Inflate),
    /// In the eight bytes of the sum and the length.
    Check {
        came: u8,
    },
    Done,
}

/// A decoder of gzip.
pub(crate) struct Gunzip {
    state: State,
    flags: u8,
    extra: u16,
    sum: Crc,
    check: [u8; 8],
    /// Whether a member has ended.
    has_member: bool,
}

impl Gunzip {
    pub(crate) fn new() -> Self {
        Self { state: State::Head(0), flags: 0, extra: 0, sum: Crc::new(), check: [0; 8], has_member: false }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether the body may end here: after a member.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_done() || self.has_member && matches!(self.state, State::Head(0))
    }

    pub(crate) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, DecodeError> {
        let mut read = 0;
        loop {
            if let State::Body(body) = &mut self.state {
                let step = body.step(&input[read..], output)?;
                self.sum.update(&output[..step.written]);
                read += step.read;
                if body.is_done() {
                    self.state = State::Check { came: 0 };
                    if step.written == 0 {
                        continue;
                    }
                }
                return Ok(Step { read, written: step.written });
            }
            let Some(byte) = input.get(read).filter(|_| !self.is_done()) else { return Ok(Step { read, written: 0 }) };
            read += 1;
            self.byte(*byte)?;
        }
    }

    /// Takes a byte of a header or a check.
    fn byte(&mut self, byte: u8) -> Result<(), DecodeError> {
        match &mut self.state {
            State::Head(came) => {
                if MARK.get(usize::from(*came)).is_some_and(|expected| *expected != byte) {
                    // what pads the last member is no member
                    let is_padding = self.has_member && *came == 0;
                    self.state = State::Done;
                    return if is_padding { Ok(()) } else { Err(DecodeError::Corrupt) };
                }
                if *came == 3 {
                    self.flags = byte;
                }
                *came += 1;
                if *came == 10 {
                    self.after(0);
                }
            }
            State::ExtraLength { came } => {
                self.extra |= u16::from(byte) << (8 * *came);
                *came += 1;
                if *came == 2 {
                    self.state = State::Extra { left: self.extra };
                    if self.extra == 0 {
                        self.after(HAS_EXTRA);
                    }
                }
            }
            State::Extra { left } => {
                *left -= 1;
                if *left == 0 {
                    self.after(HAS_EXTRA);
                }
            }
            State::Name if byte == 0 => self.after(HAS_NAME),
            State::Comment if byte == 0 => self.after(HAS_COMMENT),
            State::HeadCheck { came: 1 } => self.after(HAS_CRC),
            State::HeadCheck { came } => *came += 1,
            State::Check { came } => {
                self.check[usize::from(*came)] = byte;
                *came += 1;
                if *came == 8 {
                    return self.end_member();
                }
            }
            State::Name | State::Comment | State::Body(_) | State::Done => {}
        }
        Ok(())
    }

    /// Goes on to the part of the header that follows the part with this flag; 0 is the first one.
    fn after(&mut self, flag: u8) {
        let parts = [HAS_EXTRA, HAS_NAME, HAS_COMMENT, HAS_CRC];
        let from = parts.iter().position(|part| *part == flag).map_or(0, |at| at + 1);
        let next = parts[from..].iter().find(|part| self.flags & **part != 0);
        self.state = match next {
            Some(&HAS_EXTRA) => {
                self.extra = 0;
                State::ExtraLength { came: 0 }
            }
            Some(&HAS_NAME) => State::Name,
            Some(&HAS_COMMENT) => State::Comment,
            Some(_) => State::HeadCheck { came: 0 },
            None => State::Body(Inflate::raw()),
        };
    }

    fn end_member(&mut self) -> Result<(), DecodeError> {
        let [a, b, c, d, rest @ ..] = self.check;
        let is_right = u32::from_le_bytes([a, b, c, d]) == self.sum.sum() && u32::from_le_bytes(rest) == self.sum.amount();
        self.sum.reset();
        (self.state, self.has_member) = (State::Head(0), true);
        if is_right { Ok(()) } else { Err(DecodeError::Corrupt) }
    }
}
