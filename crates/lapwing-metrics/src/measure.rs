//! The measures that a series has histograms of: their order, names and layouts.

use super::layout::Layout;
use lapwing_ledger::{Exchange, ExchangeKind, Outcome, PerUnit, Phase, Stage, Unit, Work};

/// What a histogram of a series measures. Every exchange is in exactly one of `Total`, `Cached`, `Cancelled`, `Failed` and `Stream`; all
/// other measures are of requests that the upstream answered, but the stage `cache` and the phase `coalesced`. Values are nanoseconds; picoseconds per unit for `PerUnit`; millionths for
/// `Debt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Totals of requests that the upstream answered.
    Total,
    /// The time of a stage, in answered requests that have the stage.
    Stage(Stage),
    /// Totals of requests that were given the answer to another one.
    Cached,
    /// Totals of requests that the client cancelled.
    Cancelled,
    /// Totals of requests without a full answer (refused, shed, unreachable, broken, timed out), or with one whose body says that it
    /// failed.
    Failed,
    /// Durations of long-lived streams, however they ended.
    Stream,
    /// From a request's start to the first byte of its streamed response's body, as the proxy observed it.
    FirstByte,
    /// The time of a phase within its stage.
    Phase(Phase),
    /// Time to first token as the proxy observed it.
    FirstToken,
    /// Time per output token as the proxy observed it, one value per answer.
    PerOutputToken,
    /// Gaps between chunks with content as the proxy observed them, one value per gap.
    InterToken,
    /// Time to first token as the server reports it.
    ServerFirstToken,
    /// Time per output token as the server reports it.
    ServerPerOutputToken,
    /// The time of a stage or phase divided by the work of the request, in picoseconds per unit.
    PerUnit(PerUnit),
    /// Totals of answered requests of cost class `k`: those with `2^k..2^(k+1)` of the primary unit; the last class has no upper
    /// bound. `0..Work::CLASSES`.
    Class(usize),
    /// The computational debt of answered requests of cost class `k`: forward divided by its optimum, in millionths.
    /// `0..Work::CLASSES`.
    Debt(usize),
}

const REST: usize = 1 + Stage::COUNT;
const PHASES: usize = REST + 5;
const GENERATIVE: usize = PHASES + Phase::COUNT;
const PER_UNIT: usize = GENERATIVE + 5;
const CLASSES: usize = PER_UNIT + PerUnit::COUNT;
const DEBTS: usize = CLASSES + Work::CLASSES;

impl Measure {
    /// How many measures a series has.
    pub const COUNT: usize = DEBTS + Work::CLASSES;

    /// How many of them, the first ones, may have an [`Extent`](super::Extent).
    pub(crate) const EXTENTS: usize = DEBTS;

    /// The most values that one exchange has, except its gaps between tokens: a total, its class and debt, and one of each other
    /// measure.
    pub(crate) const MOST: usize = 3 + Stage::COUNT + Phase::COUNT + 5 + PerUnit::COUNT;

    /// The generative measures, in order.
    pub const GENERATIVE: [Self; 5] =
        [Self::FirstToken, Self::PerOutputToken, Self::InterToken, Self::ServerFirstToken, Self::ServerPerOutputToken];

