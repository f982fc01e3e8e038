//! Every coding, whole and in pieces; what is damaged, cut off, or made to fill memory.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, HeaderValue};
use proptest::prelude::*;

use super::ContentCoding as C;
use super::*;

/// `hot and cold`, by Google's encoder.
const BROTLI: &[u8] = b"\x8b\x05\x80hot and cold\x03";
/// Two events, each flushed, by Google's encoder.
const EVENTS_BROTLI: [&[u8]; 2] = [
    &[
        0x8b, 0x17, 0x00, 0x00, 0x04, 0xca, 0x6d, 0x7d, 0x25, 0xc9, 0x95, 0xf8, 0x21, 0x19, 0xba, 0x18, 0x06, 0x33, 0x08, 0x36,
        0xd7, 0xc6, 0xf2, 0x17, 0x81, 0x90, 0x2a, 0x34, 0x25, 0x3c, 0x5d, 0xa3, 0x30, 0xe9, 0xcf, 0x47, 0xab, 0x88, 0xf3, 0xd2,
        0x51, 0xd1, 0xbd, 0x95, 0x98, 0x97, 0xee, 0xdd, 0x66,
    ],
    &[
        0x88, 0x01, 0x00, 0x40, 0xa0, 0x19, 0xe7, 0x09, 0x75, 0xa9, 0x07, 0x1c, 0x0d, 0x06, 0x5f, 0xc6, 0x08, 0x14, 0x97, 0x98,
        0xf9, 0x77, 0x81, 0x22, 0x19,
    ],
];

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn zlib(body: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn deflate(body: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn zstd(body: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; zstd_safe::compress_bound(body.len())];
    let length = zstd_safe::compress(&mut packed[..], body, 3).unwrap();
    packed.truncate(length);
    packed
}

/// A gzip member with everything that a header may have.
fn gzip_with_all(body: &[u8]) -> Vec<u8> {
    let encoder = flate2::GzBuilder::new().extra("extra").filename("name").comment("comment");
    let mut encoder = encoder.write(Vec::new(), Compression::fast());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn codings(names: &str) -> Codings {
    Codings::named(names.as_bytes()).unwrap()
}

/// Decodes a body in pieces of `length`.
fn streamed(codings: &Codings, body: &[u8], length: usize) -> Result<Vec<u8>, DecodeError> {
    let mut decoder = BodyDecoder::new(codings, &DecoderMemory::new(64 << 20))?;
    let mut seen = Vec::new();
    for piece in body.chunks(length) {
        decoder.feed(piece, &mut |piece| seen.extend_from_slice(piece))?;
    }
    Ok(seen)
}

#[test]
fn heads_name_the_codings() {
    let of = |fields: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(CONTENT_ENCODING, HeaderValue::from_static(field));
        }
        Codings::of(&headers).map(|codings| codings.to_undo().collect::<Vec<_>>())
    };
    for (fields, expected) in [
        (&[][..], vec![]),
        (&["identity"], vec![]),
        (&[""], vec![]),
        (&["gzip"], vec![C::Gzip]),
        (&["X-GZip"], vec![C::Gzip]),
        (&[" deflate "], vec![C::Deflate]),
        (&["gzip, br"], vec![C::Brotli, C::Gzip]),
        (&["gzip", "identity", "zstd"], vec![C::Zstd, C::Gzip]),
    ] {
        assert_eq!(of(fields), Ok(expected), "{fields:?}");
    }
    for unknown in ["compress", "gzip, aws-chunked", "gzip, gzip, gzip, gzip", "gzip;q=1"] {
        assert!(of(&[unknown]).is_err(), "{unknown}");
    }
}

#[test]
fn every_coding_is_undone_whole_and_byte_by_byte() {
    let body = b"hot and cold";
    for (names, packed) in [
        ("gzip", gzip(body)),
        ("gzip", gzip_with_all(body)),
        ("gzip", [gzip(b"hot "), gzip_with_all(b"and "), gzip(b"cold")].concat()),
        ("gzip", [gzip(body), vec![0; 20]].concat()),
        ("x-gzip", gzip(body)),
        ("deflate", zlib(body)),
        ("deflate", deflate(body)),
        ("br", BROTLI.to_vec()),
        ("zstd", zstd(body)),
        ("zstd", [zstd(b"hot "), b"\x50\x2a\x4d\x18\x02\0\0\0xx".to_vec(), zstd(b"and cold")].concat()),
        ("deflate, gzip", gzip(&zlib(body))),
        ("br, deflate, zstd", zstd(&deflate(BROTLI))),
        ("identity", body.to_vec()),
    ] {
        let codings = codings(names);
        assert_eq!(unpack(&codings, &packed, body.len()).unwrap(), body[..], "{names}");
        assert_eq!(unpack(&codings, &packed, body.len() - 1), Err(UnpackError::TooLarge(body.len() - 1)), "{names}");
        for length in [1, 3, usize::MAX] {
            assert_eq!(streamed(&codings, &packed, length).unwrap(), body, "{names} by {length}");
        }
    }
}

