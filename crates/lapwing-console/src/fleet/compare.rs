//! What changed between two logs, measure by measure: percentiles with intervals, and which stages the change of the mean lies in.
//!
//! A percentile's interval is by order statistics: of `n` independent values the `q` quantile lies between those of ranks
//! `nq ± z √(nq(1−q))` (David and Nagaraja, Order Statistics, 7.1). Two sides differ where their intervals do not touch. `z` is 3.29, so that
//! of a thousand measures that did not change about one is named; and requests that wait for the same cause are not independent, so
//! a short disturbance can be named as a change.

use std::fmt::Write;

use hdrhistogram::Histogram;

use super::log::{HdrLog, Line, SeriesName};
use super::table::{named, shown, sum, worded};
use crate::printable::printable;
use lapwing_ledger::Stage;

/// Of a standard normal distribution: 99.9 % lie within.
const Z: f64 = 3.29;
/// Ratios within this share of 1 are the same.
const SAME: f64 = 0.02;
/// The columns of an address.
const UPSTREAM: usize = 100;
/// A change of the mean below this share of it is not divided by stages.
const TOLD: f64 = 0.01;

/// The interval of a quantile of one side.
#[derive(Clone, Copy, Debug)]
struct Quantile {
    low: f64,
    high: f64,
}

impl Quantile {
    /// `None` if the interval reaches beyond what was seen.
    #[allow(clippy::cast_precision_loss, reason = "three digits are kept")]
    fn of(histogram: &Histogram<u64>, q: f64) -> Option<Self> {
        let n = histogram.len() as f64;
        let spread = Z * (n * q * (1.0 - q)).sqrt();
        let (low, high) = (n * q - spread, n * q + spread);
        if low < 1.0 || high > n {
            return None;
        }
        let at = |rank: f64| histogram.value_at_quantile(rank / n) as f64;
        Some(Self { low: at(low), high: at(high) })
    }
}

/// What is known about a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Slower,
    Faster,
    Same,
    Undecided,
    TooFew,
}

impl Verdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::Same => "the same",
            Self::Undecided => "undecided",
            Self::TooFew => "too few",
        }
    }

    fn of(before: Option<Quantile>, after: Option<Quantile>) -> Self {
        let (Some(before), Some(after)) = (before, after) else { return Self::TooFew };
        match () {
            () if after.low > before.high => Self::Slower,
            () if after.high < before.low => Self::Faster,
            () if after.high <= before.low * (1.0 + SAME) && after.low >= before.high * (1.0 - SAME) => Self::Same,
            () => Self::Undecided,
        }
    }
}

/// What changed, in words and a table.
pub(crate) fn compared(before: &HdrLog, after: &HdrLog) -> String {
    let mut out = String::new();
    let (series_before, mut series_after) = (before.series(), after.series());
    for (series, lines) in &series_before {
        let Some(other) = same(series, &series_before, &series_after) else {
            let _ = writeln!(out, "{}\n  only before\n", named(series));
            continue;
        };
        let (name, others) = series_after.remove(other);
        let measured = |line: &&Line| others.iter().find(|other| other.measure == line.measure).copied();
        let both: Vec<_> = lines.iter().filter_map(|line| Some((*line, measured(line)?))).collect();
        let _ = writeln!(out, "{}", named(series));
        if name.upstream != series.upstream {
            let _ = writeln!(out, "  after: of {}", printable(&name.upstream, UPSTREAM));
        }
        if let Some(told) = by_stages(&both) {
            let _ = writeln!(out, "  {told}");
        }
        let _ = writeln!(out, "  {:<42} {:>21} {:>20} {:>10} {:>20} {:>10}", "", "count", "p50", "", "p99", "");
        for (before, after) in both {
            let (one, two, measure) = (&before.histogram, &after.histogram, &before.measure);
            let counts = format!("{} → {}", one.len(), two.len());
            let _ = write!(out, "  {:<42} {counts:>21}", worded(measure));
            for q in [0.5, 0.99] {
                #[allow(clippy::cast_precision_loss, reason = "three digits are kept")]
                let at = |histogram: &Histogram<u64>| shown(measure, histogram.value_at_quantile(q) as f64);
                let verdict = Verdict::of(Quantile::of(one, q), Quantile::of(two, q));
                let _ = write!(out, " {:>20} {:>10}", format!("{} → {}", at(one), at(two)), verdict.name());
            }
            out.push('\n');
        }
        out.push('\n');
    }
    for (series, _) in series_after {
        let _ = writeln!(out, "{}\n  only after\n", named(series));
    }
    out
}

type OneSide<'a> = [(&'a SeriesName, Vec<&'a Line>)];

