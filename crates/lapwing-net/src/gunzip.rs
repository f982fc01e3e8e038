//! Decompression with a limit, for bodies whose coding is known: [`lapwing_compression`] by the names of its callers.

use bytes::Bytes;

use lapwing_compression::{Codings, ContentCoding, unpack};

pub use lapwing_compression::UnpackError as GunzipError;

/// Decompresses gzip (`Content-Encoding: gzip`), of one member or several, to at most `limit` bytes. It never holds more than
/// that and a window.
///
/// # Errors
///
/// [`GunzipError::TooLarge`] when there would be more, [`GunzipError::Corrupt`] when it is not gzip.
pub fn gunzip(packed: &[u8], limit: usize) -> Result<Bytes, GunzipError> {
    unpack(&Codings::from(ContentCoding::Gzip), packed, limit)
}

/// Decompresses `Content-Encoding: deflate`, with zlib's frame or without, as [`gunzip`] does gzip.
///
/// # Errors
///
/// As for [`gunzip`].
pub fn inflate(packed: &[u8], limit: usize) -> Result<Bytes, GunzipError> {
    unpack(&Codings::from(ContentCoding::Deflate), packed, limit)
}
