//! Rules: what must be measured for a verdict, as data. `table` has them all, in the order in which they are tried.

mod table;

pub(crate) use table::RULES;

use super::attribution::share;
use super::bound::{Cause, LatencyBound};
use super::part::{PartSet, Parts};
use super::quantity::{Quantities, Quantity};
use super::report::Evidence;

/// The share of the time in question that a verdict must explain.
const LEAST_SHARE: f64 = 0.2;

/// What a condition speaks of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operand {
    /// A measured quantity.
    Measured(Quantity),
    /// The share of these parts in the time in question, with its name in docs/DIAGNOSIS.md.
    ShareOf(&'static str, PartSet),
}

/// A condition. It does not hold for a quantity that is unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Condition {
    /// At least the threshold.
    AtLeast(Operand, f64),
    /// At most the threshold.
    AtMost(Operand, f64),
}

/// A rule. It claims time in question that no earlier rule has claimed, if its share is large enough and all conditions hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// The name in docs/DIAGNOSIS.md.
    pub(crate) name: &'static str,
    /// What the time that it explains is bound by: in the words, and in the totals by bound.
    pub(crate) bound: LatencyBound,
    pub(crate) cause: Cause,
    /// The parts whose time it explains.
    pub(crate) claims: PartSet,
    /// The least share of the time in question that it must explain, `0..=1`.
    pub(crate) least_share: f64,
    pub(crate) conditions: &'static [Condition],
    /// What it prints in addition to the quantities of its conditions.
    pub(crate) evidence: &'static [Quantity],
    /// The verdict in words; `{share}`, `{time}` and names of quantities in braces are replaced.
    pub(crate) sentence: &'static str,
    /// What to do, the cheapest first.
    pub(crate) fixes: &'static [&'static str],
    /// Whether it is also tried where the budget is kept: it is about time that is lost whatever the budget.
    pub(crate) is_always: bool,
}

impl Operand {
    /// What it is, in words.
    pub(crate) const fn what(self) -> &'static str {
        match self {
            Self::Measured(quantity) => quantity.what(),
            Self::ShareOf(name, _) => name,
        }
    }

    /// Its unit in JSON.
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::Measured(quantity) => quantity.form().unit(),
            Self::ShareOf(..) => "ratio",
        }
    }

    /// The measured value; NaN if it is unknown.
    pub(crate) fn value(self, quantities: &Quantities, parts: &Parts) -> f64 {
        match self {
            Self::Measured(quantity) => quantities.get(quantity),
            Self::ShareOf(_, of) => share(parts, of),
        }
    }
}

impl Condition {
    pub(crate) const fn operand(self) -> Operand {
        match self {
            Self::AtLeast(operand, _) | Self::AtMost(operand, _) => operand,
        }
    }

    pub(crate) const fn threshold(self) -> f64 {
        match self {
            Self::AtLeast(_, threshold) | Self::AtMost(_, threshold) => threshold,
        }
    }

    pub(crate) fn holds(self, quantities: &Quantities, parts: &Parts) -> bool {
        let value = self.operand().value(quantities, parts);
        match self {
            Self::AtLeast(_, threshold) => value >= threshold,
            Self::AtMost(_, threshold) => value <= threshold,
        }
    }
}

/// The measured values of conditions with their thresholds, and of further quantities; those that are unknown are left out.
pub(crate) fn evidence(conditions: &[Condition], beside: &[Quantity], quantities: &Quantities, parts: &Parts) -> Vec<Evidence> {
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
        is_always: false,
    };

    /// Whether all conditions hold.
    pub(crate) fn holds(&self, quantities: &Quantities, parts: &Parts) -> bool {
        self.conditions.iter().all(|condition| condition.holds(quantities, parts))
    }
}