#[test]
fn what_is_damaged_or_cut_off_is_refused() {
    for (names, whole) in
        [("gzip", gzip(b"whole")), ("deflate", zlib(b"whole")), ("br", BROTLI.to_vec()), ("zstd", zstd(b"whole"))]
    {
        let codings = codings(names);
        let mut broken = whole.clone();
        *broken.last_mut().unwrap() ^= 0x55;
        for bad in [&b"not packed"[..], &whole[..whole.len() - 1], &whole[..4], b""] {
            assert!(matches!(unpack(&codings, bad, 100), Err(UnpackError::Corrupt(_))), "{names} {bad:?}");
        }
        if matches!(names, "gzip" | "deflate") {
            assert!(matches!(unpack(&codings, &broken, 100), Err(UnpackError::Corrupt(_))), "{names}");
            assert_eq!(streamed(&codings, &broken, 2), Err(DecodeError::Corrupt), "{names}");
        }
    }
}

#[test]
fn what_a_server_flushes_is_there_at_once() {
    let events = [
        "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\" you\"}}]}\n\n",
    ];
    let by_gzip = |raw: bool| {
        let mut pieces = Vec::new();
        if raw {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
            for event in events {
                encoder.write_all(event.as_bytes()).unwrap();
                encoder.flush().unwrap();
                pieces.push(std::mem::take(encoder.get_mut()));
            }
        } else {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            for event in events {
                encoder.write_all(event.as_bytes()).unwrap();
                encoder.flush().unwrap();
                pieces.push(std::mem::take(encoder.get_mut()));
            }
        }
        pieces
    };
    let by_zstd = || {
        let mut encoder = zstd_safe::CCtx::create();
        let packed = events.map(|event| {
            let mut room = [0; 512];
            let mut to = zstd_safe::OutBuffer::around(&mut room[..]);
            encoder.compress_stream(&mut to, &mut zstd_safe::InBuffer::around(event.as_bytes())).unwrap();
            assert_eq!(encoder.flush_stream(&mut to).unwrap(), 0);
            to.as_slice().to_vec()
        });
        packed.to_vec()
    };
    let by_brotli = || EVENTS_BROTLI.map(<[u8]>::to_vec).to_vec();
    for (names, packed) in [("gzip", by_gzip(false)), ("deflate", by_gzip(true)), ("zstd", by_zstd()), ("br", by_brotli())] {
        let mut decoder = BodyDecoder::new(&codings(names), &DecoderMemory::new(64 << 20)).unwrap();
        for (piece, event) in packed.iter().zip(events) {
            let mut seen = Vec::new();
            decoder.feed(piece, &mut |piece| seen.extend_from_slice(piece)).unwrap();
            assert_eq!(String::from_utf8(seen).unwrap(), event, "{names}");
        }
    }
}

#[test]
fn a_bomb_is_refused_at_its_bound() {
    let bomb = vec![0; 48 << 20];
    for (names, packed) in
        [("gzip", gzip(&bomb)), ("deflate", deflate(&bomb)), ("zstd", zstd(&bomb)), ("deflate, gzip", gzip(&gzip(&bomb)))]
    {
        let codings = codings(if names == "deflate, gzip" { "gzip, gzip" } else { names });
        assert!(packed.len() < 256 << 10, "{names}: {} bytes", packed.len());
        assert_eq!(unpack(&codings, &packed, 1 << 20), Err(UnpackError::TooLarge(1 << 20)), "{names}");
        let mut decoder = BodyDecoder::new(&codings, &DecoderMemory::new(64 << 20)).unwrap();
        let mut seen = 0;
        let mut results = packed.chunks(1000).map(|piece| decoder.feed(piece, &mut |piece| seen += piece.len()));
        assert!(results.any(|result| result == Err(DecodeError::TooLarge)), "{names}");
        assert!(seen <= (1 << 20) + 32 * packed.len(), "{names}: {seen}");
    }
}

#[test]
fn memory_is_shared_and_given_back() {
    let memory = DecoderMemory::new(100 << 10);
    let first = BodyDecoder::new(&codings("gzip"), &memory).unwrap();
    let second = BodyDecoder::new(&codings("deflate"), &memory).unwrap();
    assert_eq!(BodyDecoder::new(&codings("gzip"), &memory).err(), Some(DecodeError::Memory));
    assert_eq!(memory.used(), 96 << 10);
    drop((first, second));
    assert_eq!(memory.used(), 0);
    // a window takes memory as it fills
    let memory = DecoderMemory::new(1 << 20);
    let mut decoder = BodyDecoder::new(&codings("zstd"), &memory).unwrap();
    let noise: Vec<u8> = (0..2_000_000_u32).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    let packed = zstd(&noise);
    let mut results = packed.chunks(64 << 10).map(|piece| decoder.feed(piece, &mut |_| ()));
    assert!(results.any(|result| result == Err(DecodeError::Memory)));
    drop(results);
    assert!(memory.used() <= 1 << 20);
    drop(decoder);
    assert_eq!(memory.used(), 0);
}

