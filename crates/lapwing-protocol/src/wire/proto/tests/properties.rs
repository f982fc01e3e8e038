//! Any message, cut anywhere, gives the content of its tree; any bytes cause no panic. The messages are written by another
//! encoder (prost).

use proptest::collection::vec;
use proptest::prelude::*;
use prost::encoding::{WireType, encode_key, encode_varint};

use super::super::*;
use crate::wire::reader_properties;

#[derive(Clone, Debug)]
enum Content {
    Varint(u64),
    Fixed32(u32),
    Fixed64(u64),
    Bytes(Vec<u8>),
    Varints(Vec<u64>),
    Fixed64s(Vec<u64>),
    Message(Vec<(u32, Content)>),
}

fn any_content() -> impl Strategy<Value = Content> {
    let number = || prop_oneof![0..300_u64, any::<u64>()];
    let leaf = prop_oneof![
        number().prop_map(Content::Varint),
        any::<u32>().prop_map(Content::Fixed32),
        number().prop_map(Content::Fixed64),
        prop_oneof![vec(any::<u8>(), 0..9), vec(any::<u8>(), 120..140)].prop_map(Content::Bytes),
        vec(number(), 0..5).prop_map(Content::Varints),
        vec(number(), 0..5).prop_map(Content::Fixed64s),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| vec((1..9_u32, inner), 0..6).prop_map(Content::Message))
}

/// Writes a message and records what `reader_properties::proto` must return. Values whose type differs from the watched field's
/// are left out.
fn write(fields: &[(u32, Content)], way: &str, seen: &mut Vec<String>) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, content) in fields {
        let tag = if way.is_empty() { number.to_string() } else { format!("{way}.{number}") };
        let mut noted = Vec::new();
        let (wire_type, bytes) = match (content, tag.as_str()) {
            (Content::Varint(n), t) => {
                if t == "1" || t == "2" {
                    noted.push(format!("{t} Varint({n})"));
                }
                let mut bytes = Vec::new();
                encode_varint(*n, &mut bytes);
                (WireType::Varint, bytes)
            }
            (Content::Fixed32(n), t) => {
                noted.extend((t == "5.5.1").then(|| format!("{t} Fixed32({n})")));
                (WireType::ThirtyTwoBit, n.to_le_bytes().to_vec())
            }
            (Content::Fixed64(n), t) => {
                noted.extend(fixed64(t, *n));
                (WireType::SixtyFourBit, n.to_le_bytes().to_vec())
            }
            (Content::Varints(all), "1" | "2") => {
                noted.extend(all.iter().map(|n| format!("{tag} Varint({n})")));
                let mut bytes = Vec::new();
                all.iter().for_each(|n| encode_varint(*n, &mut bytes));
                (WireType::LengthDelimited, bytes)
            }
            (Content::Fixed64s(all), "4" | "7") => {
                noted.extend(all.iter().filter_map(|n| fixed64(&tag, *n)));
                (WireType::LengthDelimited, all.iter().flat_map(|n| n.to_le_bytes()).collect())
            }
            (Content::Message(fields), "5" | "5.5" | "6") => {
                let bytes = write(fields, &tag, &mut noted);
                noted.extend((tag != "6").then(|| format!("{tag} Message {{ bytes: {} }}", bytes.len())));
                (WireType::LengthDelimited, bytes)
            }
            (_, "1" | "2" | "4" | "5" | "5.5" | "5.5.1" | "6" | "7") => continue,
            (Content::Bytes(bytes), t) => {
                match t {
                    "3" | "5.1" => {
                        let head = &bytes[..bytes.len().min(TEXT_BYTES)];
                        noted.push(format!("{t} {:?}", ProtoValue::Text { head, bytes: bytes.len() as u64 }));
                    }
                    "6.2" => noted.push(format!("{t} Message {{ bytes: {} }}", bytes.len())),
                    _ => {}
                }
                (WireType::LengthDelimited, bytes.clone())
            }
            _ => continue,
        };
        encode_key(*number, wire_type, &mut out);
        if wire_type == WireType::LengthDelimited {
            encode_varint(bytes.len() as u64, &mut out);
        }
        out.extend(bytes);
        seen.extend(noted);
    }
    out
}

fn fixed64(tag: &str, n: u64) -> Option<String> {
    match tag {
        "4" => Some(format!("4 Double {n:x}")),
        "7" => Some(format!("7 Fixed64({n})")),
        _ => None,
    }
}

proptest! {
    #[test]
    fn a_message_reads_as_its_tree(fields in vec((1..9_u32, any_content()), 0..12)) {
        let mut seen = Vec::new();
        let message = write(&fields, "", &mut seen);
        seen.push("end true broken false".to_owned());
        prop_assert_eq!(reader_properties::proto(&mut std::iter::once(&message[..])), seen);
        prop_assert!(reader_properties::same_in_pieces(&message, reader_properties::proto));
    }

    #[test]
    fn a_message_that_is_damaged_reads_the_same_in_pieces(
        fields in vec((1..9_u32, any_content()), 0..12),
        damage in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut message = write(&fields, "", &mut Vec::new());
        for (at, byte) in damage.iter().filter(|_| !message.is_empty()).collect::<Vec<_>>() {
            let at = at.index(message.len());
            message[at] = *byte;
        }
        prop_assert!(reader_properties::same_in_pieces(&message, reader_properties::proto));
    }

    #[test]
    fn any_bytes_read_the_same_in_pieces(bytes in vec(prop_oneof![any::<u8>(), 0..60_u8], 0..200)) {
        prop_assert!(reader_properties::same_in_pieces(&bytes, reader_properties::proto));
    }
}
