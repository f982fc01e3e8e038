//! The table of a log: each series, and under it each measure with its count, share, mean and percentiles.

use std::fmt::Write;

use hdrhistogram::Histogram;

use super::log::{HdrLog, Line, SeriesName};
use crate::printable::printable;
use crate::table::{TableRow, heading, series_title};
use crate::units::{duration, duration_ps};

/// Values are millionths of a ratio.
const DEBT: &str = "computational_debt";
/// The columns of a measure.
const NAME: usize = 100;

/// A value of a measure with its unit.
pub(crate) fn shown(measure: &str, value: f64) -> String {
    let name = measure.split(';').next().unwrap_or_default();
    if name == DEBT {
        return format!("{:.2}×", value / 1e6);
    }
    if name.ends_with("_per_unit") { duration_ps(value) } else { duration(value) }
}

/// All time in a histogram of time.
pub(crate) fn sum(histogram: &Histogram<u64>) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a share")]
    let count = histogram.len() as f64;
    histogram.mean() * count
}

/// The name of a series for people.
pub(crate) fn named(series: &SeriesName) -> String {
    series_title(&series.route, &series.model, &series.upstream)
}

/// The measure for people: `class;from=4;unit=row` is `class from 4, unit row`.
pub(crate) fn worded(measure: &str) -> String {
    let (name, rest) = measure.split_once(';').unwrap_or((measure, ""));
    let rest = rest.split(';').filter(|part| !part.is_empty()).map(|part| part.replacen('=', " ", 1));
    let words: Vec<_> = std::iter::once(name.to_owned()).chain(rest).collect();
    printable(&words.join(", "), NAME)
}

/// The table.
pub(crate) fn table(log: &HdrLog) -> String {
    let mut out = String::new();
    for (series, lines) in log.series() {
        let total = lines.iter().find(|line| line.measure == "total").map(|line| sum(&line.histogram));
        let _ = writeln!(out, "{}", named(series));
        let _ = writeln!(out, "{}", heading());
        for line in lines {
            let _ = writeln!(out, "{}", row(line, total));
        }
        out.push('\n');
    }
    out
}

fn row(line: &Line, total: Option<f64>) -> TableRow {
    let Line { measure, histogram, .. } = line;
    let is_stage = lapwing_ledger::Stage::ALL.iter().any(|stage| stage.name() == measure);
    let share = total.filter(|total| is_stage && *total > 0.0).map(|total| sum(histogram) / total);
    let at = |quantile: f64| histogram.value_at_quantile(quantile);
    #[allow(clippy::cast_precision_loss, reason = "shown with three digits")]
    let [p50, p90, p99, most] = [at(0.5), at(0.9), at(0.99), histogram.max()].map(|value| shown(measure, value as f64));
    let values = [shown(measure, histogram.mean()), p50, p90, p99, most];
    TableRow { name: worded(measure), count: histogram.len(), share, values }
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
