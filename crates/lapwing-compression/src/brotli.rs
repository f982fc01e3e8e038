//! `br` (RFC 7932).

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

use super::MAX_WINDOW_BITS;
use super::step::{DecodeError, Step};

/// A decoder of Brotli.
pub(crate) struct Unbrotli {
    state: Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>,
    /// The size of the window; `None` before the first byte.
    window: Option<usize>,
    written: usize,
    is_done: bool,
}

impl Unbrotli {
    /// What a decoder holds in addition to its window: its state and tables.
    const HELD: usize = 64 << 10;

    pub(crate) fn new() -> Self {
        let state = BrotliState::new_strict(StandardAlloc::default(), StandardAlloc::default(), StandardAlloc::default());
        Self { state: Box::new(state), window: None, written: 0, is_done: false }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// The decoder doubles its window as it fills.
    pub(crate) fn held(&self) -> usize {
        Self::HELD + self.window.unwrap_or(0).min(self.written.saturating_mul(2))
    }

    pub(crate) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, DecodeError> {
        if let (None, Some(first)) = (self.window, input.first()) {
            let bits = window_bits(*first).ok_or(DecodeError::Corrupt)?;
            if bits > MAX_WINDOW_BITS {
                return Err(DecodeError::Memory);
            }
            self.window = Some(1 << bits);
        }
        let (mut left, mut read, mut room, mut written) = (input.len(), 0, output.len(), 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut read,
            input,
            &mut room,
            &mut written,
            output,
            &mut self.written,
            &mut self.state,
        );
        match result {
            BrotliResult::ResultFailure => return Err(DecodeError::Corrupt),
            BrotliResult::ResultSuccess => self.is_done = true,
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
        }
        Ok(Step { read, written })
    }
}

/// The logarithm of the window's size, by a stream's first byte (section 9.1); `None` for a large window, which is no part of the
/// standard.
fn window_bits(first: u8) -> Option<u32> {
    let (middle, last) = (u32::from(first >> 1 & 7), u32::from(first >> 4 & 7));
    match (first & 1, middle, last) {
        (0, ..) => Some(16),
        (_, 1.., _) => Some(17 + middle),
        (_, _, 0) => Some(17),
        (_, _, 1) => None,
        _ => Some(8 + last),
    }
}
