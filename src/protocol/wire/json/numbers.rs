//! Passing over numbers of an array that are only counted, token ids for one, at memory speed: blocks of 64 bytes in which
//! nothing else is than numbers, commas and white space. Whether the numbers are sound is not checked.
//!
//! Linear: a byte is tested once, and white space at the end of a run or a piece once more.

use super::is_space;
use super::skip::{WINDOW, commas};

/// A run of numbers that is being passed over.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    commas: u64,
    /// The last byte that is no white space was a comma.
    is_after_comma: bool,
}

/// How passing over went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// Every byte was taken.
    All,
    /// Behind this many bytes stands what is no number.
    Ended(usize),
}

impl Numbers {
    /// How many commas the run has.
    pub(super) fn commas(&self) -> u64 {
        self.commas
    }

    /// Whether another element must come.
    pub(super) fn is_after_comma(&self) -> bool {
        self.is_after_comma
    }

    /// Reads on, from the first byte of a number.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Run {
        let (windows, rest) = bytes.as_chunks::<WINDOW>();
        let whole =
            windows.iter().take_while(|window| is_numbers(window)).inspect(|window| self.commas += commas(window)).count();
        let at = whole * WINDOW;
        // the window in which the run ends, or what is too short for one
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

/// Whether a window holds numbers and nothing else. Written so that the compiler makes vector instructions of it.
fn is_numbers(window: &[u8; WINDOW]) -> bool {
    window.iter().fold(0, |other, byte| other | u8::from(!is_of_number(*byte))) == 0
}

/// Whether the byte stands in numbers or between them.
fn is_of_number(byte: u8) -> bool {
    // `+`, `,`, `-`, `.`, `/` and the digits stand side by side, in this order
    let is_figure = (byte.wrapping_sub(b'+') <= b'9' - b'+') & (byte != b'/');
    is_figure | (byte | 0x20 == b'e') | (byte == b' ') | (byte == b'\n') | (byte == b'\r') | (byte == b'\t')
}
