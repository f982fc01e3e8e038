//! gRPC bodies and the expected events, written by hand. Any messages put into frames are read back unchanged.

use proptest::prelude::*;

use super::*;
use crate::wire::reader_properties;

fn seen(pieces: &[&[u8]]) -> Vec<String> {
    let (mut seen, mut reader) = (Vec::new(), FrameReader::new());
    for piece in pieces {
        reader.feed(piece, &mut |frame| {
            seen.push(match frame {
                Frame::Begin { length } => format!("begin {length}"),
                Frame::Piece(bytes) => format!("piece {}", String::from_utf8_lossy(bytes)),
                Frame::End => "end".to_owned(),
                Frame::Compressed { length } => format!("compressed {length}"),
            });
        });
    }
    seen.push(format!("{} {}", reader.end(), reader.is_broken()));
    seen
}

#[test]
fn messages_come_as_they_pass() {
    let pieces: [&[u8]; 5] = [b"\0\0\0", b"\0\x05he", b"llo\0\0\0\0\0\x01\0", b"\0\0\x03abc\0\0\0", b"\x01\0"];
    let mut expected = ["begin 5", "piece he", "piece llo", "end", "begin 0", "end", "compressed 3"].map(str::to_owned).to_vec();
    expected.push("begin 256".to_owned());
    expected.push("false false".to_owned());
    assert_eq!(seen(&pieces), expected);
    assert_eq!(seen(&[b"\x01\0\0\0\0"]), ["compressed 0", "true false"]);
    assert_eq!(seen(&[]), ["true false"]);
}

#[test]
fn an_unknown_flag_ends_the_reading() {
    assert_eq!(seen(&[b"\0\0\0\0\x01a\x02\0\0\0\x01", b"a\0\0\0\0\0"]), ["begin 1", "piece a", "end", "false true"]);
}

proptest! {
    #[test]
    fn messages_come_out_as_they_went_in(
        messages in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..300)), 0..6),
    ) {
        let (mut body, mut expected) = (Vec::new(), Vec::new());
        for (is_compressed, message) in &messages {
            let length = message.len() as u32;
            body.push(u8::from(*is_compressed));
            body.extend(length.to_be_bytes());
            body.extend(message);
            if *is_compressed {
                expected.push(format!("Compressed {{ length: {length} }}"));
            } else {
                expected.push(format!("Begin {{ length: {length} }}"));
                expected.push(format!("end {message:?}"));
            }
        }
        expected.push("[] end true broken false".to_owned());
        prop_assert_eq!(reader_properties::grpc(&mut std::iter::once(&body[..])), expected);
        prop_assert!(reader_properties::same_in_pieces(&body, reader_properties::grpc));
    }

    #[test]
    fn any_bytes_read_the_same_in_pieces(flag in 0..3_u8, length in 0..9_u8, rest in proptest::collection::vec(0..3_u8, 0..99)) {
        let body = [&[flag, 0, 0, 0, length][..], &rest].concat();
        prop_assert!(reader_properties::same_in_pieces(&body, reader_properties::grpc));
    }
}
