//! `zstd` (RFC 8878), with the window that RFC 9659 allows over HTTP. The decoder is the reference's, which yields each block as it
//! comes; those in Rust keep a whole window back, and the tokens of a stream would all have one time.

use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::MAX_WINDOW_BITS;
use super::step::{DecodeError, Step};

/// What the library returns for a frame whose window is too large: the negative of `ZSTD_error_frameParameter_windowTooLarge`.
const WINDOW_TOO_LARGE: usize = 16_usize.wrapping_neg();

/// A decoder of Zstandard.
pub(crate) struct Unzstd {
    context: DCtx<'static>,
    written: usize,
    /// Whether the last byte read was the last one of a frame.
    is_whole: bool,
}

impl Unzstd {
    /// What a decoder holds in addition to its window: its tables and two blocks.
    const HELD: usize = 384 << 10;

    /// `None` if there is no memory.
    pub(crate) fn new() -> Option<Self> {
        let mut context = DCtx::try_create()?;
        context.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_BITS)).ok()?;
        Some(Self { context, written: 0, is_whole: false })
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Its window is reserved at once, and takes memory as it fills.
    pub(crate) fn held(&self) -> usize {
        Self::HELD + self.written.min(1 << MAX_WINDOW_BITS)
    }

    pub(crate) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, DecodeError> {
        let mut from = InBuffer::around(input);
        let mut to = OutBuffer::around(output);
        let hint = self.context.decompress_stream(&mut to, &mut from).map_err(|code| match code {
            WINDOW_TOO_LARGE => DecodeError::Memory,
            _ => DecodeError::Corrupt,
        })?;
        let step = Step { read: from.pos(), written: to.pos() };
        self.written = self.written.saturating_add(step.written);
        if step.read > 0 || step.written > 0 {
            self.is_whole = hint == 0;
        }
        Ok(step)
    }
}
