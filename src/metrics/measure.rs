//! What a histogram of a series is of: the list of measures, their order, names and layouts.

use super::layout::Layout;
use crate::ledger::{Exchange, ExchangeKind, Outcome, PerUnit, Phase, Stage, Unit, Work};

/// What a histogram of a series is of. Every exchange is in exactly one of `Total`, `Cancelled`, `Failed` and `Stream`;
/// all other measures are of answered requests. Values are nanoseconds, and for `PerUnit` picoseconds per unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Totals of requests that the upstream answered.
    Total,
    /// What a stage owned, in answered requests that have the stage.
    Stage(Stage),
    /// Totals of requests that the client gave up.
    Cancelled,
    /// Totals of requests that got no full answer: refused, shed, unreachable, broken, timed out.
    Failed,
    /// Durations of long-lived streams, however they ended.
    Stream,
    /// What a phase owned of forward.
    Phase(Phase),
    /// Time to first token at the proxy.
    FirstToken,
    /// Time per output token at the proxy, one value for each answer.
    PerOutputToken,
    /// Gaps between content chunks at the proxy, one value for each gap.
    InterToken,
    /// Time to first token by the server's word.
    ServerFirstToken,
    /// Time per output token by the server's word.
    ServerPerOutputToken,
    /// A stage's or phase's time over the work of the request, in picoseconds per unit.
    PerUnit(PerUnit),
    /// Totals of answered requests of the cost class `k`: those with `2^k..2^(k+1)` of the primary unit, the last one
    /// without an upper end. `0..Work::CLASSES`.
    Class(usize),
}

const REST: usize = 1 + Stage::COUNT;
const PHASES: usize = REST + 3;
const GENERATIVE: usize = PHASES + Phase::COUNT;
const PER_UNIT: usize = GENERATIVE + 5;
const CLASSES: usize = PER_UNIT + PerUnit::COUNT;

impl Measure {
    /// How many measures a series has.
    pub const COUNT: usize = CLASSES + Work::CLASSES;

    /// How many values an exchange has at most, but for its gaps between tokens: a total, its class, and one of each other.
    pub(super) const MOST: usize = 2 + Stage::COUNT + Phase::COUNT + 4 + PerUnit::COUNT;

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
            Self::Phase(phase) => PHASES + phase.index(),
            Self::FirstToken => GENERATIVE,
            Self::PerOutputToken => GENERATIVE + 1,
            Self::InterToken => GENERATIVE + 2,
            Self::ServerFirstToken => GENERATIVE + 3,
            Self::ServerPerOutputToken => GENERATIVE + 4,
            Self::PerUnit(slot) => PER_UNIT + slot.index(),
            Self::Class(k) => CLASSES + if k < Work::CLASSES { k } else { Work::CLASSES - 1 },
        }
    }

    /// Where the total of an exchange belongs.
    #[must_use]
    pub const fn of(exchange: &Exchange) -> Self {
        match (exchange.ledger.kind, exchange.ledger.outcome) {
            (ExchangeKind::Stream, _) => Self::Stream,
            (ExchangeKind::Request, Outcome::Cancelled) => Self::Cancelled,
            (ExchangeKind::Request, outcome) if outcome.is_answered() => Self::Total,
            (ExchangeKind::Request, _) => Self::Failed,
        }
    }

    /// The layout of the measure's histogram.
    #[must_use]
    pub const fn layout(self) -> Layout {
        match self {
            Self::PerUnit(_) => Layout::PerUnit,
            _ => Layout::Time,
        }
    }

    /// The name in the tags of HDR logs: a stage's or phase's own, with `_per_unit` where it is divided by work; `class`;
    /// else the measure's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Stage(stage) => stage.name(),
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Stream => "stream",
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
            Self::Class(_) => "class",
        }
    }

    /// Every measure, in the order of their indices.
    pub fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Total)
            .chain(Stage::ALL.into_iter().map(Self::Stage))
            .chain([Self::Cancelled, Self::Failed, Self::Stream])
            .chain(Phase::ALL.into_iter().map(Self::Phase))
            .chain(Self::GENERATIVE)
            .chain(PerUnit::ALL.into_iter().map(Self::PerUnit))
            .chain((0..Work::CLASSES).map(Self::Class))
    }
}

/// The per-unit slots that an exchange has, each with its unit, time in nanoseconds, and how many units. None where it was
/// not answered, or where nothing is known of its work.
pub fn slots(exchange: &Exchange) -> impl Iterator<Item = (PerUnit, Unit, u64, u64)> {
    let primary = exchange.ledger.work.primary.filter(|_| Measure::of(exchange) == Measure::Total);
    PerUnit::ALL.into_iter().filter_map(move |slot| {
        // where FLOPs are the primary unit, forward itself is per FLOP
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
