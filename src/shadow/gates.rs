//! Bounds that a replay must keep, so that a build can be refused: `p99_ratio<=1.05`, `forward.p50_ratio<1.02`, `mismatch<=0.1%`.
//!
//! A gate looks at all pairs of a target together, whatever their route, model and cost class. A value that is not known (nothing was
//! compared, or the quantile lies among failures) fails its gate.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::PairFigure;
use super::ab::{LatencyReport, PairCounts, Tracking};
use crate::settings::{Invalid, Period};

/// What a gate bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateField {
    /// The candidate's p50 to the baseline's.
    P50Ratio,
    /// The same of p90.
    P90Ratio,
    /// The same of p99.
    P99Ratio,
    /// The median of the ratios within pairs.
    PairedP50,
    /// The share of compared outputs that differ.
    Mismatch,
    /// The share of pairs in which the candidate failed, and the baseline did not.
    Failed,
    /// The p99 of how late requests were sent, in nanoseconds.
    LatenessP99,
}

impl GateField {
    const ALL: [(Self, &'static str); 7] = [
        (Self::P50Ratio, "p50_ratio"),
        (Self::P90Ratio, "p90_ratio"),
        (Self::P99Ratio, "p99_ratio"),
        (Self::PairedP50, "paired_p50"),
        (Self::Mismatch, "mismatch"),
        (Self::Failed, "failed"),
        (Self::LatenessP99, "lateness_p99"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(field, _)| *field == self).map_or("", |(_, name)| name)
    }

    /// Whether it is of a figure, so that a stage may stand before it.
    const fn is_of_figure(self) -> bool {
        matches!(self, Self::P50Ratio | Self::P90Ratio | Self::P99Ratio | Self::PairedP50)
    }
}

/// How a value is held against the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparator {
    AtMost,
    Below,
    AtLeast,
    Above,
}

impl Comparator {
    /// The longer ones first.
    const ALL: [(Self, &'static str); 4] = [(Self::AtMost, "<="), (Self::AtLeast, ">="), (Self::Below, "<"), (Self::Above, ">")];

    fn holds(self, value: f64, bound: f64) -> bool {
        match self {
            Self::AtMost => value <= bound,
            Self::Below => value < bound,
            Self::AtLeast => value >= bound,
            Self::Above => value > bound,
        }
    }
}

/// A bound that a replay must keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    text: String,
    figure: PairFigure,
    field: GateField,
    comparator: Comparator,
    /// A ratio, a share, or nanoseconds.
    bound: f64,
}

/// What a gate says of one target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GateResult {
    /// The gate, as it was written.
    pub gate: String,
    /// The target's name.
    pub target: String,
    /// What it bounds, with its stage.
    pub field: String,
    /// The value: a ratio, a share, or nanoseconds; `None` if it is not known.
    pub value: Option<f64>,
    /// The bound, in the same unit.
    pub bound: f64,
    /// Whether the value keeps the bound.
    pub holds: bool,
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Gate {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = |reason: &str| Invalid::new(text, reason);
        let found = Comparator::ALL.iter().filter_map(|(comparator, sign)| Some((text.find(sign)?, *comparator, *sign)));
        // of those that begin at the same place, the longer one comes first
        let (at, comparator, sign) = found
            .min_by_key(|(at, ..)| *at)
            .ok_or_else(|| invalid("needs a field, <=, <, >= or >, and a bound, as in p99_ratio<=1.05"))?;
        let (left, right) = (text[..at].trim(), text[at + sign.len()..].trim());
        let (figure, name) = match left.rsplit_once('.') {
            Some((figure, name)) => {
                let known = PairFigure::ALL.into_iter().find(|known| known.name() == figure);
                (known.ok_or_else(|| invalid("has an unknown stage; there are total, preprocessing, queue, forward …"))?, name)
            }
            None => (PairFigure::Total, left),
        };
        let known = GateField::ALL.into_iter().find(|(_, known)| *known == name).map(|(field, _)| field);
        let field = known.ok_or_else(|| {
            let names: Vec<&str> = GateField::ALL.iter().map(|(_, name)| *name).collect();
            Invalid::new(text, format!("has an unknown field; there are {}", names.join(", ")))
        })?;
        if !field.is_of_figure() && left.contains('.') {
            return Err(invalid("has a stage before a field that is of whole requests"));
        }
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        let bound = match field {
            #[allow(clippy::cast_precision_loss, reason = "a bound")]
            GateField::LatenessP99 => right.parse::<Period>().ok().map(|period| period.as_nanos() as f64),
            _ => right.strip_suffix('%').map_or_else(|| number(right), |percent| number(percent.trim_end()).map(|n| n / 100.0)),
        };
        let bound = bound.ok_or_else(|| match field {
            GateField::LatenessP99 => invalid("needs a duration as its bound, as in lateness_p99<=2ms"),
            _ => invalid("needs a number or a percentage as its bound, as in p99_ratio<=1.05 or mismatch<=0.1%"),
        })?;
        Ok(Self { text: text.to_owned(), figure, field, comparator, bound })
    }
}

