//! Requests to change and responses to cut. A server that needs not be asked loses nothing, however its stream is split.
#![no_main]

use lapwing::protocol::amend::{Cutter, Habit, Learner, Options, ask, without_meta_info};

fn pieces(bytes: &[u8], length: usize, habit: Habit) -> Vec<u8> {
    let (mut cutter, mut passed, mut failed) = (Cutter::new(habit), Vec::new(), false);
    for piece in bytes.chunks(length) {
        if failed {
            passed.extend_from_slice(piece);
            continue;
        }
        let (bytes, fault) = cutter.push(piece);
        passed.extend_from_slice(&bytes);
        failed = fault.is_some();
    }
    passed.extend_from_slice(&cutter.end());
    passed
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(edit) = ask(bytes, Options { include_usage: true, return_meta_info: true }) {
        assert!(ask(&edit.apply(bytes), Options { include_usage: true, return_meta_info: true }).is_none());
    }
    let _ = without_meta_info(bytes);
    let _ = Learner::default().push(bytes);
    for length in [1, 7, bytes.len().max(1)] {
        assert!(pieces(bytes, length, Habit::Unasked) == bytes);
        assert!(pieces(bytes, length, Habit::Plain).len() <= bytes.len());
    }
});
