//! Decodes a whole body, to at most a given size. All sizes are bytes.

use arrayvec::ArrayVec;
use bytes::Bytes;

use super::coding::{Codings, ContentCoding};
use super::stage::Stage;
use super::step::DecodeError;
use super::stream::{ROOM, undo};

/// How many bytes more than the body its coded forms may have, inside several codings.
const FRAMES: u64 = 4096;
/// How many bytes deflate makes of one at most.
const DEFLATE_YIELD: usize = 1032;

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

/// The coding of a body whose receiver decodes one at most; none for most bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyCoding(Option<ContentCoding>);

impl BodyCoding {
    /// The coding of this name, if it is one of `accepted`. An empty name and `identity` mean none.
    #[must_use]
    pub fn named(name: &[u8], accepted: &[ContentCoding]) -> Option<Self> {
        let name = name.trim_ascii();
        if name.is_empty() || name.eq_ignore_ascii_case(b"identity") {
            return Some(Self(None));
        }
        ContentCoding::named(name).filter(|coding| accepted.contains(coding)).map(Self::from)
    }

    /// Whether the body is as it is.
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.0.is_none()
    }

    /// The most bytes that `packed` ones can unpack to; [`usize::MAX`] where the coding has no bound.
    #[must_use]
    pub const fn max_unpacked(self, packed: usize) -> usize {
        match self.0 {
            None => packed,
            Some(ContentCoding::Gzip | ContentCoding::Deflate) => packed.saturating_mul(DEFLATE_YIELD),
            Some(ContentCoding::Brotli | ContentCoding::Zstd) => usize::MAX,
        }
    }

    /// Decodes it, to at most `limit` bytes; a plain body is returned as it is, whatever its size.
    ///
    /// # Errors
    ///
    /// As for [`unpack`].
    pub fn unpack(self, body: &Bytes, limit: usize) -> Result<Bytes, UnpackError> {
        self.0.map_or_else(|| Ok(body.clone()), |coding| unpack(&Codings::from(coding), body, limit))
    }
}

impl From<ContentCoding> for BodyCoding {
    fn from(coding: ContentCoding) -> Self {
        Self(Some(coding))
    }
}

/// Decodes the codings of a body, to at most `limit` bytes. It never holds more than that and a decoder's window.
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

/// The first `limit` bytes of what a body unpacks to; fewer, or none, if it is damaged or cut off there.
#[must_use]
pub fn unpack_start(codings: &Codings, body: &[u8], limit: usize) -> Vec<u8> {
    let stages: Option<ArrayVec<Stage, 3>> = codings.to_undo().map(Stage::new).collect();
    let Some(mut stages) = stages else { return Vec::new() };
    let mut start = Vec::new();
    // a step that goes beyond the limit is whole, or its bytes would be lost
    let mut left = (limit as u64).saturating_mul(stages.len() as u64).saturating_add(FRAMES + ROOM as u64);
    let _ends_anywhere = undo(&mut stages, body, &mut left, &mut |piece| {
        let room = limit.saturating_sub(start.len()).min(piece.len());
        start.extend_from_slice(&piece[..room]);
    });
    start
}
