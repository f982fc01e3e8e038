//! An inference request by REST: two bytes of the JSON's length, little-endian (65535: there is no binary data), then the body.
#![no_main]

use lapwing_serving::request_properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assert!(request_properties::rest(bytes)));