impl Gate {
    /// Looks at the pairs of `target`, by figure, and at the p99 of lateness in nanoseconds, if it is known.
    #[must_use]
    pub fn check(&self, target: &str, pairs: &BTreeMap<PairFigure, PairCounts>, lateness_p99_ns: Option<u64>) -> GateResult {
        let value = self.value(pairs, lateness_p99_ns);
        let field = match self.figure {
            PairFigure::Total => self.field.name().to_owned(),
            figure => format!("{}.{}", figure.name(), self.field.name()),
        };
        GateResult {
            gate: self.text.clone(),
            target: target.to_owned(),
            field,
            value,
            bound: self.bound,
            holds: value.is_some_and(|value| self.comparator.holds(value, self.bound)),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "shares and nanoseconds")]
    fn value(&self, pairs: &BTreeMap<PairFigure, PairCounts>, lateness_p99_ns: Option<u64>) -> Option<f64> {
        if self.field == GateField::LatenessP99 {
            return lateness_p99_ns.map(|ns| ns as f64);
        }
        // estimates need the counts alone; how they vary in time is for intervals
        let report = LatencyReport::new(pairs.get(&self.figure)?, &Tracking::new());
        match self.field {
            GateField::P50Ratio => report.quantile_ratios.p50.value,
            GateField::P90Ratio => report.quantile_ratios.p90.value,
            GateField::P99Ratio => report.quantile_ratios.p99.value,
            GateField::PairedP50 => report.paired_ratio.p50.value,
            GateField::Mismatch => report.mismatches.rate.value,
            GateField::Failed => {
                let all = report.pairs + report.both_failed;
                (all > 0).then(|| report.candidate_failed as f64 / all as f64)
            }
            GateField::LatenessP99 => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Stage;
    use crate::shadow::ab::PairSide;

    fn checked(gate: &str, counts: PairCounts) -> GateResult {
        let pairs = BTreeMap::from([(PairFigure::Total, counts)]);
        gate.parse::<Gate>().unwrap().check("t", &pairs, Some(1_500_000))
    }

    fn slower_by_a_tenth() -> PairCounts {
        let mut counts = PairCounts::default();
        for n in 0..1_000 {
            counts.record(1_000_000 + n, 1_100_000 + n);
            counts.record_mismatch(n % 500 == 0);
        }
        counts
    }

    #[test]
    fn gates_hold_or_say_by_how_much_they_do_not() {
        for (gate, holds) in [
            ("p99_ratio<=1.2", true),
            ("p99_ratio <= 105%", false),
            ("p50_ratio>1.05", true),
            ("paired_p50<1.05", false),
            ("mismatch<=0.2%", true),
            ("mismatch<0.1%", false),
            ("failed<=0", true),
            ("lateness_p99<=2ms", true),
            ("lateness_p99<1ms", false),
        ] {
            assert_eq!(checked(gate, slower_by_a_tenth()).holds, holds, "{gate}");
        }
        let failed = checked("p99_ratio<=1.05", slower_by_a_tenth());
        assert_eq!((failed.field.as_str(), failed.bound), ("p99_ratio", 1.05));
        assert!((failed.value.unwrap() - 1.1).abs() < 0.01, "{failed:?}");
    }

    #[test]
    fn what_is_not_known_does_not_hold() {
        for gate in ["p99_ratio<=9", "mismatch<=100%", "failed<=1", "forward.p50_ratio<=9"] {
            let result = checked(gate, PairCounts::default());
            assert_eq!((result.value, result.holds), (None, false), "{gate}");
        }
        let mut counts = slower_by_a_tenth();
        (0..50).for_each(|_| counts.record_failed_side(PairSide::Candidate, 1_000_000));
        let among_failures = checked("p99_ratio<=9", counts.clone());
        assert_eq!((among_failures.value, among_failures.holds), (None, false));
        assert!(!checked("failed<=4%", counts.clone()).holds && checked("failed<=5%", counts).holds);
    }

    #[test]
    fn a_stage_may_stand_before_a_ratio() {
        let gate: Gate = "forward.p99_ratio<=1.05".parse().unwrap();
        let pairs = BTreeMap::from([(PairFigure::Stage(Stage::Forward), slower_by_a_tenth())]);
        let result = gate.check("t", &pairs, None);
        assert_eq!((result.field.as_str(), result.holds), ("forward.p99_ratio", false));
    }

    #[test]
    fn what_is_no_gate_is_refused_with_a_reason() {
        for (text, reason) in [
            ("p99_ratio", "<="),
            ("p98_ratio<=1", "p99_ratio"),
            ("p99_ratio<=fast", "a number"),
            ("p99_ratio<=-1", "a number"),
            ("lateness_p99<=2", "a duration"),
            ("forward.mismatch<=1%", "whole requests"),
            ("backward.p99_ratio<=1", "unknown stage"),
        ] {
            let error = text.parse::<Gate>().unwrap_err();
            assert!(error.reason.contains(reason), "{text}: {}", error.reason);
        }
    }
}
