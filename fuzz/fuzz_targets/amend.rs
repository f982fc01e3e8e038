//! Requests to change and responses to cut.
#![no_main]

use lapwing_protocol::amend::amend_properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assert!(amend_properties::holds(bytes)));
