//! How exporters pack a request: gzip, deflate or Zstandard, unpacked within a limit.
//!
//! OpenTelemetry's SDKs write gzip; Python's write deflate too, Rust's and the collector Zstandard. `deflate` is zlib by its
//! definition (RFC 9110, 8.4.1.2), and the stream without its frame by some senders' mistake. Both are read.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::DeflateDecoder;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use crate::net::{GunzipError, gunzip, inflate};

/// The names of all, for `Accept-Encoding` and `grpc-accept-encoding`.
pub(super) const ACCEPTED: &str = "gzip, deflate, zstd, identity";
/// The largest window of Zstandard, in bits: what RFC 9659 allows over HTTP.
const WINDOW_BITS: u32 = 23;
/// Bytes that are unpacked in one step.
const STEP: usize = 32 << 10;

/// A coding of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    None,
    Gzip,
    Deflate,
    Zstd,
}

impl Packing {
    /// The coding of this name; `None` for one that is not read.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        let name = name.trim_ascii();
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match () {
            () if is("") || is("identity") || is("none") => Some(Self::None),
            () if is("gzip") || is("x-gzip") => Some(Self::Gzip),
            () if is("deflate") || is("zlib") => Some(Self::Deflate),
            () if is("zstd") => Some(Self::Zstd),
            () => None,
        }
    }

    /// Unpacks `packed` to at most `limit` bytes.
    pub(super) fn unpack(self, packed: &Bytes, limit: usize) -> Result<Bytes, GunzipError> {
        match self {
            Self::None => Ok(packed.clone()),
            Self::Gzip => gunzip(packed, limit),
            Self::Deflate => match inflate(packed, limit) {
                Err(GunzipError::Corrupt(error)) if !is_zlib(packed) => inflate_bare(packed, limit).map_err(|_| error.into()),
                unpacked => unpacked,
            },
            Self::Zstd => unzstd(packed, limit),
        }
    }
}

/// Whether it begins as zlib does (RFC 1950).
fn is_zlib(packed: &[u8]) -> bool {
    matches!(packed, [first, second, ..] if first & 0x0f == 8 && (u16::from(*first) << 8 | u16::from(*second)).is_multiple_of(31))
}

fn inflate_bare(packed: &[u8], limit: usize) -> io::Result<Bytes> {
    let mut unpacked = Vec::new();
    DeflateDecoder::new(packed).take((limit as u64).saturating_add(1)).read_to_end(&mut unpacked)?;
    if unpacked.len() > limit { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(unpacked.into()) }
}

fn unzstd(packed: &[u8], limit: usize) -> Result<Bytes, GunzipError> {
    let corrupt = |code| io::Error::other(zstd_safe::get_error_name(code));
    let mut context = DCtx::try_create().ok_or(io::ErrorKind::OutOfMemory).map_err(io::Error::from)?;
    context.set_parameter(DParameter::WindowLogMax(WINDOW_BITS)).map_err(corrupt)?;
    let (mut input, mut unpacked, mut step) = (InBuffer::around(packed), Vec::new(), vec![0; STEP]);
    loop {
        let mut output = OutBuffer::around(&mut step[..]);
        let left = context.decompress_stream(&mut output, &mut input).map_err(corrupt)?;
        let written = output.pos();
        if written > limit - unpacked.len() {
            return Err(GunzipError::TooLarge(limit));
        }
        unpacked.extend_from_slice(&step[..written]);
        let is_read = input.pos() == packed.len();
        match left {
            // the end of a frame; another one may follow
            0 if is_read => return Ok(unpacked.into()),
            // nothing is left to be read, and nothing to be written: it is cut off
            _ if is_read && written < STEP => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn packed(name: &str, body: &[u8]) -> Bytes {
        let best = Compression::best();
        let written = match name {
            "gzip" => GzEncoder::new(Vec::new(), best).written(body),
            "deflate" => ZlibEncoder::new(Vec::new(), best).written(body),
            "bare" => DeflateEncoder::new(Vec::new(), best).written(body),
            _ => {
                let mut out = vec![0; zstd_safe::compress_bound(body.len())];
                let length = zstd_safe::compress(&mut out[..], body, 3).unwrap();
                out.truncate(length);
                out
            }
        };
        written.into()
    }

    trait Written {
        fn written(self, body: &[u8]) -> Vec<u8>;
    }

    macro_rules! written {
        ($($encoder:ident)*) => {$(
            impl Written for $encoder<Vec<u8>> {
                fn written(mut self, body: &[u8]) -> Vec<u8> {
                    self.write_all(body).unwrap();
                    self.finish().unwrap()
                }
            }
        )*};
    }
    written!(GzEncoder ZlibEncoder DeflateEncoder);

    #[test]
    fn what_sdks_write_is_unpacked_within_the_limit() {
        let body = b"hot and cold".repeat(20_000);
        for (name, written) in [
            ("gzip", "gzip"),
            ("X-Gzip", "gzip"),
            ("deflate", "deflate"),
            ("zlib", "deflate"),
            ("deflate", "bare"),
            ("zstd", "zstd"),
        ] {
            let (packing, packed) = (Packing::named(name.as_bytes()).unwrap(), packed(written, &body));
            assert!(packing.unpack(&packed, body.len()).unwrap() == body, "{name} {written}");
            assert!(packing.unpack(&packed, body.len() - 1).is_err(), "{name} {written}");
            let cut = packed.slice(..packed.len() / 2);
            assert!(packing.unpack(&cut, body.len()).is_err(), "{name} {written} cut");
            assert!(packing.unpack(&Bytes::from_static(b"no such thing"), 100).is_err(), "{name}");
        }
        let two = [packed("zstd", b"hot "), packed("zstd", b"and cold")].concat().into();
        assert_eq!(Packing::Zstd.unpack(&two, 12).unwrap(), "hot and cold");
    }

    #[test]
    fn a_bomb_is_refused_at_the_limit_in_every_coding() {
        for (packing, name) in [(Packing::Gzip, "gzip"), (Packing::Deflate, "deflate"), (Packing::Zstd, "zstd")] {
            let bomb = packed(name, &vec![0; 64 << 20]);
            assert!(bomb.len() < 100 << 10, "{name}: {} bytes", bomb.len());
            assert!(matches!(packing.unpack(&bomb, 1 << 20), Err(GunzipError::TooLarge(1_048_576))), "{name}");
        }
    }

    #[test]
    fn other_names_are_not_read() {
        for name in ["br", "snappy", "lz4", "gzip, gzip"] {
            assert_eq!(Packing::named(name.as_bytes()), None, "{name}");
        }
        assert_eq!([Packing::named(b""), Packing::named(b" Identity")], [Some(Packing::None); 2]);
    }
}
