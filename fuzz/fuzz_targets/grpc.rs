//! The frames of a gRPC body.
#![no_main]

use lapwing_protocol::wire::reader_properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assert!(reader_properties::same_in_pieces(bytes, reader_properties::grpc)));
