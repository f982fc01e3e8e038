//! Replays the corpora of the fuzz targets (fuzz/corpus): what a fuzzer once found worth keeping holds on the stable toolchain too.
//! Those of the engine's server are replayed in `lapwing-serving`.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::path::Path;

use lapwing_attribution::{Rules, otlp::otlp_properties};
use lapwing_protocol::amend::amend_properties;
use lapwing_protocol::wire::reader_properties::{self, same_in_pieces};
use lapwing_protocol::{Protocols, exchange_properties};

#[cfg(feature = "engine")]
#[path = "../fuzz/onnx_properties.rs"]
mod onnx_properties;

/// Fewer files are no corpus: the folder was lost.
const FEWEST: usize = 10;

/// Runs the law on each file of a target's corpus, and names those that break it.
fn replay(target: &str, holds: impl Fn(&[u8]) -> bool) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= FEWEST, "{}: {} files", folder.display(), files.len());
    let broken: Vec<_> = files.iter().filter(|file| !holds(&std::fs::read(file).unwrap())).collect();
    assert!(broken.is_empty(), "{broken:?}");
}

#[test]
fn json() {
    replay("json", |bytes| same_in_pieces(bytes, reader_properties::json) && same_in_pieces(bytes, reader_properties::json_many));
}

#[test]
fn proto() {
    replay("proto", |bytes| same_in_pieces(bytes, reader_properties::proto));
}

#[test]
fn grpc() {
    replay("grpc", |bytes| same_in_pieces(bytes, reader_properties::grpc));
}

#[test]
fn sse() {
    replay("sse", |bytes| same_in_pieces(bytes, reader_properties::sse));
}

#[test]
fn exchange() {
    let protocols = Protocols::default();
    replay("exchange", |bytes| exchange_properties::fuzz(&protocols, bytes));
}

#[test]
fn amend() {
    replay("amend", amend_properties::holds);
}

#[test]
fn otlp() {
    let rules = Rules::default();
    replay("otlp_proto", |bytes| otlp_properties::protobuf(bytes, &rules));
    replay("otlp_json", |bytes| otlp_properties::json(bytes, &rules));
}

#[cfg(feature = "engine")]
#[test]
fn onnx() {
    replay("onnx", onnx_properties::holds);
}
