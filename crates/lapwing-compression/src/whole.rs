//! Decodes a body that is there as a whole, to at most a given size.

use arrayvec::ArrayVec;
use bytes::Bytes;

use super::coding::Codings;
use super::stage::Stage;
use super::step::DecodeError;
use super::stream::undo;

/// How many bytes more than the body its coded forms may have, inside several codings.
const FRAMES: u64 = 4096;

/// Why a body cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// It is larger than the limit, in bytes.
    #[error("larger than {0} bytes")]
    TooLarge(usize),
    /// It is not in the coding that its head names, or it is cut off.
    #[error("{0}")]
    Corrupt(&'static str),
}

/// Undoes the codings of a body, to at most `limit` bytes. It never holds more than that and a decoder's window.
///
/// # Errors
///
/// [`UnpackError::TooLarge`] when there would be more, [`UnpackError::Corrupt`] when it is not in these codings.
pub fn unpack(codings: &Codings, body: &[u8], limit: usize) -> Result<Bytes, UnpackError> {
    let stages: Option<ArrayVec<Stage, 3>> = codings.to_undo().map(Stage::new).collect();
    let mut stages = stages.ok_or(UnpackError::Corrupt("there is no memory to decode it"))?;
    let mut unpacked = Vec::new();
    let mut is_larger = false;
    // inside several codings each may write this much
    let mut left = (limit as u64).saturating_mul(stages.len() as u64).saturating_add(FRAMES);
    let result = undo(&mut stages, body, &mut left, &mut |piece| {
        is_larger |= unpacked.len() + piece.len() > limit;
        if !is_larger {
            unpacked.extend_from_slice(piece);
        }
    });
    match result {
        Err(DecodeError::TooLarge) => Err(UnpackError::TooLarge(limit)),
        _ if is_larger => Err(UnpackError::TooLarge(limit)),
        Err(DecodeError::Memory) => Err(UnpackError::Corrupt("its window is larger than 8 MiB")),
        Err(DecodeError::Corrupt) => Err(UnpackError::Corrupt("it is damaged, or not in this coding")),
        Ok(()) if stages.iter().all(Stage::is_whole) => Ok(unpacked.into()),
        Ok(()) => Err(UnpackError::Corrupt("it is cut off")),
    }
}
