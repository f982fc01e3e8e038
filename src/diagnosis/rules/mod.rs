//! Rules: what must be measured for a verdict, as data. `table` has them all, in the order in which they are tried.

mod table;

pub(super) use table::RULES;

use super::attribution::share;
use super::bound::{Cause, LatencyBound};
use super::part::{PartSet, Parts};
use super::quantity::{Quantities, Quantity};
use super::report::Evidence;

/// The share of the time in question that a verdict must explain.
const LEAST_SHARE: f64 = 0.2;

/// What a condition speaks of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Operand {
    /// A measured quantity.
    Measured(Quantity),
    /// The share of these parts in the time in question, with its name in docs/DIAGNOSIS.md.
    ShareOf(&'static str, PartSet),
}

/// A condition. It does not hold for a quantity that is unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Condition {
    /// At least the threshold.
    AtLeast(Operand, f64),
    /// At most the threshold.
    AtMost(Operand, f64),
}

/// A rule. It claims time in question that no earlier rule has claimed, if its share is large enough and all conditions hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// The name in docs/DIAGNOSIS.md.
    pub(super) name: &'static str,
    /// What the time that it explains is bound by: in the words, and in the totals by bound.
    pub(super) bound: LatencyBound,
    pub(super) cause: Cause,
    /// The parts whose time it explains.
    pub(super) claims: PartSet,
    /// The least share of the time in question that it must explain, `0..=1`.
    pub(super) least_share: f64,
    pub(super) conditions: &'static [Condition],
    /// What it prints beside the quantities of its conditions.
    pub(super) evidence: &'static [Quantity],
    /// The verdict in words; `{share}`, `{time}` and names of quantities in braces are replaced.
    pub(super) sentence: &'static str,
    /// What to do, the cheapest first.
    pub(super) fixes: &'static [&'static str],
    /// Where the claim comes from.
    #[allow(dead_code, reason = "docs/DIAGNOSIS.md shows it, and a test compares the two")]
    pub(super) source: &'static str,
    /// Whether it is also looked at where the budget is kept: what it speaks of is time lost, whatever the budget.
    pub(super) is_always: bool,
}

impl Operand {
    /// What it is, in words.
    pub(super) const fn what(self) -> &'static str {
        match self {
            Self::Measured(quantity) => quantity.what(),
            Self::ShareOf(name, _) => name,
        }
    }

    /// Its unit in JSON.
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Measured(quantity) => quantity.form().unit(),
            Self::ShareOf(..) => "ratio",
        }
    }

    /// The measured value; NaN if it is unknown.
    pub(super) fn value(self, quantities: &Quantities, parts: &Parts) -> f64 {
        match self {
            Self::Measured(quantity) => quantities.get(quantity),
            Self::ShareOf(_, of) => share(parts, of),
        }
    }
}

impl Condition {
    pub(super) const fn operand(self) -> Operand {
        match self {
            Self::AtLeast(operand, _) | Self::AtMost(operand, _) => operand,
        }
    }

    pub(super) const fn threshold(self) -> f64 {
        match self {
            Self::AtLeast(_, threshold) | Self::AtMost(_, threshold) => threshold,
        }
    }

    pub(super) fn holds(self, quantities: &Quantities, parts: &Parts) -> bool {
        let value = self.operand().value(quantities, parts);
        match self {
            Self::AtLeast(_, threshold) => value >= threshold,
            Self::AtMost(_, threshold) => value <= threshold,
        }
    }
}

/// The measured values of conditions with their thresholds, and of quantities beside them; those that are unknown are left out.
pub(super) fn evidence(conditions: &[Condition], beside: &[Quantity], quantities: &Quantities, parts: &Parts) -> Vec<Evidence> {
    let of_conditions = conditions.iter().map(|condition| (condition.operand(), Some(condition.threshold())));
    let beside = beside.iter().map(|quantity| (Operand::Measured(*quantity), None));
    let evidence = of_conditions.chain(beside).filter_map(|(operand, threshold)| {
        let value = operand.value(quantities, parts);
        let (what, unit) = (operand.what().to_owned(), operand.unit().to_owned());
        value.is_finite().then_some(Evidence { what, value, unit, threshold })
    });
    evidence.collect()
}

impl Rule {
    /// What most rows of the table have in common.
    const ROW: Self = Self {
        name: "",
        bound: LatencyBound::Compute,
        cause: Cause::Unknown,
        claims: PartSet::of(&[]),
        least_share: LEAST_SHARE,
        conditions: &[],
        evidence: &[],
        sentence: "",
        fixes: &[],
        source: "",
        is_always: false,
    };

    /// Whether all conditions hold.
    pub(super) fn holds(&self, quantities: &Quantities, parts: &Parts) -> bool {
        self.conditions.iter().all(|condition| condition.holds(quantities, parts))
    }
}
