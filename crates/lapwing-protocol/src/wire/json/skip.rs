//! Skips the rest of a JSON container that is not watched, at memory speed: blocks of 64 bytes are tested for a quote or a
//! bracket, and only blocks that contain one are examined. Counts the container's elements if asked to. The skipped text is not
//! validated, except that brackets close and strings end.
//!
//! Linear: a window of 64 bytes is tested at most once more than it is left behind. A string that ends within the window clears
//! its bits; one that ends beyond it moves the window there.

use super::quote::closing_quote;
use super::vectors::{WINDOW, commas, vectorised};

/// A container that is being skipped.
#[derive(Clone, Debug)]
pub(crate) struct Skip {
    /// How many containers are open, including this one.
    depth: usize,
    in_string: bool,
    /// The last byte was a backslash.
    is_escaped: bool,
    is_counting: bool,
    count: u64,
}

/// The result of skipping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skipped {
    /// The container closed with the last of this many bytes.
    Closed(usize),
    /// Every byte was consumed.
    All,
    /// Too many containers are open.
    TooDeep,
}

impl Skip {
    /// Starts after the opening bracket of a container of which `count` elements have begun; counts further ones only if asked
    /// to.
    pub(crate) fn new(is_counting: bool, count: u64) -> Self {
        Self { depth: 1, in_string: false, is_escaped: false, is_counting, count }
    }

    /// How many elements or keys the container has, if they were counted.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Continues; `room` more containers than one may be open.
    pub(crate) fn read(&mut self, bytes: &[u8], room: usize) -> Skipped {
        vectorised(
            bytes.len(),
            #[inline(always)]
            || self.read_windows(bytes, room),
        )
    }

    #[inline(always)]
    fn read_windows(&mut self, bytes: &[u8], room: usize) -> Skipped {
        let mut at = 0;
        if self.in_string {
            match self.string(bytes, 0) {
                Some(behind) => at = behind,
                None => return Skipped::All,
            }
        }
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let mut padded = [0; WINDOW];
            let window = rest.first_chunk::<WINDOW>().unwrap_or_else(|| {
                padded[..rest.len()].copy_from_slice(rest);
                &padded
            });
            if !has_marks(window) {
                if self.is_counting && self.depth == 1 {
                    self.count += commas(window);
                }
                at += WINDOW;
                continue;
            }
            match self.window(window, bytes, at, room) {
                Ok(next) => at = next,
                Err(end) => return end,
            }
        }
        Skipped::All
    }

    /// Examines each mark in a window that begins at `at`. Returns where to continue.
    #[inline(always)]
    fn window(&mut self, window: &[u8; WINDOW], bytes: &[u8], at: usize, room: usize) -> Result<usize, Skipped> {
        let mut marks = mask(window, |byte| u8::from(byte == b'"') | u8::from(byte | 0x26 == 0x7f));
        let commas = if self.is_counting { mask(window, |byte| u8::from(byte == b',')) } else { 0 };
        let mut from = 0;
        while marks != 0 {
            let place = marks.trailing_zeros() as usize;
            marks &= marks - 1;
            let byte = window[place] | 0x20;
            if !matches!(byte, b'"' | b'{' | b'}') {
                continue;
            }
            self.count_between(commas, from, place);
            from = place + 1;
            match byte {
                b'{' if self.depth > room => return Err(Skipped::TooDeep),
                b'{' => self.depth += 1,
                b'}' if self.depth == 1 => return Err(Skipped::Closed(at + from)),
                b'}' => self.depth -= 1,
                _ => {
                    let behind = self.string(bytes, at + from).ok_or(Skipped::All)?;
                    from = behind - at;
                    if from >= WINDOW {
                        return Ok(behind);
                    }
                    marks &= u64::MAX << from;
                }
            }
        }
        self.count_between(commas, from, WINDOW);
        Ok(at + WINDOW)
    }

    /// Counts the commas between two positions of a window, if they separate the container's own elements.
    fn count_between(&mut self, commas: u64, from: usize, to: usize) {
        if self.depth == 1 && from < to {
            let below = u64::MAX >> (WINDOW - to);
            self.count += u64::from((commas & below & (u64::MAX << from)).count_ones());
        }
    }

    /// Finds the quote that ends the string. Returns the position after it, or `None` if the bytes end first.
    #[inline(always)]
    fn string(&mut self, bytes: &[u8], from: usize) -> Option<usize> {
        let end = closing_quote(&bytes[from..], &mut self.is_escaped);
        self.in_string = end.is_none();
        end.map(|end| from + end)
    }
}

/// Whether a window contains a quote or a bracket. May be true for a letter, is never false for a mark. Written so that the
/// compiler generates vector instructions.
#[inline(always)]
fn has_marks(window: &[u8; WINDOW]) -> bool {
    // `[`, `]`, `{` and `}` are 0x7f with these bits set (so are a few letters that no number has)
    window.iter().fold(0, |hit, byte| hit | u8::from(*byte == b'"') | u8::from(byte | 0x26 == 0x7f)) != 0
}

/// One bit for each byte of a window for which `test` returns 1, in order.
#[inline(always)]
fn mask(window: &[u8; WINDOW], test: impl Fn(u8) -> u8) -> u64 {
    let mut hits = [0; WINDOW];
    for (hit, byte) in hits.iter_mut().zip(window) {
        *hit = test(*byte);
    }
    let mut mask = 0;
    for (i, word) in hits.as_chunks::<8>().0.iter().enumerate() {
        // the product moves the bit of byte i to bit 56 + i, and no two bits collide
        let bits = u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask |= bits << (8 * i);
    }
    mask
}