#[test]
fn a_window_above_eight_megabytes_is_refused() {
    // a frame's head: no flags, a window of 16 MiB; the same of Brotli
    let wide = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 14 << 3, 0x01, 0x00, 0x00];
    assert_eq!(streamed(&codings("zstd"), &wide, usize::MAX), Err(DecodeError::Memory));
    assert!(matches!(unpack(&codings("zstd"), &wide, 100), Err(UnpackError::Corrupt(_))));
    assert_eq!(streamed(&codings("br"), &[0x0f, 0x05, 0x80], usize::MAX), Err(DecodeError::Memory));
    assert_eq!(streamed(&codings("br"), &[0x11, 0x05, 0x80], usize::MAX), Err(DecodeError::Corrupt), "a large window");
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_alike_in_pieces(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), which in 0..5_usize, length in 1..9_usize, cut in any::<prop::sample::Index>(),
        spot in any::<prop::sample::Index>(), by in any::<u8>(),
    ) {
        let (names, mut packed) = match which {
            0 => ("gzip", gzip_with_all(&bytes)),
            1 => ("deflate", zlib(&bytes)),
            2 => ("deflate", deflate(&bytes)),
            3 => ("zstd", zstd(&bytes)),
            _ => ("br", bytes.clone()),
        };
        let codings = codings(names);
        if which < 4 {
            prop_assert_eq!(streamed(&codings, &packed, length), Ok(bytes.clone()));
        }
        if !packed.is_empty() {
            let at = spot.index(packed.len());
            packed[at] ^= by;
            packed.truncate(cut.index(packed.len() + 1));
        }
        // damaged: no panic, and if it fails it fails in pieces too
        let whole = streamed(&codings, &packed, usize::MAX);
        prop_assert_eq!(streamed(&codings, &packed, length), whole);
    }
}

#[test]
fn a_receiver_takes_the_codings_that_it_names() {
    let accepted = [C::Gzip, C::Zstd];
    let named = |name: &str| BodyCoding::named(name.as_bytes(), &accepted);
    assert_eq!([named("gzip"), named(" X-Gzip "), named("zstd")], [C::Gzip, C::Gzip, C::Zstd].map(|c| Some(c.into())));
    assert_eq!([named(""), named("Identity")], [Some(BodyCoding::default()); 2]);
    assert_eq!(["deflate", "br", "snappy", "gzip, gzip"].map(named), [None; 4]);
}

#[test]
fn one_coding_is_undone_within_its_limit_and_its_bound() {
    let body = vec![0; 1 << 20];
    for (coding, packed) in
        [(C::Gzip, gzip(&body)), (C::Deflate, zlib(&body)), (C::Deflate, deflate(&body)), (C::Zstd, zstd(&body))]
    {
        let (coding, packed) = (BodyCoding::from(coding), bytes::Bytes::from(packed));
        assert!(coding.max_unpacked(packed.len()) >= body.len() && !coding.is_plain());
        assert_eq!(coding.unpack(&packed, body.len()).map(|body| body.len()), Ok(1 << 20));
        assert_eq!(coding.unpack(&packed, body.len() - 1), Err(UnpackError::TooLarge(body.len() - 1)));
    }
    let plain = BodyCoding::default();
    assert_eq!((plain.max_unpacked(7), plain.is_plain()), (7, true));
    assert_eq!(plain.unpack(&bytes::Bytes::from_static(b"as it is"), 3).unwrap(), "as it is");
}

#[test]
fn the_start_of_a_body_is_what_came_before_its_end_or_its_fault() {
    let body: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let codings = Codings::from(C::Gzip);
    let packed = gzip(&body);
    for limit in [0, 1, 10_000, 65_536, body.len(), usize::MAX] {
        assert!(unpack_start(&codings, &packed, limit) == body[..limit.min(body.len())], "{limit}");
    }
    let cut = unpack_start(&codings, &packed[..packed.len() / 2], usize::MAX);
    assert!(cut.len() > 10_000 && body.starts_with(&cut), "{}", cut.len());
    assert!(unpack_start(&codings, b"no gzip", 100).is_empty());
    // the sum of its check is wrong
    let damaged = [&packed[..packed.len() - 8], &[0; 8]].concat();
    assert!(unpack_start(&codings, &damaged, usize::MAX) == body);
}
