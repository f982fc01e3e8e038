//! Event streams and the expected events, written by hand. Random streams are compared with a simple reader of the standard.

use proptest::prelude::*;

use super::*;
use crate::wire::reader_properties;

/// What comes out of a stream; the same in pieces of any length.
fn seen(stream: &str) -> Vec<String> {
    let whole = pieces(&mut std::iter::once(stream.as_bytes()));
    for length in 1..stream.len() {
        assert_eq!(pieces(&mut stream.as_bytes().chunks(length)), whole, "{stream:?} in pieces of {length}");
    }
    whole
}

fn pieces(pieces: &mut dyn Iterator<Item = &[u8]>) -> Vec<String> {
    let (mut seen, mut data, mut reader) = (Vec::new(), Vec::new(), SseReader::new());
    for piece in pieces {
        reader.feed(piece, &mut |piece| match piece {
            SsePiece::Error => seen.push("error".to_owned()),
            SsePiece::Name(name) => seen.push(format!("name {}", String::from_utf8_lossy(name))),
            SsePiece::Data(bytes) => {
                assert!(!bytes.is_empty());
                data.extend_from_slice(bytes);
            }
            SsePiece::End => seen.push(format!("data {}", String::from_utf8(std::mem::take(&mut data)).unwrap())),
        });
    }
    seen
}

#[test]
fn a_stream_of_a_chat() {
    let stream = "data: {\"a\":1}\n\ndata: {\"a\":2}\r\n\r\ndata: [DONE]\r\r";
    assert_eq!(seen(stream), ["data {\"a\":1}", "data {\"a\":2}", "data [DONE]"]);
}

#[test]
fn names_comments_ids_and_many_lines() {
    let stream = "\u{feff}: ping\n\nevent: response.output_text.delta\nid: 7\ndata: a\ndata:b\ndata\ndata:  c\nretry: 1\n\n";
    assert_eq!(seen(stream), ["name response.output_text.delta", "data a\nb\n\n c"]);
    // not fields: white space or a mark before the name, other names, another case
    assert_eq!(seen(" data: a\ndatas: b\ndat: c\nDATA: d\n\n"), Vec::<String>::new());
    assert_eq!(seen("\n\u{feff}data: a\n\n"), Vec::<String>::new());
}

#[test]
fn a_field_named_error_that_is_not_empty_is_one() {
    assert_eq!(seen("error: {\"code\":500}\n\ndata: a\n\n"), ["error", "data a"]);
    assert_eq!(seen("error\nerror:\nerror: \nerrors: x\n\n"), Vec::<String>::new());
    assert_eq!(seen("error:x\rerror:  \r\n"), ["error", "error"]);
}

#[test]
fn an_event_without_data_is_none_but_one_with_empty_data_is() {
    assert_eq!(seen("event: x\n\n\n\ndata\n\nevent\ndata:\n\n"), ["name x", "data ", "name ", "data "]);
}

#[test]
fn an_event_that_is_not_complete_has_no_end() {
    assert_eq!(seen("data: a\n\ndata: b\n"), ["data a"]);
}

#[test]
fn long_names_are_cut() {
    let stream = format!("event: {}\n", "n".repeat(100));
    assert_eq!(seen(&stream), [format!("name {}", "n".repeat(NAME_BYTES))]);
}

/// The same, from the whole stream, line by line.
fn oracle(stream: &str) -> Vec<String> {
    let stream = stream.strip_prefix('\u{feff}').unwrap_or(stream).replace("\r\n", "\n").replace('\r', "\n");
    let (mut seen, mut data) = (Vec::new(), Vec::new());
    let mut lines: Vec<_> = stream.split('\n').collect();
    // the last has no line end
    lines.pop();
    for line in lines {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            _ if line.is_empty() && data.is_empty() => {}
            _ if line.is_empty() => seen.push(format!("data {}", std::mem::take(&mut data).join("\n"))),
            "data" => data.push(value),
            "event" => {
                let kept = &value.as_bytes()[..value.len().min(NAME_BYTES)];
                seen.push(format!("name {}", String::from_utf8_lossy(kept)));
            }
            _ => {}
        }
    }
    seen
}

proptest! {
    #[test]
    fn a_stream_reads_as_the_standard_says(
        parts in proptest::collection::vec(
            prop_oneof![4 => Just("\n"), 2 => Just("\r\n"), 2 => Just("\r"), 4 => Just("data"), 2 => Just("event"), 4 => Just(":"),
                3 => Just(" "), 1 => Just("id"), 1 => Just("\u{feff}"), 2 => Just("x"), 1 => Just("é{\"a\":1}")],
            0..60,
        ),
    ) {
        let stream = parts.concat();
        prop_assert_eq!(pieces(&mut std::iter::once(stream.as_bytes())), oracle(&stream));
        prop_assert!(reader_properties::same_in_pieces(stream.as_bytes(), reader_properties::sse));
    }

    #[test]
    fn any_bytes_read_the_same_in_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(reader_properties::same_in_pieces(&bytes, reader_properties::sse));
    }
}
