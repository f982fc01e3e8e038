//! gRPC answers beyond the plain case: compressed messages, streams, and claims without data.

use std::io::Write as _;

use super::*;
use lapwing_protocol::OutputKind;

/// A field with a length.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let (low, high) = (value.len() as u8 & 0x7f | 0x80, (value.len() >> 7) as u8);
    [&[number << 3 | 2, low, high][..], value].concat()
}

/// `InferOutputTensor` `y: FP32 [n]`.
fn output(n: u8) -> Vec<u8> {
    field(5, &[field(1, b"y"), field(2, b"FP32"), field(3, &[n])].concat())
}

fn response(values: &[f32]) -> Vec<u8> {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    [field(1, b"m"), field(2, b"1"), output(values.len() as u8), field(6, &data)].concat()
}

fn frame(flag: u8, message: &[u8]) -> Vec<u8> {
    [&[flag][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

fn answer(body: Vec<u8>) -> TestAnswer {
    TestAnswer { grpc_status: Some(0), ..TestAnswer::new("application/grpc", body) }
}

#[test]
fn compressed_messages_and_streams_are_read() {
    let plain = answer(frame(0, &response(&[1.0, 2.0])));
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&response(&[1.0, 2.0])).unwrap();
    let packed = answer(frame(1, &encoder.finish().unwrap())).with("grpc-encoding", "gzip");
    assert_eq!(compare(OutputKind::Tensors, &plain, &packed).result, ComparisonResult::Same);
    // in a stream the answer is field 2 of each message; its tensors are paired in order
    let stream = |second: f32| {
        let messages = [response(&[1.0]), response(&[second])].map(|message| frame(0, &field(2, &message)));
        answer(messages.concat())
    };
    assert_eq!(compare(OutputKind::Tensors, &stream(2.0), &stream(2.0)).result, ComparisonResult::Same);
    let found = compare(OutputKind::Tensors, &stream(2.0), &stream(3.0));
    assert_eq!(differing(&found), [("y".into(), vec!["value"])]);
}

#[test]
fn claims_and_errors_in_messages_are_undecodable() {
    let plain = answer(frame(0, &response(&[1.0, 2.0])));
    let many = output(0).repeat(100_000);
    for (body, reason) in [
        (frame(0, &many), "more than 1024 outputs"),
        (frame(0, &output(2)), "shape [2] does not fit 0 elements"),
        (frame(0, &[response(&[1.0]), field(6, b"more")].concat()), "more raw contents than outputs"),
        (frame(0, &field(1, b"model failed")), "model failed"),
        (frame(0, &[0x2a, 0x7f]), "cut off"),
        (frame(0, &[0xff; 12]), "not protobuf"),
        (frame(2, b""), "not framed as gRPC"),
        (vec![0, 0, 0], "a gRPC frame is cut off"),
        (vec![0, 255, 255, 255, 255, 1], "a gRPC message is cut off"),
    ] {
        let found = compare(OutputKind::Tensors, &plain, &answer(body));
        assert_eq!(differing(&found), [("body".into(), vec!["undecodable"])]);
        let said = &found.fields[0].detail.as_ref().unwrap().candidate;
        assert!(said.contains(reason), "{said}: {reason}");
    }
    let unread = compare(OutputKind::Tensors, &plain, &answer(frame(1, b"x")));
    assert_eq!(unread.result, ComparisonResult::Incomparable(Incomparable::UnreadEncoding));
    // what is no answer of the protocol is compared as bytes
    let found = compare(OutputKind::Other, &plain, &answer(frame(0, &response(&[1.0, 3.0]))));
    assert_eq!(differing(&found), [("body".into(), vec!["value"])]);
}
