//! Bounds that a replay must keep, so that a build can be refused: `p99_ratio<=1.05`, `forward.p50_ratio<1.02`, `mismatch<=0.1%`.
//!
//! A gate looks at all pairs of a target together, whatever their route, model and cost class. A value that is not known (nothing was
//! compared, or the quantile lies among failures) fails its gate. So does one that stands on too few of the requests: each gate has a share that
//! it could not judge (requests without a pair, pairs without the figure, outputs that cannot be compared), which may be 5 %, or what
//! a gate `unjudged<=…` allows.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::PairFigure;
use lapwing_compare::ab::{LatencyReport, PairCounts, Tracking};
use lapwing_compare::outputs::OutputsVerdict;
use lapwing_settings::{Invalid, Period};

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
    /// The share of requests whose outputs differ only in what the baseline's own answers differ in as much.
    Excused,
    /// The share of requests whose outputs could not be judged.
    Unjudged,
    /// The share of pairs in which the candidate failed, and the baseline did not.
    Failed,
    /// The p99 of how late requests were sent, in nanoseconds.
    LatenessP99,
}

impl GateField {
    const ALL: [(Self, &'static str); 9] = [
        (Self::P50Ratio, "p50_ratio"),
        (Self::P90Ratio, "p90_ratio"),
        (Self::P99Ratio, "p99_ratio"),
        (Self::PairedP50, "paired_p50"),
        (Self::Mismatch, "mismatch"),
        (Self::Excused, "excused"),
        (Self::Unjudged, "unjudged"),
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
    /// The share of requests that it could not judge.
    pub unjudged: f64,
    /// How large that may be.
    pub unjudged_bound: f64,
    /// Whether the value keeps the bound, and enough was judged.
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

/// What gates look at.
#[derive(Clone, Copy, Debug)]
pub struct GateInputs<'a> {
    /// The counts of the target's pairs, by figure.
    pub pairs: &'a BTreeMap<PairFigure, PairCounts>,
    /// How many requests should have become pairs; `None` if that is not known.
    pub requests: Option<u64>,
    /// The p99 of how late they were sent, in nanoseconds, if it is known.
    pub lateness_p99_ns: Option<u64>,
}

impl GateInputs<'_> {
    /// The requests, as far as they are known.
    fn requests(&self) -> u64 {
        let total = self.pairs.get(&PairFigure::Total);
        let seen = |counts: &PairCounts| (counts.pairs() + counts.both_failed()).max(counts.judged());
        total.map_or(0, seen).max(self.requests.unwrap_or(0))
    }
}

/// Checks every gate for one target.
#[must_use]
pub fn check_all(gates: &[Gate], target: &str, known: &GateInputs<'_>) -> Vec<GateResult> {
    let own = gates.iter().filter(|gate| gate.field == GateField::Unjudged && gate.is_upper());
    let allowed = own.map(|gate| gate.bound).reduce(f64::max).unwrap_or(OutputsVerdict::MAX_UNJUDGED);
    gates.iter().map(|gate| gate.check(target, known, allowed)).collect()
}

impl Gate {
    /// Whether it bounds from above.
    const fn is_upper(&self) -> bool {
        matches!(self.comparator, Comparator::AtMost | Comparator::Below)
    }

    /// Looks at the pairs of `target`. It fails if more than the share `allowed` could not be judged.
    #[must_use]
    pub fn check(&self, target: &str, known: &GateInputs<'_>, allowed: f64) -> GateResult {
        let value = self.value(known);
        let field = match self.figure {
            PairFigure::Total => self.field.name().to_owned(),
            figure => format!("{}.{}", figure.name(), self.field.name()),
        };
        // those of its own say it by their value
        let unjudged = if self.field == GateField::Unjudged { 0.0 } else { self.unjudged(known) };
        GateResult {
            gate: self.text.clone(),
            target: target.to_owned(),
            field,
            value,
            bound: self.bound,
            unjudged,
            unjudged_bound: allowed,
            holds: value.is_some_and(|value| self.comparator.holds(value, self.bound)) && unjudged <= allowed,
        }
    }

    /// The share of requests of which the value says nothing.
    #[allow(clippy::cast_precision_loss, reason = "shares")]
    fn unjudged(&self, known: &GateInputs<'_>) -> f64 {
        let requests = known.requests();
        let counts = known.pairs.get(&self.figure);
        let judged = match self.field {
            GateField::LatenessP99 => return 0.0,
            GateField::Mismatch | GateField::Excused | GateField::Unjudged => counts.map_or(0, PairCounts::judged),
            GateField::Failed => counts.map_or(0, |counts| counts.pairs() + counts.both_failed()),
            _ => counts.map_or(0, PairCounts::pairs),
        };
        if requests == 0 { 1.0 } else { 1.0 - judged.min(requests) as f64 / requests as f64 }
    }

    #[allow(clippy::cast_precision_loss, reason = "shares and nanoseconds")]
    fn value(&self, known: &GateInputs<'_>) -> Option<f64> {
        if self.field == GateField::LatenessP99 {
            return known.lateness_p99_ns.map(|ns| ns as f64);
        }
        // estimates need the counts alone; how they vary in time is for intervals
        let report = LatencyReport::new(known.pairs.get(&self.figure)?, &Tracking::new());
        match self.field {
            GateField::P50Ratio => report.quantile_ratios.p50.value,
            GateField::P90Ratio => report.quantile_ratios.p90.value,
            GateField::P99Ratio => report.quantile_ratios.p99.value,
            GateField::PairedP50 => report.paired_ratio.p50.value,
            GateField::Mismatch => report.mismatches.rate.value,
            GateField::Excused => {
                let requests = known.requests();
                (requests > 0).then(|| report.mismatches.excused as f64 / requests as f64)
            }
            GateField::Unjudged => Some(self.unjudged(known)),
            GateField::Failed => {
                let all = report.pairs + report.both_failed;
                (all > 0).then(|| report.candidate_failed as f64 / all as f64)
            }
            GateField::LatenessP99 => None,
        }
    }
}

#[cfg(test)]
mod tests;
