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

#[test]
fn a_certificate_is_named_when_less_than_a_tenth_of_its_life_is_left() {
    let said = |from_s: u64, until_s: u64, now_s: u64| {
        let certificates = vec![CertificateValidity { section: "tls.listen".to_owned(), from_s, until_s }];
        let settings = TelemetrySettings { receives_spans: true, samples_traces: true, reads_bodies: true };
        let sources = TelemetrySources {
            counters: Arc::default(),
            settings: ConfigHandle::fixed(settings),
            certificates: ConfigHandle::fixed(certificates),
            refusals: Arc::default(),
        };
        let gaps = GapWatch::new(sources).of_certificates(now_s);
        gaps.first().map(|gap| gap.sentence.clone())
    };
    const DAY: u64 = 86_400;
    assert_eq!(said(0, 90 * DAY, 80 * DAY), None);
    let named = |when: &str| Some(format!("the certificate of tls.listen {when}: whoever checks it is lost then"));
    assert_eq!(said(0, 90 * DAY, 82 * DAY), named("expires in 8 days"));
    assert_eq!(said(0, 90 * DAY, 89 * DAY), named("expires in 24 hours"));
    assert_eq!(said(0, 90 * DAY, 91 * DAY), named("has expired"));
    // one that is renewed every half an hour
    assert_eq!(said(1000, 4600, 4000), None);
    assert_eq!(said(1000, 4600, 4300), named("expires in 5 minutes"));
}
