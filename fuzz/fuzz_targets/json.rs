//! JSON: one document, and documents one behind another.
#![no_main]

use lapwing::protocol::wire::check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert!(check::same_in_pieces(bytes, check::json));
    assert!(check::same_in_pieces(bytes, check::json_many));
});
