//! The table of a log: each series, and under it each measure with its count, share, mean and percentiles.

use std::fmt::Write;

use hdrhistogram::Histogram;

use super::log::{HdrLog, Line, SeriesName};
use crate::app::units::{duration, percent};

/// Values are millionths of a ratio.
const DEBT: &str = "computational_debt";

/// A value of a measure with its unit.
pub(super) fn shown(measure: &str, value: f64) -> String {
    let name = measure.split(';').next().unwrap_or_default();
    if name == DEBT {
        return format!("{:.2}×", value / 1e6);
    }
    if !name.ends_with("_per_unit") {
        return duration(value);
    }
    // picoseconds per unit
    if value < 999.5 { format!("{value:.0} ps") } else { duration(value / 1e3) }
}

/// All time in a histogram of time.
pub(super) fn sum(histogram: &Histogram<u64>) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a share")]
    let count = histogram.len() as f64;
    histogram.mean() * count
}

/// The name of a series for people.
pub(super) fn named(series: &SeriesName) -> String {
    let SeriesName { route, model, upstream } = series;
    if model.is_empty() { format!("{route} ({upstream})") } else { format!("{route}, model {model} ({upstream})") }
}

/// The measure for people: `class;from=4;unit=row` is `class from 4, unit row`.
pub(super) fn worded(measure: &str) -> String {
    let (name, rest) = measure.split_once(';').unwrap_or((measure, ""));
    let rest = rest.split(';').filter(|part| !part.is_empty()).map(|part| part.replacen('=', " ", 1));
    let rest: Vec<_> = rest.collect();
    if rest.is_empty() { name.to_owned() } else { format!("{name}, {}", rest.join(", ")) }
}

/// The table.
pub(super) fn table(log: &HdrLog) -> String {
    let mut out = String::new();
    for (series, lines) in log.series() {
        let total = lines.iter().find(|line| line.measure == "total").map(|line| sum(&line.histogram));
        let _ = writeln!(out, "{}", named(series));
        let _ = writeln!(
            out,
            "  {:<42} {:>10} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "", "count", "share", "mean", "p50", "p90", "p99", "max"
        );
        for line in lines {
            row(&mut out, line, total);
        }
        out.push('\n');
    }
    out
}

fn row(out: &mut String, line: &Line, total: Option<f64>) {
    let Line { measure, histogram, .. } = line;
    let is_stage = crate::ledger::Stage::ALL.iter().any(|stage| stage.name() == measure);
    let share = total.filter(|total| is_stage && *total > 0.0).map(|total| percent(sum(histogram) / total)).unwrap_or_default();
    #[allow(clippy::cast_precision_loss, reason = "shown with three digits")]
    let at = |quantile: f64| shown(measure, histogram.value_at_quantile(quantile) as f64);
    #[allow(clippy::cast_precision_loss, reason = "shown with three digits")]
    let most = shown(measure, histogram.max() as f64);
    let (name, mean) = (worded(measure), shown(measure, histogram.mean()));
    let (count, p50, p90, p99) = (histogram.len(), at(0.5), at(0.9), at(0.99));
    let _ = writeln!(out, "  {name:<42} {count:>10} {share:>7} {mean:>9} {p50:>9} {p90:>9} {p99:>9} {most:>9}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_unit_of_their_measure() {
        assert_eq!(shown("forward", 1_500_000.0), "1.50 ms");
        assert_eq!(shown("forward_per_unit;unit=row", 640.0), "640 ps");
        assert_eq!(shown("forward_per_unit;unit=row", 1_500_000.0), "1.50 µs");
        assert_eq!(shown("computational_debt;from=4;unit=row;optimum=x", 3_250_000.0), "3.25×");
        assert_eq!(worded("class;from=4;unit=row"), "class, from 4, unit row");
        assert_eq!(worded("total"), "total");
    }
}
