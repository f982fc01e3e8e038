//! Where messages of HTTP/1.1 end (RFC 9112): heads that are gathered, bodies that pass.

use memchr::memmem;

use crate::unread::Unread;

/// The largest head that is read.
pub(crate) const MAX_HEAD: usize = 64 << 10;
/// The longest line between chunks.
const MAX_LINE: usize = 4 << 10;

/// Gathers a head, piece by piece.
#[derive(Debug, Default)]
pub(crate) struct HeadBuffer {
    held: Vec<u8>,
}

impl HeadBuffer {
    /// Takes bytes up to the end of the head; how many. Then [`Self::take`] has it.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<(usize, bool), Unread> {
        // line ends between messages are none of the next one
        let blank = if self.held.is_empty() { bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count() } else { 0 };
        let seen = self.held.len();
        self.held.extend_from_slice(&bytes[blank..]);
        let end = end_of_head(&self.held, seen.saturating_sub(3));
        if end.unwrap_or(self.held.len()) > MAX_HEAD {
            return Err(Unread::Malformed);
        }
        let Some(end) = end else { return Ok((bytes.len(), false)) };
        self.held.truncate(end);
        Ok((blank + end - seen, true))
    }

    /// The head, which leaves.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Whether nothing of a head has come.
    pub(crate) const fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

/// The end of the empty line that ends a head, looked for from `from` on.
fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = &bytes[from..];
    let strict = memmem::find(rest, b"\r\n\r\n").map(|at| at + 4);
    let bare = memmem::find(rest, b"\n\n").map(|at| at + 2);
    let end = strict.into_iter().chain(bare).min()?;
    Some(from + end)
}

/// A body on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassingMessageBody {
    /// So many bytes.
    Length(u64),
    Chunked(ChunkState),
    /// What comes until the connection ends.
    UntilEnd,
}

/// Where a chunked body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkState {
    /// In the line with the length of the next chunk, as far as it has come.
    Size { size: u64, line: usize, in_extension: bool },
    /// In a chunk, with its line end.
    Data { size: u64, left: u64 },
    /// In the trailers.
    Trailer { line: usize },
}

impl PassingMessageBody {
    /// That of a message with these fields.
    pub(crate) fn of(headers: &[httparse::Header<'_>], without: Self) -> Result<Self, Unread> {
        let named = |name: &'static str| headers.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        if let Some(coding) = named("transfer-encoding").next_back() {
            let is_chunked = coding.value.trim_ascii().to_ascii_lowercase().ends_with(b"chunked");
            return Ok(if is_chunked { Self::Chunked(ChunkState::START) } else { Self::UntilEnd });
        }
        match named("content-length").next() {
            None => Ok(without),
            Some(field) => {
                let digits = field.value.trim_ascii();
                let is_number = !digits.is_empty() && digits.len() < 19 && digits.iter().all(u8::is_ascii_digit);
                let number =
                    digits.iter().fold(0, |number: u64, digit| number.wrapping_mul(10) + u64::from(digit.wrapping_sub(b'0')));
                if is_number { Ok(Self::Length(number)) } else { Err(Unread::Malformed) }
            }
        }
    }

    /// Takes bytes of the body, and shows `on` its content; how many it took.
    pub(crate) fn read(&mut self, bytes: &[u8], mut on: impl FnMut(&[u8])) -> Result<usize, Unread> {
        match self {
            Self::UntilEnd => {
                on(bytes);
                Ok(bytes.len())
            }
            Self::Length(left) => {
                let taken = (*left).min(bytes.len() as u64);
                on(&bytes[..taken as usize]);
                *left -= taken;
                Ok(taken as usize)
            }
            Self::Chunked(state) => {
                let mut at = 0;
                while at < bytes.len() && !state.is_done() {
                    at += state.read(&bytes[at..], &mut on)?;
                }
                Ok(at)
            }
        }
    }

    /// Whether it is over.
    pub(crate) const fn is_done(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(state) => state.is_done(),
            Self::UntilEnd => false,
        }
    }
}

impl ChunkState {
    const START: Self = Self::Size { size: 0, line: 0, in_extension: false };
    /// After the empty line that ends the trailers.
    const DONE: Self = Self::Data { size: 0, left: 0 };

    const fn is_done(self) -> bool {
        matches!(self, Self::DONE)
    }

    fn read(&mut self, bytes: &[u8], on: &mut impl FnMut(&[u8])) -> Result<usize, Unread> {
        let Some(first) = bytes.first() else { return Ok(0) };
        match *self {
            Self::Data { size, left } => {
                let taken = left.min(bytes.len() as u64);
                // the content, without the line end
                let content = left.saturating_sub(2).min(taken) as usize;
                on(&bytes[..content]);
                *self = if taken == left { Self::START } else { Self::Data { size, left: left - taken } };
                Ok(taken as usize)
            }
            Self::Size { .. } | Self::Trailer { .. } if self.line() > MAX_LINE => Err(Unread::Malformed),
            Self::Size { size, line, in_extension } => {
                *self = match first {
                    b'\n' if line == 0 => return Err(Unread::Malformed),
                    b'\n' if size == 0 => Self::Trailer { line: 0 },
                    b'\n' => Self::Data { size, left: size + 2 },
                    b';' | b' ' | b'\t' | b'\r' => Self::Size { size, line: line + 1, in_extension: true },
                    _ if in_extension => Self::Size { size, line: line + 1, in_extension },
                    digit => {
                        let digit = char::from(*digit).to_digit(16).ok_or(Unread::Malformed)?;
                        let size =
                            size.checked_mul(16).filter(|size| *size < 1 << 60).ok_or(Unread::Malformed)? + u64::from(digit);
                        Self::Size { size, line: line + 1, in_extension }
                    }
                };
                Ok(1)
            }
            Self::Trailer { line } => {
                *self = match first {
                    b'\n' if line == 0 => Self::DONE,
                    b'\n' => Self::Trailer { line: 0 },
                    b'\r' => Self::Trailer { line },
                    _ => Self::Trailer { line: line + 1 },
                };
                Ok(1)
            }
        }
    }

    const fn line(self) -> usize {
        match self {
            Self::Size { line, .. } | Self::Trailer { line } => line,
            Self::Data { .. } => 0,
        }
    }
}
