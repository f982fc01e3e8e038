//! How exporters pack a request: gzip, deflate or Zstandard, unpacked within a limit.
//!
//! OpenTelemetry's SDKs write gzip; Python's write deflate too, Rust's and the collector Zstandard.

use lapwing_compression::{BodyCoding, ContentCoding};

/// The names of all, for `Accept-Encoding` and `grpc-accept-encoding`.
pub(crate) const ACCEPTED: &str = "gzip, deflate, zstd, identity";

/// Those that are decoded. No exporter applies several.
const CODINGS: [ContentCoding; 3] = [ContentCoding::Gzip, ContentCoding::Deflate, ContentCoding::Zstd];

/// The coding of this name; `None` for one that is not read. Some exporters call a plain body `none`.
pub(crate) fn coding_named(name: &[u8]) -> Option<BodyCoding> {
    if name.trim_ascii().eq_ignore_ascii_case(b"none") { Some(BodyCoding::default()) } else { BodyCoding::named(name, &CODINGS) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bytes::Bytes;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use lapwing_compression::UnpackError;

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
        for (name, written) in
            [("gzip", "gzip"), ("X-Gzip", "gzip"), ("deflate", "deflate"), ("deflate", "bare"), ("zstd", "zstd")]
        {
            let (packing, packed) = (coding_named(name.as_bytes()).unwrap(), packed(written, &body));
            assert!(packing.unpack(&packed, body.len()).unwrap() == body, "{name} {written}");
            assert!(packing.unpack(&packed, body.len() - 1).is_err(), "{name} {written}");
            let cut = packed.slice(..packed.len() / 2);
            assert!(packing.unpack(&cut, body.len()).is_err(), "{name} {written} cut");
            assert!(packing.unpack(&Bytes::from_static(b"no such thing"), 100).is_err(), "{name}");
        }
        let two = [packed("zstd", b"hot "), packed("zstd", b"and cold")].concat().into();
        assert_eq!(BodyCoding::from(ContentCoding::Zstd).unpack(&two, 12).unwrap(), "hot and cold");
    }

    #[test]
    fn a_bomb_is_refused_at_the_limit_in_every_coding() {
        for (coding, name) in [(ContentCoding::Gzip, "gzip"), (ContentCoding::Deflate, "deflate"), (ContentCoding::Zstd, "zstd")]
        {
            let bomb = packed(name, &vec![0; 64 << 20]);
            assert!(bomb.len() < 100 << 10, "{name}: {} bytes", bomb.len());
            assert!(matches!(BodyCoding::from(coding).unpack(&bomb, 1 << 20), Err(UnpackError::TooLarge(1_048_576))), "{name}");
        }
    }

    #[test]
    fn other_names_are_not_read() {
        for name in ["br", "snappy", "lz4", "gzip, gzip"] {
            assert_eq!(coding_named(name.as_bytes()), None, "{name}");
        }
        assert_eq!([&b""[..], b" Identity", b"None"].map(coding_named), [Some(BodyCoding::default()); 3]);
    }
}
