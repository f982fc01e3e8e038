//! The kinds: each outcome has one, and the document has all of them.

use super::FailureKind;
use lapwing_ledger::{Ledger, Outcome, Stamp};

fn of(outcome: Outcome, status: u16) -> Option<FailureKind> {
    FailureKind::of(&Ledger { outcome, status, ..Ledger::open(Stamp::default(), 0) })
}

#[test]
fn every_outcome_but_ok_is_a_kind() {
    for outcome in Outcome::ALL {
        assert_eq!(of(outcome, 200).is_none(), outcome == Outcome::Ok, "{outcome:?}");
    }
    assert_eq!(
        [of(Outcome::ClientError, 404), of(Outcome::ClientError, 429)],
        [FailureKind::ClientErrors, FailureKind::UpstreamRefusing].map(Some)
    );
    assert_eq!(of(Outcome::Shed, 503), Some(FailureKind::Shedding));
}

#[test]
fn the_document_has_every_kind_with_its_limit() {
    let document = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/DIAGNOSIS.md"));
    for (place, kind) in FailureKind::ALL.into_iter().enumerate() {
        assert_eq!((kind as usize, serde_json::json!(kind)), (place, kind.name().into()));
        let limit = kind.limit().map_or("–".to_owned(), |limit| format!("{:.0} %", limit * 100.0));
        let row = format!("| `{}` | {limit} |", kind.name());
        assert!(document.contains(&row), "docs/DIAGNOSIS.md lacks: {row}");
        let words = kind.words();
        assert!(!words.fixes.is_empty() && !words.title.is_empty() && !words.became.is_empty());
    }
}