/// The place of a series on the other side: of the same name, else the only one of its route and model where each side has one, since the
/// server may have another address.
fn same(series: &SeriesName, own: &OneSide, others: &OneSide) -> Option<usize> {
    let place = |is_it: &dyn Fn(&SeriesName) -> bool| others.iter().position(|(other, _)| is_it(other));
    let is_alike = |other: &SeriesName| other.route == series.route && other.model == series.model;
    let is_alone = |side: &OneSide| side.iter().filter(|(other, _)| is_alike(other)).count() == 1;
    place(&|other| other == series).or_else(|| place(&is_alike).filter(|_| is_alone(own) && is_alone(others)))
}

/// How the mean of the total changed, and by how much in each stage: the means of all stages over all requests add up to it.
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
fn by_stages(both: &[(&Line, &Line)]) -> Option<String> {
    let (before, after) = both.iter().find(|(line, _)| line.measure == "total")?;
    let counts = (before.histogram.len() as f64, after.histogram.len() as f64);
    let means = (before.histogram.mean(), after.histogram.mean());
    let change = means.1 - means.0;
    if change.abs() < TOLD * means.0 {
        return Some(format!("mean {} → {}", shown("total", means.0), shown("total", means.1)));
    }
    let mut of_stages: Vec<_> = both
        .iter()
        .filter(|(line, _)| Stage::ALL.iter().any(|stage| stage.name() == line.measure))
        .map(|(one, two)| (sum(&two.histogram) / counts.1 - sum(&one.histogram) / counts.0, &one.measure))
        .collect();
    of_stages.sort_by(|one, two| (two.0 * change.signum()).total_cmp(&(one.0 * change.signum())));
    let signed = |ns: f64| format!("{}{}", if ns < 0.0 { "−" } else { "+" }, shown("total", ns.abs()));
    let most = of_stages.iter().take(3).filter(|(ns, _)| ns * change > 0.0 && ns.abs() >= 0.1 * change.abs());
    let most: Vec<_> = most.map(|(ns, stage)| format!("{stage} {}", signed(*ns))).collect();
    let (one, two) = (shown("total", means.0), shown("total", means.1));
    let told = if most.is_empty() { String::new() } else { format!(", of which {}", most.join(", ")) };
    Some(format!("mean {one} → {two}: {}{told}", signed(change)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(n: u64, scale: u64) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1_000, 3_600_000_000_000, 3).unwrap();
        (0..n).for_each(|i| histogram.record(scale + scale * i / n).unwrap());
        histogram
    }

    fn verdict(one: &Histogram<u64>, two: &Histogram<u64>, q: f64) -> Verdict {
        Verdict::of(Quantile::of(one, q), Quantile::of(two, q))
    }

    #[test]
    fn verdicts_need_enough_requests() {
        let (few, many) = (spread(20, 1_000_000), spread(200_000, 1_000_000));
        assert_eq!(verdict(&few, &few, 0.99), Verdict::TooFew);
        assert_eq!(verdict(&many, &many, 0.5), Verdict::Same);
        assert_eq!(verdict(&many, &spread(200_000, 1_100_000), 0.5), Verdict::Slower);
        assert_eq!(verdict(&many, &spread(200_000, 900_000), 0.99), Verdict::Faster);
        assert_eq!(verdict(&spread(400, 1_000_000), &spread(400, 1_050_000), 0.5), Verdict::Undecided);
    }

    #[test]
    fn a_series_is_found_again_under_another_address_if_it_is_the_only_one() {
        let log = |upstreams: &[&str]| {
            let mut log = HdrLog::default();
            for upstream in upstreams {
                log.add(&format!("total;route=POST%20/a;model=m;upstream={upstream}"), spread(4_000, 1_000_000)).unwrap();
            }
            log
        };
        let moved = compared(&log(&["http://a"]), &log(&["http://b"]));
        assert!(
            moved.contains("POST /a, model m (http://a)\n  after: of http://b\n  mean ") && !moved.contains("only"),
            "{moved}"
        );
        // which of two it was is not known
        let split = compared(&log(&["http://a"]), &log(&["http://b", "http://c"]));
        assert!(split.matches("only after").count() == 2 && split.contains("only before"), "{split}");
        let grown = compared(&log(&["http://a"]), &log(&["http://a", "http://b"]));
        assert!(grown.matches("only after").count() == 1 && !grown.contains("after: of"), "{grown}");
    }

    /// Two samples of one distribution are hardly ever called different: the interval's level, by simulation.
    #[test]
    fn what_did_not_change_is_not_named() {
        let mut state = 7_u64;
        let mut draw = || {
            let mut histogram = Histogram::new_with_bounds(1_000, 3_600_000_000_000, 3).unwrap();
            for _ in 0..2_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let uniform = (state >> 11) as f64 / (1_u64 << 53) as f64;
                histogram.record((1e6 * (1.0 - (1.0 - uniform).ln())) as u64).unwrap();
            }
            histogram
        };
        let named = (0..200).filter(|_| !matches!(verdict(&draw(), &draw(), 0.5), Verdict::Same | Verdict::Undecided)).count();
        assert_eq!(named, 0);
    }
}
