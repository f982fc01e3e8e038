//! Forms as clients write them, cut anywhere.

use proptest::prelude::*;

use super::*;

const KIND: &[u8] = b"multipart/form-data; boundary=\"x-Y'1\"";

fn form(file: &[u8]) -> Vec<u8> {
    let mut body = b"preamble\r\n--x-Y'1\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n".to_vec();
    body.extend(
        b"--x-Y'1\r\ncontent-disposition: form-data; filename=\"a;name=b.wav\"; name=\"file\"\r\nContent-Type: audio/wav\r\n\r\n",
    );
    body.extend(file);
    body.extend(b"\r\n--x-Y'1 \t\r\nContent-Disposition: form-data; name=stream\r\n\r\ntrue\r\n--x-Y'1\r\n");
    body.extend(b"Content-Disposition: form-data; name=\"empty\"\r\n\r\n\r\n--x-Y'1--\r\nepilogue name=\"late\"");
    body
}

fn fields(kind: &[u8], body: &[u8], length: usize) -> Vec<(String, String, u64)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut reader = FormReader::new(kind).unwrap();
    let mut seen = Vec::new();
    for piece in body.chunks(length) {
        reader.feed(piece, &mut |field| seen.push((text(field.name), text(field.head), field.bytes)));
    }
    seen
}

#[test]
fn fields_are_returned_and_files_passed_over() {
    let expected = [("model", "whisper-1", 9), ("stream", "true", 4), ("empty", "", 0)];
    let expected = expected.map(|(name, value, bytes)| (name.to_owned(), value.to_owned(), bytes));
    for file in [&b""[..], b"\r\n--x-Y", b"\r\r\n--x-Y'2\r\n\r\n--", b"--x-Y'1", b"\r\n-\r\n--x\r"] {
        for length in [1, 2, 7, usize::MAX] {
            assert_eq!(fields(KIND, &form(file), length), expected, "{file:?} by {length}");
        }
    }
    // the first delimiter may be the first line
    assert_eq!(fields(KIND, &form(b"")[10..], 3), expected);
}

#[test]
fn what_has_no_boundary_is_not_read() {
    let long = [&b"multipart/form-data; boundary="[..], &[b'x'; 71]].concat();
    for kind in [&b"multipart/form-data"[..], b"multipart/form-data; boundary=", b"multipart/form-data; boundary=\"\"", &long] {
        assert!(FormReader::new(kind).is_none(), "{kind:?}");
    }
}

#[test]
fn long_lines_names_and_values_are_bounded() {
    let mut body = b"--x-Y'1\r\nContent-Disposition: form-data; name=\"a\"\r\nX: ".to_vec();
    body.extend(vec![b'h'; 100_000]);
    body.extend(b"\r\n\r\n");
    body.extend(vec![b'v'; 100_000]);
    body.extend(b"\r\n--x-Y'1--");
    assert_eq!(fields(KIND, &body, 4096), [("a".to_owned(), "v".repeat(128), 100_000)]);
}

proptest! {
    #[test]
    fn any_bytes_are_read_alike_in_pieces(parts in proptest::collection::vec("(\r|\n|-|--x-Y'1|\r\n--x-Y'1|name=a|Content-Disposition:|;|\"|\\PC)", 0..60), length in 1..9_usize) {
        let body = parts.concat().into_bytes();
        prop_assert_eq!(fields(KIND, &body, length), fields(KIND, &body, usize::MAX));
    }

    #[test]
    fn a_file_of_any_bytes_hides_nothing(file in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'-'), any::<u8>()], 0..300), length in 1..50_usize) {
        prop_assert_eq!(fields(KIND, &form(&file), length).len(), 3);
    }
}
