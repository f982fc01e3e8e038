//! The table of gaps: every counter in it has a past, every cause a row in the document.

use super::table::{GAPS, TRACKED};
use super::*;
use lapwing_attribution::otlp::RefusalCause;
use lapwing_metrics::Counter;

#[test]
fn every_counter_of_the_table_has_a_past() {
    let of_rules = GAPS.iter().flat_map(|rule| rule.missing.iter().chain(rule.arrived));
    let of_exports = RefusalCause::ALL.map(RefusalCause::counter);
    for counter in of_rules.copied().chain(of_exports).chain([Counter::OtlpTaken]) {
        assert!(TRACKED.contains(&counter), "{counter:?}");
    }
}

#[test]
fn the_document_has_every_cause_in_its_order() {
    let document = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/DIAGNOSIS.md"));
    let mut rest = document;
    for cause in GapCause::ALL {
        let row = format!("| `{}` | {} |", cause.name(), cause.what());
        let (_, after) = rest.split_once(&row).unwrap_or_else(|| panic!("docs/DIAGNOSIS.md lacks or misplaces: {row}"));
        rest = after;
        assert_eq!(serde_json::json!(cause), cause.name());
    }
}
