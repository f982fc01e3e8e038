//! The table from a sample of `/stats`, to the character.

use super::*;

const SAMPLE: &str = r#"{
  "window": "10s", "covered_ns": 10000000000,
  "series": [
    {"route": "GET /v2", "model": null, "upstream": "u", "count": 1, "errors": 0, "total": {}, "stages": {}},
    {"route": "POST /v2/models/{model}/infer", "model": "digits", "upstream": "u",
     "count": 2013, "errors": 2, "outcomes": {"ok": 2011}, "coverage": 0.8312,
     "total": {"count": 2013, "mean_ns": 412000, "p50_ns": 310000, "p90_ns": 904000, "p99_ns": 1430000, "p999_ns": 1, "max_ns": 1},
     "stages": {
       "unattributed": {"count": 2013, "p50_ns": 41000, "p90_ns": 60200, "p99_ns": 99960, "share": 0.1688, "sources": {"observed": 2013}},
       "forward": {"count": 2000, "p50_ns": 101000, "p90_ns": 402000, "p99_ns": 640100, "share": 0.402, "sources": {"reported": 1980, "traced": 20}},
       "upstream": {"count": 11, "p50_ns": 201000, "p90_ns": 302000, "p99_ns": 302000, "share": 0.01, "sources": {"observed": 11}},
       "ingress": {"count": 2013, "p50_ns": 640, "p90_ns": 9996, "p99_ns": 12000, "share": 0.021, "sources": {"observed": 2013}},
       "hydration": {"count": 1004, "p50_ns": 3210, "p90_ns": 30000, "p99_ns": 2100000000, "share": 0.05, "sources": {"traced": 1004}},
       "queue": {"count": 0, "p50_ns": 0, "share": 0.0, "sources": {}}
     }}
  ],
  "profiler": {"dropped": 0}
}"#;

const TABLE: &str = "\
POST /v2/models/{model}/infer, model digits, last 10 s
201.3 requests/s, 2013 requests, 2 errors, coverage 83.1 %
(1 other series not shown)

stage                 p50       p90       p99    share   source
ingress            640 ns   10.0 µs   12.0 µs    2.1 %   observed
hydration         3.21 µs   30.0 µs    2.10 s    5.0 %   traced
preprocessing           -         -         -            -
forward            101 µs    402 µs    640 µs   40.2 %   reported 99 %
postprocessing          -         -         -            -
upstream           201 µs    302 µs    302 µs    1.0 %   observed
unattributed      41.0 µs   60.2 µs    100 µs   16.9 %   observed
total              310 µs    904 µs   1.43 ms
";

#[test]
fn the_busiest_series_is_drawn_with_the_main_stages_first() {
    let stats: Stats = serde_json::from_str(SAMPLE).unwrap();
    assert_eq!(render(&stats, 60.0, "last 10 s"), TABLE);
}

#[test]
fn nothing_yet_is_said_so() {
    assert_eq!(render(&Stats::default(), 1.0, "last 10 s"), "no requests yet\n");
    let empty: Stats = serde_json::from_str(r#"{"series": [{"route": "x", "count": 0}]}"#).unwrap();
    assert_eq!(render(&empty, 1.0, "last 10 s"), "no requests yet\n");
}
