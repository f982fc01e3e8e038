//! Properties of every reader on any bytes, shared by the property tests and the fuzz targets: reading ends without a panic, and
//! pieces give the same result as the whole. They collect results, so they are for tests only.

use std::sync::Arc;

use super::{
    ElementMode, Frame, FrameReader, JsonItem, JsonPaths, JsonReader, JsonValue, ProtoFields, ProtoReader, ProtoShape,
    ProtoValue, SsePiece, SseReader,
};

/// Everything that a reader returned, as text, and its state at the end.
pub type Transcript = Vec<String>;

/// Reads the pieces with a fresh reader.
pub type ReadFn = fn(&mut dyn Iterator<Item = &[u8]>) -> Transcript;

/// Whether reading `bytes` whole, byte by byte, and in pieces of a length given by the first byte, gives the same result.
#[must_use]
pub fn same_in_pieces(bytes: &[u8], read: ReadFn) -> bool {
    let whole = read(&mut std::iter::once(bytes));
    let some = usize::from(bytes.first().copied().unwrap_or(0)) + 2;
    [1, some].into_iter().all(|length| read(&mut bytes.chunks(length)) == whole)
}

/// Reads a JSON document with values of every kind watched.
pub fn json(pieces: &mut dyn Iterator<Item = &[u8]>) -> Transcript {
    let mut seen = Transcript::new();
    let mut reader = JsonReader::new(Arc::new(json_places()));
    let mut on = |tag: &str, value: JsonValue<'_>| seen.push(format!("{tag} {value:?}"));
    for piece in pieces {
        reader.feed(piece, &mut on);
    }
    let is_done = reader.end(&mut on);
    seen.push(format!("done {is_done} broken {}", reader.is_broken()));
    seen
}

/// Reads several JSON documents in a row.
pub fn json_many(pieces: &mut dyn Iterator<Item = &[u8]>) -> Transcript {
    let mut seen = Transcript::new();
    let mut reader = JsonReader::new(Arc::new(json_places()));
    for piece in pieces {
        reader.feed_many(piece, &mut |item| match item {
            JsonItem::Value(tag, value) => seen.push(format!("{tag} {value:?}")),
            JsonItem::End => seen.push("end".to_owned()),
        });
    }
    seen.push(format!("broken {}", reader.is_broken()));
    seen
}

fn json_places() -> JsonPaths<&'static str> {
    let patterns = ["", "a", "b[]", "b[0].c", "c.*", "c.a.b", "d[].a[].c", "d[].a[]", "f[]", "[]", "[][1]", "*.model", "e[][].b"];
    let how = |tag| if tag == "d[].a[]" { ElementMode::First(2) } else { ElementMode::Counted };
    JsonPaths::new(patterns.map(|p| (p, p))).with_elements(how)
}

/// Reads a protobuf message with fields of every type watched.
pub fn proto(pieces: &mut dyn Iterator<Item = &[u8]>) -> Transcript {
    let mut seen = Transcript::new();
    let fields = ProtoFields::new([
        (&[1][..], "1", ProtoShape::Varint),
        (&[2], "2", ProtoShape::PackedVarints),
        (&[3], "3", ProtoShape::Text),
        (&[4], "4", ProtoShape::Double),
        (&[5], "5", ProtoShape::Message),
        (&[5, 1], "5.1", ProtoShape::Text),
        (&[5, 5, 1], "5.5.1", ProtoShape::Fixed32),
        (&[5, 5], "5.5", ProtoShape::Message),
        (&[6, 2], "6.2", ProtoShape::Message),
        (&[7], "7", ProtoShape::Fixed64),
    ]);
    let mut reader = ProtoReader::new(Arc::new(fields));
    for piece in pieces {
        reader.feed(piece, &mut |tag, value| {
            seen.push(match value {
                // compared by its bits, because NaN is not equal to itself
                ProtoValue::Double(n) => format!("{tag} Double {:x}", n.to_bits()),
                other => format!("{tag} {other:?}"),
            });
        });
    }
    seen.push(format!("end {} broken {}", reader.end(), reader.is_broken()));
    seen
}

/// Reads a gRPC body and joins the pieces of each message.
pub fn grpc(pieces: &mut dyn Iterator<Item = &[u8]>) -> Transcript {
    let mut seen = Transcript::new();
    let (mut reader, mut message) = (FrameReader::new(), Vec::new());
    for piece in pieces {
        reader.feed(piece, &mut |frame| match frame {
            Frame::Piece(bytes) => message.extend_from_slice(bytes),
            Frame::End => seen.push(format!("end {:?}", std::mem::take(&mut message))),
            other => seen.push(format!("{other:?}")),
        });
    }
    seen.push(format!("{message:?} end {} broken {}", reader.end(), reader.is_broken()));
    seen
}

/// Reads an event stream and joins the pieces of each event's data.
pub fn sse(pieces: &mut dyn Iterator<Item = &[u8]>) -> Transcript {
    let mut seen = Transcript::new();
    let (mut reader, mut data) = (SseReader::new(), Vec::new());
    for piece in pieces {
        reader.feed(piece, &mut |piece| match piece {
            SsePiece::Data(bytes) => data.extend_from_slice(bytes),
            SsePiece::Name(name) => seen.push(format!("name {name:?}")),
            SsePiece::Error => seen.push("error".to_owned()),
            SsePiece::End => seen.push(format!("end {:?}", std::mem::take(&mut data))),
        });
    }
    seen.push(format!("{data:?}"));
    seen
}
