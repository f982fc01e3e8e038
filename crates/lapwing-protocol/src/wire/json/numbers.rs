//! Skips numbers of an array that are only counted, such as token ids, at memory speed: in blocks of 64 bytes that contain only
//! numbers, commas and white space. The numbers are not validated.
//!
//! Linear: a byte is tested once, and white space at the end of a run or a piece once more.

use super::vectors::{WINDOW, commas, is_space, vectorised};

/// A run of numbers that is being skipped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    commas: u64,
    /// Whether the last byte that is not white space was a comma.
    is_after_comma: bool,
}

/// The result of skipping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// Every byte was consumed.
    All,
    /// After this many bytes something other than a number follows.
    Ended(usize),
}

impl Numbers {
    /// The number of commas in the run.
    pub(crate) fn commas(&self) -> u64 {
        self.commas
    }

    /// Whether another element must follow.
    pub(crate) fn is_after_comma(&self) -> bool {
        self.is_after_comma
    }

    /// Continues, from the first byte of a number.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Run {
        vectorised(
            bytes.len(),
            #[inline(always)]
            || self.read_windows(bytes),
        )
    }

    #[inline(always)]
    fn read_windows(&mut self, bytes: &[u8]) -> Run {
        let (windows, rest) = bytes.as_chunks::<WINDOW>();
        let whole =
            windows.iter().take_while(|window| is_numbers(window)).inspect(|window| self.commas += commas(window)).count();
        let at = whole * WINDOW;
        // the window in which the run ends, or a rest too short for a window
        let last = windows.get(whole).map_or(rest, |window| window);
        let end = last.iter().position(|byte| !is_of_number(*byte));
        let taken = &last[..end.unwrap_or(last.len())];
        self.commas += taken.iter().filter(|byte| **byte == b',').count() as u64;
        let taken = &bytes[..at + taken.len()];
        if let Some(byte) = taken.iter().rfind(|byte| !is_space(**byte)) {
            self.is_after_comma = *byte == b',';
        }
        end.map_or(Run::All, |_| Run::Ended(taken.len()))
    }
}

/// Whether a window contains only numbers. Written so that the compiler generates vector instructions.
#[inline(always)]
fn is_numbers(window: &[u8; WINDOW]) -> bool {
    window.iter().fold(0, |other, byte| other | u8::from(!is_of_number(*byte))) == 0
}

/// Whether the byte may be part of numbers or between them.
#[inline(always)]
fn is_of_number(byte: u8) -> bool {
    // `+`, `,`, `-`, `.`, `/` and the digits are consecutive, in this order
    let is_figure = (byte.wrapping_sub(b'+') <= b'9' - b'+') & (byte != b'/');
    is_figure | (byte | 0x20 == b'e') | (byte == b' ') | (byte == b'\n') | (byte == b'\r') | (byte == b'\t')
}
