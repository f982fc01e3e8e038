//! Requests to change and responses to cut. A server that needs not be asked loses nothing, however its stream is split.
#![no_main]

use lapwing::protocol::amend::{UsageRemover, UsageStyle, UsageStyleDetector, AmendOptions, amend_request, without_meta_info};

fn pieces(bytes: &[u8], length: usize, style: UsageStyle) -> Vec<u8> {
    let (mut remover, mut passed, mut failed) = (UsageRemover::new(style), Vec::new(), false);
    for piece in bytes.chunks(length) {
        if failed {
            passed.extend_from_slice(piece);
            continue;
        }
        let (bytes, fault) = remover.push(piece);
        passed.extend_from_slice(&bytes);
        failed = fault.is_some();
    }
    passed.extend_from_slice(&remover.end());
    passed
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(edit) = amend_request(bytes, AmendOptions { include_usage: true, return_meta_info: true }) {
        assert!(amend_request(&edit.apply(bytes), AmendOptions { include_usage: true, return_meta_info: true }).is_none());
    }
    let _ = without_meta_info(bytes);
    let _ = UsageStyleDetector::default().push(bytes);
    for length in [1, 7, bytes.len().max(1)] {
        assert!(pieces(bytes, length, UsageStyle::Unasked) == bytes);
        assert!(pieces(bytes, length, UsageStyle::Plain).len() <= bytes.len());
    }
});
