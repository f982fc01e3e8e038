//! A `ModelInferRequest`.
#![no_main]

use lapwing_serving::request_properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assert!(request_properties::grpc(bytes)));
