//! Protobuf messages and the expected values, written by hand, byte by byte.

mod properties;

use std::sync::Arc;

use super::*;

type Pattern = (&'static [u32], &'static str, ProtoShape);

/// Everything that comes out of a message; the same in one piece and byte by byte.
fn read(patterns: &[Pattern], message: &[u8]) -> Vec<String> {
    let fields = Arc::new(ProtoFields::new(patterns.iter().copied()));
    let run = |length: usize| {
        let (mut seen, mut reader) = (Vec::new(), ProtoReader::new(fields.clone()));
        for piece in message.chunks(length) {
            reader.feed(piece, &mut |tag, value| {
                seen.push(match value {
                    ProtoValue::Varint(n) => format!("{tag}={n}"),
                    ProtoValue::Fixed32(n) => format!("{tag}={n:#x}"),
                    ProtoValue::Fixed64(n) => format!("{tag}={n:#x}"),
                    ProtoValue::Double(n) => format!("{tag}={n}f"),
                    ProtoValue::Text { head, bytes } => format!("{tag}={:?}/{bytes}", String::from_utf8_lossy(head)),
                    ProtoValue::Message { bytes } => format!("{tag}={{{bytes}}}"),
                });
            });
        }
        match (reader.end(), reader.is_broken()) {
            (true, false) => {}
            (false, true) => seen.push("broken".to_owned()),
            (false, false) => seen.push("cut".to_owned()),
            (true, true) => panic!("complete and broken"),
        }
        seen
    };
    let whole = run(message.len().max(1));
    for length in 1..message.len().min(40) {
        assert_eq!(run(length), whole, "{message:x?} in pieces of {length}");
    }
    whole
}

#[test]
fn an_infer_request() {
    // model_name = "dig", id = "7", parameters { "x": { int64_param: 300 } },
    // inputs { name: "in", datatype: "FP32", shape: [2, 300] }, raw_input_contents: 4 bytes
    let message = [
        &b"\x0a\x03dig"[..],
        b"\x1a\x017",
        b"\x22\x08\x0a\x01x\x12\x03\x10\xac\x02",
        b"\x2a\x0d\x0a\x02in\x12\x04FP32\x1a\x01\x02",
        b"\x2a\x02\x1a\x00",
        // another shape, and a field 10 whose value is missing
        b"\x2a\x04\x18\xac\x02\x50",
        b"\x3a\x04\0\0\0\0",
    ];
    let patterns: [Pattern; 6] = [
        (&[1], "model", ProtoShape::Text),
        (&[4, 1], "key", ProtoShape::Text),
        (&[4, 2, 2], "int", ProtoShape::Varint),
        (&[5], "input", ProtoShape::Message),
        (&[5, 3], "shape", ProtoShape::PackedVarints),
        (&[7], "raw", ProtoShape::Text),
    ];
    let mut sound = message;
    sound[5] = b"\x2a\x05\x18\xac\x02\x50\x01";
    let expected = ["model=\"dig\"/3", "key=\"x\"/1", "int=300", "shape=2", "input={13}", "input={2}", "shape=300", "input={5}"];
    let seen = read(&patterns, &sound.concat());
    assert_eq!(seen[..8], expected);
    assert_eq!(seen[8..], ["raw=\"\\0\\0\\0\\0\"/4"]);
    // the value that is missing is not looked for beyond the end of the input
    let seen = read(&patterns, &message.concat());
    assert_eq!(seen[7..], ["broken"]);
}

#[test]
fn every_shape_packed_or_not() {
    let patterns: [Pattern; 5] = [
        (&[1], "v", ProtoShape::Varint),
        (&[2], "p", ProtoShape::PackedVarints),
        (&[3], "f", ProtoShape::Fixed32),
        (&[4], "x", ProtoShape::Fixed64),
        (&[5], "d", ProtoShape::Double),
    ];
    let message = [
        &b"\x08\x96\x01"[..],
        b"\x0a\x03\x01\xac\x02",
        b"\x10\x05\x12\x02\x06\x07",
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x1d\x01\x02\x03\x04\x1a\x08\x05\0\0\0\x06\0\0\0",
        b"\x21\x01\0\0\0\0\0\0\x80\x22\x08\x02\0\0\0\0\0\0\0",
        b"\x29\0\0\0\0\0\0\xf8\x3f\x2a\x08\0\0\0\0\0\0\0\xc0",
        b"\x12\x00",
    ];
    let expected = [
        "v=150",
        "v=1",
        "v=300",
        "p=5",
        "p=6",
        "p=7",
        "v=18446744073709551615",
        "f=0x4030201",
        "f=0x5",
        "f=0x6",
        "x=0x8000000000000001",
        "x=0x2",
        "d=1.5f",
        "d=-2f",
    ];
    assert_eq!(read(&patterns, &message.concat()), expected);
}

