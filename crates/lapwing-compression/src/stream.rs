//! Decodes a body that passes, piece by piece, within bounds of size and memory.
//!
//! The cost of a byte that comes is bounded by [`YIELD`] decoded bytes, plus [`FREE`] bytes once per body: for 1 MB that a
//! stranger sends, 33 MB at most are decoded and read.

use std::fmt;

use arrayvec::ArrayVec;

use super::coding::Codings;
use super::memory::{DecoderMemory, MemoryShare};
use super::stage::Stage;
use super::step::DecodeError;

/// How many decoded bytes each byte that came allows. JSON of numbers and text packs to a third to a twentieth.
const YIELD: u64 = 32;
/// How many decoded bytes every body is allowed, however short: short bodies of equal numbers compress best.
const FREE: u64 = 1 << 20;
/// How many bytes a decoder writes at once.
pub(crate) const ROOM: usize = 8 << 10;

/// A decoder of one body.
pub struct BodyDecoder {
    /// In the order in which the codings are decoded.
    stages: ArrayVec<Stage, 3>,
    came: u64,
    yielded: u64,
    share: MemoryShare,
}

impl fmt::Debug for BodyDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyDecoder").field("came", &self.came).field("yielded", &self.yielded).finish_non_exhaustive()
    }
}

impl BodyDecoder {
    /// A decoder for a body in these codings, which takes its memory from `memory`.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Memory`]: the decoders hold too much already.
    pub fn new(codings: &Codings, memory: &DecoderMemory) -> Result<Self, DecodeError> {
        let stages: Option<_> = codings.to_undo().map(Stage::new).collect();
        let mut decoder = Self { stages: stages.ok_or(DecodeError::Memory)?, came: 0, yielded: 0, share: memory.share() };
        decoder.hold()?;
        Ok(decoder)
    }

    /// Decodes the next piece, and calls `on` with each piece of the result. What came before a failure was passed on.
    ///
    /// # Errors
    ///
    /// [`DecodeError`]; nothing more can be decoded then.
    pub fn feed(&mut self, piece: &[u8], on: &mut dyn FnMut(&[u8])) -> Result<(), DecodeError> {
        self.came = self.came.saturating_add(piece.len() as u64);
        let mut left = (FREE + self.came.saturating_mul(YIELD)).saturating_sub(self.yielded);
        let before = left;
        let result = undo(&mut self.stages, piece, &mut left, on);
        self.yielded += before - left;
        result.and_then(|()| self.hold())
    }

    /// Whether the body may end here.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.stages.iter().all(Stage::is_whole)
    }

    fn hold(&mut self) -> Result<(), DecodeError> {
        let held = self.stages.iter().map(Stage::held).sum();
        if self.share.grow_to(held) { Ok(()) } else { Err(DecodeError::Memory) }
    }
}

/// Decodes the codings of `stages`, one after another. Each stage may write at most `left` bytes together with the others.
pub(crate) fn undo(stages: &mut [Stage], piece: &[u8], left: &mut u64, on: &mut dyn FnMut(&[u8])) -> Result<(), DecodeError> {
    let Some((stage, further)) = stages.split_first_mut() else {
        on(piece);
        return Ok(());
    };
    let (mut rest, mut room) = (piece, [0; ROOM]);
    // bytes after the end of the coded data are ignored
    while !stage.is_done() {
        let step = stage.step(rest, &mut room)?;
        rest = &rest[step.read..];
        *left = left.checked_sub(step.written as u64).ok_or(DecodeError::TooLarge)?;
        if step.written > 0 {
            undo(further, &room[..step.written], left, on)?;
        }
        if step.written < ROOM && rest.is_empty() {
            return Ok(());
        }
        if step.read == 0 && step.written == 0 && !stage.is_done() {
            return Err(DecodeError::Corrupt);
        }
    }
    Ok(())
}
