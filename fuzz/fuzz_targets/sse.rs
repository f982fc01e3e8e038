//! An event stream.
#![no_main]

use lapwing::protocol::wire::check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assert!(check::same_in_pieces(bytes, check::sse)));
