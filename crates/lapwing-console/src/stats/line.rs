//! A series in one line: rate, errors, percentiles, and the stages with the largest shares.

use super::answer::Series;
use crate::printable::printable;
use crate::units::{duration, percent};

/// How many stages a line names, the largest shares first.
const STAGES: usize = 4;

/// `200.2 requests/s, 1 error, p50 310 µs, p99 1.43 ms: forward 41.2 %, …`; `rate` is requests per second.
pub fn figures_line(series: &Series, rate: f64) -> String {
    let latency = if series.total.count == 0 {
        "none answered".to_owned()
    } else {
        format!("p50 {}, p99 {}", duration(series.total.p50_ns), duration(series.total.p99_ns))
    };
    let by_share = stages_by_share(series);
    let stage = |(name, share): &(&str, f64)| format!("{} {}", printable(name, 40), percent(*share));
    let stages: Vec<String> = by_share.iter().take(STAGES).map(stage).collect();
    let stages = if stages.is_empty() { "no stages yet".to_owned() } else { stages.join(", ") };
    let kinds: Vec<String> = series.failures().iter().map(|(name, count)| format!("{count} {}", printable(name, 40))).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    let failing = if series.is_failing() { "FAILING, " } else { "" };
    format!("{failing}{rate:.1} requests/s, {}{kinds}, {latency}: {stages}", errors(series.errors))
}

/// Stages with their shares, the largest first.
pub fn stages_by_share(series: &Series) -> Vec<(&str, f64)> {
    let mut shares: Vec<(&str, f64)> =
        series.stages.iter().filter_map(|(name, f)| Some((name.as_str(), f.share.filter(|s| *s > 0.0)?))).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

/// `no errors`, `1 error`, `2 errors`.
pub fn errors(count: u64) -> String {
    match count {
        0 => "no errors".to_owned(),
        1 => "1 error".to_owned(),
        _ => format!("{count} errors"),
    }
}
