//! A request of each OTLP signal in JSON.
#![no_main]

use std::sync::LazyLock;

use lapwing_attribution::{Rules, otlp::otlp_properties};

static RULES: LazyLock<Rules> = LazyLock::new(Rules::default);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| assert!(otlp_properties::json(bytes, &RULES)));
