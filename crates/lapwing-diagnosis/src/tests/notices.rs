//! What costs something on every request is named where it is, and only there.

use super::simulator::{Simulation, diagnose};
use crate::Status;
use lapwing_ledger::Annotation;

/// The names of the notices where so large a share of the requests has an annotation.
fn notices(annotation: Annotation, share: f64, request_bytes: u64) -> Vec<String> {
    let said = diagnose(&Simulation { habit: Some((annotation, share)), request_bytes, ..Simulation::healthy(1, 60.0) })
        .routes
        .remove(0);
    assert_eq!((said.status, said.verdicts.len()), (Status::Healthy, 0), "{}", said.summary);
    assert!(said.notices.iter().all(|notice| !notice.fixes.is_empty() && !notice.sentence.contains('{')), "{:?}", said.notices);
    said.notices.into_iter().map(|notice| notice.name).collect()
}

#[test]
fn a_habit_of_most_requests_is_named() {
    for (annotation, bytes, name) in [
        (Annotation::NewClientConnection, 2_000, "connection_per_request"),
        (Annotation::JsonTensors, 20_000, "json_tensors"),
        (Annotation::CompressedRequest, 2_000, "compressed_tensors"),
        // 2 MB at 200 MB/s are 10 ms
        (Annotation::ExpectContinue, 2_000_000, "expect_continue"),
    ] {
        assert_eq!(notices(annotation, 0.9, bytes), [name]);
        assert!(notices(annotation, 0.05, bytes).is_empty(), "{name}");
    }
}

#[test]
fn what_costs_nothing_is_not_named() {
    assert!(notices(Annotation::JsonTensors, 1.0, 2_000).is_empty(), "small tensors");
    assert!(notices(Annotation::ExpectContinue, 1.0, 2_000).is_empty(), "nobody waited");
    assert!(notices(Annotation::NewUpstreamConnection, 0.5, 2_000).is_empty(), "connecting took no time");
}