    /// The place in arrays by measure, `0..Measure::COUNT`.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Total => 0,
            Self::Stage(stage) => 1 + stage.index(),
            Self::Cancelled => REST,
            Self::Failed => REST + 1,
            Self::Stream => REST + 2,
            Self::Cached => REST + 3,
            Self::FirstByte => REST + 4,
            Self::Phase(phase) => PHASES + phase.index(),
            Self::FirstToken => GENERATIVE,
            Self::PerOutputToken => GENERATIVE + 1,
            Self::InterToken => GENERATIVE + 2,
            Self::ServerFirstToken => GENERATIVE + 3,
            Self::ServerPerOutputToken => GENERATIVE + 4,
            Self::PerUnit(slot) => PER_UNIT + slot.index(),
            Self::Class(k) => CLASSES + bounded(k),
            Self::Debt(k) => DEBTS + bounded(k),
        }
    }

    /// The measure that the total of an exchange belongs to.
    #[must_use]
    pub const fn of(exchange: &Exchange) -> Self {
        match (exchange.ledger.kind, exchange.ledger.outcome) {
            (ExchangeKind::Stream, _) => Self::Stream,
            (ExchangeKind::Request, Outcome::Cancelled) => Self::Cancelled,
            (ExchangeKind::Request, outcome) if outcome.is_answered() && exchange.ledger.served_by.is_upstream() => Self::Total,
            (ExchangeKind::Request, outcome) if outcome.is_answered() => Self::Cached,
            (ExchangeKind::Request, _) => Self::Failed,
        }
    }

    /// The layout of the measure's histogram. Debts have that of durations: a millionth for each nanosecond, so that they are right
    /// to 0.1 % (below the optimum: to 0.0005) from a thousandth to 3.6 million times the optimum.
    #[must_use]
    pub const fn layout(self) -> Layout {
        match self {
            Self::PerUnit(_) => Layout::PerUnit,
            _ => Layout::Time,
        }
    }

    /// The name in the tags of HDR logs: the name of the stage or phase, with `_per_unit` if it is divided by work; `class`;
    /// `computational_debt`; else the measure's own name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Stage(stage) => stage.name(),
            Self::Cached => "cached",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Stream => "stream",
            Self::FirstByte => "first_byte",
            Self::Phase(phase) => phase.name(),
            Self::FirstToken => "first_token",
            Self::PerOutputToken => "per_output_token",
            Self::InterToken => "inter_token",
            Self::ServerFirstToken => "server_first_token",
            Self::ServerPerOutputToken => "server_per_output_token",
            Self::PerUnit(PerUnit::Ingress) => "ingress_per_unit",
            Self::PerUnit(PerUnit::Hydration) => "hydration_per_unit",
            Self::PerUnit(PerUnit::Preprocessing) => "preprocessing_per_unit",
            Self::PerUnit(PerUnit::Forward | PerUnit::ForwardFlop) => "forward_per_unit",
            Self::PerUnit(PerUnit::Prefill) => "prefill_per_unit",
            Self::PerUnit(PerUnit::Decode) => "decode_per_unit",
            Self::PerUnit(PerUnit::Postprocessing) => "postprocessing_per_unit",
            Self::PerUnit(PerUnit::Egress) => "egress_per_unit",
            Self::PerUnit(PerUnit::Upstream) => "upstream_per_unit",
            Self::Class(_) => "class",
            Self::Debt(_) => "computational_debt",
        }
    }

    /// Every measure, in the order of their indices.
    pub fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Total)
            .chain(Stage::ALL.into_iter().map(Self::Stage))
            .chain([Self::Cancelled, Self::Failed, Self::Stream, Self::Cached, Self::FirstByte])
            .chain(Phase::ALL.into_iter().map(Self::Phase))
            .chain(Self::GENERATIVE)
            .chain(PerUnit::ALL.into_iter().map(Self::PerUnit))
            .chain((0..Work::CLASSES).map(Self::Class))
            .chain((0..Work::CLASSES).map(Self::Debt))
    }
}

/// The last class has no upper bound.
const fn bounded(class: usize) -> usize {
    if class < Work::CLASSES { class } else { Work::CLASSES - 1 }
}

/// The per-unit slots that an exchange has, each with its unit, time in nanoseconds, and number of units. Empty if the exchange
/// was not answered, or if nothing is known about its work.
pub fn slots(exchange: &Exchange) -> impl Iterator<Item = (PerUnit, Unit, u64, u64)> {
    let primary = exchange.ledger.work.primary.filter(|_| Measure::of(exchange) == Measure::Total);
    PerUnit::ALL.iter().filter_map(move |&slot| {
        // if FLOPs are the primary unit, forward itself is per FLOP
        let primary = primary.filter(|primary| slot != PerUnit::ForwardFlop || *primary != Unit::Flop)?;
        let (ns, units) = exchange.per_unit(slot)?;
        Some((slot, slot.unit(primary), ns, units))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_are_numbered_in_order() {
        assert_eq!(Measure::all().count(), Measure::COUNT);
        assert!(Measure::all().enumerate().all(|(i, m)| m.index() == i));
    }

    #[test]
    fn a_stage_per_unit_is_called_like_the_stage() {
        for slot in PerUnit::ALL {
            assert_eq!(Measure::PerUnit(slot).name(), format!("{}_per_unit", slot.name()));
        }
    }
}
