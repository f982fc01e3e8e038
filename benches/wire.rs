//! How fast the readers parse bodies, in pieces of 16 KiB as from a socket: a 950 KB OIP body of floats, a 220 KB chat prompt, plain and
//! full of escaped quotes, 224 KB of token ids, an OIP body of 1 KiB, a protobuf tensor, and a stream's chunks.
//! `cargo bench --profile dist --bench wire`.

use std::fmt::Write;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lapwing_protocol::wire::{
    ElementMode, Frame, FrameReader, JsonPaths, JsonReader, ProtoFields, ProtoReader, ProtoShape, SsePiece, SseReader,
};

const PIECE: usize = 16 << 10;

/// The paths that are read in an OIP request.
const OIP: [&str; 6] = ["id", "model_name", "inputs", "inputs[].shape[]", "inputs[].datatype", "inputs[].data"];
const CHAT: [&str; 5] = ["model", "stream", "max_tokens", "messages", "messages[].content"];
const IDS: [&str; 4] = ["model", "prompt", "prompt[]", "prompt.prompt_string"];
const CHUNK: [&str; 4] = ["model", "choices[].delta.content", "choices[].finish_reason", "usage.completion_tokens"];

const PLAIN: &str = r"The quick brown fox jumps over the lazy dog, again and again, as the prompt goes on.\n";
/// As in a prompt that holds source code, or JSON.
const QUOTES: &str = r#"{\"name\": \"quick\", \"animal\": \"fox\", \"jumps\": [\"over\", \"the\", \"lazy\", \"dog\"]},\n"#;

/// An OIP request with about `bytes` bytes of numbers, in rows of `row` numbers, or flat if that is 0.
fn oip(bytes: usize, row: usize) -> Vec<u8> {
    let (mut data, mut n) = (String::new(), 0_u32);
    while data.len() < bytes {
        let last = row > 0 && n as usize % row == row - 1;
        let first = row > 0 && (n as usize).is_multiple_of(row);
        let value = f64::from(n.wrapping_mul(2_654_435_761)) / f64::from(u32::MAX);
        let _ = write!(
            data,
            "{}{}{value:.8}{}",
            if n > 0 { "," } else { "" },
            if first { "[" } else { "" },
            if last { "]" } else { "" }
        );
        n += 1;
    }
    if row > 0 && !(n as usize).is_multiple_of(row) {
        data.push(']');
    }
    let head = format!(r#"{{"id":"42","inputs":[{{"name":"x","shape":[1,{n}],"datatype":"FP32","data":["#);
    format!("{head}{data}]}}],\"outputs\":[{{\"name\":\"y\"}}]}}").into_bytes()
}

/// A prompt of 220 KB, in which this line is repeated.
fn chat(line: &str) -> Vec<u8> {
    let prompt = line.repeat(220_000 / line.len());
    format!(r#"{{"model":"m","stream":true,"max_tokens":64,"messages":[{{"role":"user","content":"{prompt}"}}]}}"#).into_bytes()
}

/// A prompt of 32,000 token ids, which are 224 KB; in lists of 64 or flat.
fn ids(lists: bool) -> Vec<u8> {
    let ids: Vec<String> = (0..32_000_u32).map(|n| (100_000 + n.wrapping_mul(2_654_435_761) % 28_000).to_string()).collect();
    let prompt = if lists {
        format!("[{}]", ids.chunks(64).map(|list| format!("[{}]", list.join(","))).collect::<Vec<_>>().join(","))
    } else {
        format!("[{}]", ids.join(","))
    };
    format!(r#"{{"model":"m","prompt":{prompt},"max_tokens":64}}"#).into_bytes()
}

fn tensor() -> Vec<u8> {
    // model_name, inputs { name, datatype, shape }, raw_input_contents
    let mut message = b"\x0a\x01m\x2a\x10\x0a\x01x\x12\x04FP32\x1a\x05\x01\x80\x89\x7a\x01\x3a\x80\x80\x3a".to_vec();
    message.resize(message.len() + 950_272, 7);
    message
}

fn json(c: &mut Criterion) {
    let mut group = c.benchmark_group("json");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(20);
    for (name, patterns, body) in [
        ("oip_950k", &OIP[..], oip(950_000, 0)),
        ("oip_950k_rows_of_4", &OIP, oip(950_000, 4)),
        ("oip_1k", &OIP, oip(900, 0)),
        ("chat_220k", &CHAT, chat(PLAIN)),
        ("chat_220k_quotes", &CHAT, chat(QUOTES)),
        ("ids_224k", &IDS, ids(false)),
        ("ids_224k_lists_of_64", &IDS, ids(true)),
        ("nobody_looks_950k", &["model"], oip(950_000, 0)),
    ] {
        let how = |place: &str| if place == "prompt[]" { ElementMode::Counted } else { ElementMode::Each };
        let paths = JsonPaths::new(patterns.iter().map(|p| (*p, *p))).with_elements(how);
        let mut reader = JsonReader::new(Arc::new(paths));
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                reader.restart();
                for piece in black_box(&body).chunks(PIECE) {
                    reader.feed(piece, &mut |tag, value| {
                        black_box((tag, value));
                    });
                }
                assert!(reader.is_done());
            });
        });
    }
    group.finish();
}

fn grpc(c: &mut Criterion) {
    let message = tensor();
    let body = [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat();
    let patterns: [(&[u32], u8, ProtoShape); 4] = [
        (&[1], 0, ProtoShape::Text),
        (&[5, 3], 1, ProtoShape::PackedVarints),
        (&[5], 2, ProtoShape::Message),
        (&[7], 3, ProtoShape::Text),
    ];
    let mut reader = ProtoReader::new(Arc::new(ProtoFields::new(patterns)));
    let mut group = c.benchmark_group("grpc");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(20);
    group.throughput(Throughput::Bytes(body.len() as u64));
    group.bench_function("tensor_950k", |b| {
        b.iter(|| {
            let mut frames = FrameReader::new();
            for piece in black_box(&body).chunks(PIECE) {
                frames.feed(piece, &mut |frame| match frame {
                    Frame::Begin { .. } => reader.restart(),
                    Frame::Piece(bytes) => reader.feed(bytes, &mut |tag, value| {
                        black_box((tag, value));
                    }),
                    _ => {}
                });
            }
            assert!(reader.end());
        });
    });
    group.finish();
}

fn sse(c: &mut Criterion) {
    let chunk = concat!(
        r#"data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":1795246795,"model":"m","choices":"#,
        r#"[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}"#,
        "\n\n"
    );
    let mut reader = JsonReader::new(Arc::new(JsonPaths::new(CHUNK.map(|p| (p, p)))));
    let mut stream = SseReader::new();
    let mut group = c.benchmark_group("sse");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(20);
    group.throughput(Throughput::Bytes(chunk.len() as u64));
    group.bench_function("chat_chunk", |b| {
        b.iter(|| {
            let mut ends = 0;
            stream.feed(black_box(chunk.as_bytes()), &mut |piece| match piece {
                SsePiece::Data(bytes) => reader.feed(bytes, &mut |tag, value| {
                    black_box((tag, value));
                }),
                SsePiece::End => {
                    assert!(reader.is_done());
                    reader.restart();
                    ends += 1;
                }
                SsePiece::Name(_) | SsePiece::Error => {}
            });
            assert_eq!(ends, 1);
        });
    });
    group.finish();
}

criterion_group!(benches, json, grpc, sse);
criterion_main!(benches);