#[test]
fn another_wire_type_than_the_shapes_is_passed_over() {
    let patterns: [Pattern; 4] = [
        (&[1], "text", ProtoShape::Text),
        (&[2], "double", ProtoShape::Double),
        (&[3], "message", ProtoShape::Message),
        (&[4], "v", ProtoShape::Varint),
    ];
    let message = b"\x08\x01\x10\x01\x18\x01\x25\0\0\0\0\x20\x07";
    assert_eq!(read(&patterns, message), ["v=7"]);
}

#[test]
fn messages_end_together() {
    let patterns: [Pattern; 4] = [
        (&[1], "a", ProtoShape::Message),
        (&[1, 1], "b", ProtoShape::Message),
        (&[1, 1, 1], "c", ProtoShape::Message),
        (&[1, 1, 1, 2], "t", ProtoShape::Text),
    ];
    assert_eq!(read(&patterns, b"\x0a\x06\x0a\x04\x0a\x02\x12\x00"), ["t=\"\"/0", "c={2}", "b={4}", "a={6}"]);
    assert_eq!(read(&patterns, b"\x0a\x02\x0a\x00\x0a\x00"), ["b={0}", "a={2}", "a={0}"]);
}

#[test]
fn texts_keep_their_first_bytes() {
    let text = "0123456789".repeat(30);
    let message = [b"\x0a\xac\x02", text.as_bytes()].concat();
    assert_eq!(read(&[(&[1], "t", ProtoShape::Text)], &message), [format!("t={:?}/300", &text[..TEXT_BYTES])]);
}

#[test]
fn a_message_that_is_cut_or_broken_says_so() {
    let patterns: [Pattern; 3] =
        [(&[1], "a", ProtoShape::Varint), (&[2, 1], "b", ProtoShape::Text), (&[3], "c", ProtoShape::Fixed32)];
    for (message, end) in [
        (&b"\x08"[..], "cut"),
        (b"\x08\x80", "cut"),
        (b"\x12\x04\x0a\x02x", "cut"),
        (b"\x12\x04", "cut"),
        (b"\x32\x04xxx", "cut"),
        (b"\x1a\x04\0\0\0", "cut"),
        // no field 0, no groups, no type 7, no eleven bytes, no 65 bits
        (b"\x00\x01", "broken"),
        (b"\x0b\x01", "broken"),
        (b"\x0f\x01", "broken"),
        (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "broken"),
        (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "broken"),
        // longer than what it is in, and than anything may be
        (b"\x12\x03\x0a\x02xy", "broken"),
        (b"\x12\x02\x08\x80\x01", "broken"),
        (b"\x0a\x01\x80\x01", "broken"),
        (b"\x1a\x03\0\0\0\0", "broken"),
        (b"\x32\x80\x80\x80\x80\x08", "broken"),
        (b"\x32\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "broken"),
    ] {
        assert_eq!(read(&patterns, message), [end], "{message:x?}");
    }
}

#[test]
fn a_reader_starts_anew_after_anything() {
    let mut reader = ProtoReader::new(Arc::new(ProtoFields::new([(&[1, 1][..], (), ProtoShape::PackedVarints)])));
    for before in [&b"\x0a\x05\x0a\x03\x80"[..], b"\x00", b"\x0a\x05\x0a", b"\x18", b"\x19\0\0"] {
        reader.feed(before, &mut |(), value| panic!("{value:?}"));
        reader.restart();
        let mut seen = Vec::new();
        reader.feed(b"\x0a\x02\x08\x07", &mut |(), value| seen.push(format!("{value:?}")));
        assert!(reader.end());
        assert_eq!(seen, ["Varint(7)"]);
        reader.restart();
    }
}
