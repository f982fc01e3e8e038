//! What the admin server shows of recorded traffic, byte for byte: `/stats`, `/exchanges` and `/metrics` of ledgers and spans
//! that are fed under a fixed clock, compared with the files beside this one. A change of the code that should change no
//! figure must leave the files as they are; `LAPWING_GOLDEN=write cargo test --test golden` writes them anew.
//!
//! The ledgers are made in `traffic.rs`, the OTLP exports in `spans.rs`; the real receiver decodes the exports, the real
//! aggregator joins and merges, the real registry records, the real admin router answers.
//!
//! Three fields depend on the process that answers, and are replaced before the comparison: `covered_ns` of the window
//! `all`, the process's resident memory, and the version in `lapwing_build_info`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod recording;
mod spans;
mod text;
mod traffic;

use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use lapwing_admin::{Surfaces, router};
use tower::ServiceExt;

use self::recording::Recording;

/// The files, and what is asked for each.
const PAGES: &[(&str, &str)] = &[
    ("stats-10s.json", "/stats?window=10s"),
    ("stats-1m.json", "/stats?window=1m"),
    ("stats-5m.json", "/stats?window=5m"),
    ("stats-all.json", "/stats?window=all"),
    ("exchanges-recent.json", "/exchanges?order=recent&limit=60"),
    ("exchanges-slowest.json", "/exchanges?order=slowest&limit=30"),
    ("metrics.txt", "/metrics"),
];

async fn get(surfaces: &Surfaces, path: &str) -> String {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = router(surfaces.clone()).oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn recorded_traffic_gives_the_same_figures_as_ever() {
    let surfaces = Recording::play(traffic::all, spans::all).await;
    let mut differences = Vec::new();
    for (file, path) in PAGES {
        let got = text::stable(&get(&surfaces, path).await);
        differences.extend(text::compare(file, &got));
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
