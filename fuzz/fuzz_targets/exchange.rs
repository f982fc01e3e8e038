//! Whole exchanges of every protocol: the first three bytes choose the protocol, the pieces, and where the request ends.
#![no_main]

use std::sync::LazyLock;

use lapwing_protocol::{Protocols, exchange_properties};

static PROTOCOLS: LazyLock<Protocols> = LazyLock::new(Protocols::default);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assert!(exchange_properties::fuzz(&PROTOCOLS, bytes)));
