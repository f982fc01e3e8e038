//! Properties of changed requests and cut responses on any bytes, shared by the replayed corpora and the fuzz target. They collect what
//! passed, so they are for tests only.

use super::{AmendOptions, UsageRemover, UsageStyle, UsageStyleDetector, amend_request, without_meta_info};

const ALL: AmendOptions = AmendOptions { include_usage: true, return_meta_info: true };

/// Whether a request, once changed, is not changed again, and a response loses nothing that the server was not asked for, however its
/// stream is split.
#[must_use]
pub fn holds(bytes: &[u8]) -> bool {
    let is_changed_once = amend_request(bytes, ALL).is_none_or(|edit| amend_request(&edit.apply(bytes), ALL).is_none());
    let _ = without_meta_info(bytes);
    let _ = UsageStyleDetector::default().push(bytes);
    is_changed_once
        && [1, 7, bytes.len().max(1)].into_iter().all(|length| {
            passed(bytes, length, UsageStyle::Unasked) == bytes && passed(bytes, length, UsageStyle::Plain).len() <= bytes.len()
        })
}

/// What reaches the client of `bytes` in pieces of `length`.
fn passed(bytes: &[u8], length: usize, style: UsageStyle) -> Vec<u8> {
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
