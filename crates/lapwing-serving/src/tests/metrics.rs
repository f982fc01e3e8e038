//! `/metrics`: the counts, and that the documentation has each family.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::against;
use super::fake::{Does, fake, placement};
use crate::{FAMILIES, Limits};
use lapwing_metrics::defs::MetricKind;
use lapwing_model::service::{CallError, FallbackCause};

const X: &str = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;

#[tokio::test]
async fn each_request_is_counted_once_by_how_it_ended() {
    let full = fake("full", "2", Does::Fails(CallError::Full { waiting: 3 }));
    *full.placement.lock() = Arc::new(placement("cpu", None, Some(FallbackCause::Node)));
    against(vec![fake("m", "1", Does::Add) as _, full], Limits::default(), async |client| {
        for _ in 0..4 {
            assert_eq!(client.infer("m", X).await.status, 200);
        }
        client.infer("m", "{").await;
        client.infer("full", X).await;
        client.infer("unknown", X).await;
        let got = client.get("/metrics").await;
        assert_eq!(got.header("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
        let text = std::str::from_utf8(&got.body).unwrap();
        for line in [
            r#"lapwing_engine_requests_total{model="m",version="1",executor="plan",outcome="ok"} 4"#,
            r#"lapwing_engine_requests_total{model="m",version="1",executor="plan",outcome="input"} 1"#,
            r#"lapwing_engine_requests_total{model="m",version="1",executor="plan",outcome="cancelled"} 0"#,
            r#"lapwing_engine_requests_total{model="full",version="2",executor="plan",outcome="full"} 1"#,
            r#"lapwing_engine_stage_duration_seconds_sum{model="m",stage="forward"} 0.03"#,
            r#"lapwing_engine_stage_duration_seconds_count{model="m",stage="postprocessing"} 4"#,
            r#"lapwing_engine_batch_calls_bucket{le="4.0",model="m"} 4"#,
            r#"lapwing_engine_batch_calls_bucket{le="2.0",model="m"} 0"#,
            r#"lapwing_engine_batch_tokens_sum{model="m"} 128.0"#,
            // a batch of four calls executed 32 tokens, of which 24 were useful, and each of the four was counted
            r#"lapwing_engine_tokens_total{model="m",kind="executed"} 32.0"#,
            r#"lapwing_engine_tokens_total{model="m",kind="useful"} 24.0"#,
            r#"lapwing_engine_requests_in_flight{model="m"} 0"#,
            r#"lapwing_engine_ready{model="full",version="2"} 1"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("unknown"), "clients must not make series");
        assert!(text.ends_with("# EOF\n"));
        for family in FAMILIES {
            assert!(
                text.contains(&format!("# HELP {} {}\n# TYPE {0} {}\n", family.name, family.help, family.kind.name())),
                "{}",
                family.name
            );
        }
    })
    .await;
}

#[test]
fn docs_have_a_row_for_each_family_and_no_other() {
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ENGINE.md")).unwrap();
    let written: BTreeSet<&str> = docs.lines().filter(|l| l.starts_with("| `lapwing_engine_")).collect();
    let row = |f: &lapwing_metrics::defs::MetricFamily| {
        let suffix = if f.kind == MetricKind::Counter { "_total" } else { "" };
        let labels = f.labels.iter().map(|l| format!("`{l}`")).collect::<Vec<_>>().join(", ");
        format!("| `{}{suffix}` | {} | {labels} | {} |", f.name, f.kind.name(), f.help)
    };
    let wanted: Vec<String> = FAMILIES.iter().map(row).collect();
    assert_eq!(written, wanted.iter().map(String::as_str).collect(), "wanted:\n{}", wanted.join("\n"));
}
