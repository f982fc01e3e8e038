//! Decompression with a limit: a small message may unpack to any size.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};

/// Why a message cannot be decompressed.
#[derive(Debug, thiserror::Error)]
pub enum GunzipError {
    /// It is larger than the limit, in bytes.
    #[error("larger than {0} bytes")]
    TooLarge(usize),
    /// It is not in the named encoding, or it is truncated.
    #[error("{0}")]
    Corrupt(#[from] io::Error),
}

/// Decompresses gzip (`Content-Encoding: gzip`), of one member or several, to at most `limit` bytes. It never holds more than
/// that and one byte.
///
/// # Errors
///
/// [`GunzipError::TooLarge`] when there would be more, [`GunzipError::Corrupt`] when it is not gzip.
pub fn gunzip(packed: &[u8], limit: usize) -> Result<Bytes, GunzipError> {
    read(MultiGzDecoder::new(packed), limit)
}

/// Decompresses zlib (`Content-Encoding: deflate`), as [`gunzip`] does gzip.
///
/// # Errors
///
/// As for [`gunzip`].
pub fn inflate(packed: &[u8], limit: usize) -> Result<Bytes, GunzipError> {
    read(ZlibDecoder::new(packed), limit)
}

fn read(decoder: impl Read, limit: usize) -> Result<Bytes, GunzipError> {
    let mut unpacked = Vec::new();
    decoder.take((limit as u64).saturating_add(1)).read_to_end(&mut unpacked)?;
    if unpacked.len() > limit {
        return Err(GunzipError::TooLarge(limit));
    }
    Ok(unpacked.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_fits_is_decompressed_in_all_its_members() {
        assert_eq!(gunzip(&gzip(b"hot"), 3).unwrap(), "hot");
        assert_eq!(gunzip(&[gzip(b"hot"), gzip(b" and cold")].concat(), 12).unwrap(), "hot and cold");
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(b"hot").unwrap();
        assert_eq!(inflate(&zlib.finish().unwrap(), 3).unwrap(), "hot");
    }

    #[test]
    fn a_bomb_is_refused_at_the_limit() {
        let bomb = gzip(&vec![0; 64 << 20]);
        assert!(bomb.len() < 100 << 10, "{} bytes", bomb.len());
        assert!(matches!(gunzip(&bomb, 1 << 20), Err(GunzipError::TooLarge(1_048_576))));
        assert!(matches!(gunzip(&gzip(b"four"), 3), Err(GunzipError::TooLarge(3))));
    }

    #[test]
    fn what_is_broken_is_refused() {
        let whole = gzip(b"whole");
        for broken in [&b"not gzip"[..], &whole[..whole.len() - 1], &whole[..4], b""] {
            assert!(matches!(gunzip(broken, 100), Err(GunzipError::Corrupt(_))), "{broken:?}");
        }
        assert!(matches!(inflate(b"not zlib", 100), Err(GunzipError::Corrupt(_))));
    }
}
