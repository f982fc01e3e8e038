//! The work of a request in compute units, and how each amount is known.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::stage::{Phase, Stage};

/// A unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Rows of a batch: examples, documents, images, prompts.
    Row,
    /// Entities whose features are looked up.
    Entity,
    /// Tokens that the model reads.
    InputToken,
    /// Tokens that the model writes.
    OutputToken,
    /// Scalars of the input tensors.
    Element,
    /// Milliseconds of sound that a model hears.
    AudioMs,
    /// Body bytes.
    Byte,
    /// Floating-point operations; a multiply-add is two.
    Flop,
}

impl Unit {
    /// How many units there are.
    pub const COUNT: usize = 8;

    /// Every unit.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Row, Self::Entity, Self::InputToken, Self::OutputToken, Self::Element, Self::AudioMs, Self::Byte, Self::Flop];

    /// The name on every surface.
    #[must_use]
    #[inline]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Row => "row",
            Self::Entity => "entity",
            Self::InputToken => "input_token",
            Self::OutputToken => "output_token",
            Self::Element => "element",
            Self::AudioMs => "audio_ms",
            Self::Byte => "byte",
            Self::Flop => "flop",
        }
    }

    /// How many units a time is stated for: one FLOP is too short for a histogram of picoseconds, and sound is stated in seconds.
    #[must_use]
    #[inline]
    pub const fn per(self) -> u64 {
        match self {
            Self::Flop => 1_000_000_000,
            Self::AudioMs => 1_000,
            _ => 1,
        }
    }

    /// The name of [`Self::per`] units, on every surface.
    #[must_use]
    #[inline]
    pub const fn per_name(self) -> &'static str {
        match self {
            Self::Flop => "gflop",
            Self::AudioMs => "audio_second",
            _ => self.name(),
        }
    }

    /// The place in arrays by unit, `0..Unit::COUNT`.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// How an amount is known, the worst basis first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Derived from bytes: right to an order of magnitude.
    Estimated,
    /// Counted in the traffic: shapes, list lengths, content chunks, or by a tokenizer.
    Counted,
    /// Reported by the server.
    Reported,
}

impl Basis {
    /// The name on every surface.
    #[must_use]
    #[inline]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Estimated => "estimated",
            Self::Counted => "counted",
            Self::Reported => "reported",
        }
    }
}

/// Who states an amount, the least trusted first: the bases, and between counted and reported what a gateway says about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AmountRank {
    Estimated,
    Counted,
    ReportedByGateway,
    Reported,
}

impl AmountRank {
    const fn of(basis: Basis) -> Self {
        match basis {
            Basis::Estimated => Self::Estimated,
            Basis::Counted => Self::Counted,
            Basis::Reported => Self::Reported,
        }
    }

    const fn basis(self) -> Basis {
        match self {
            Self::Estimated => Basis::Estimated,
            Self::Counted => Basis::Counted,
            Self::ReportedByGateway | Self::Reported => Basis::Reported,
        }
    }
}

/// The work of one request. An unknown amount is absent, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// The unit that best describes the cost of this request; `None` if no amount is known.
    pub primary: Option<Unit>,
    /// The number of sequences that the answer has, which are generated at once. With more than one, no time is that of a single
    /// token. Zero if unknown, which counts as one.
    pub sequences: u64,
    amounts: [u64; Unit::COUNT],
    ranks: [Option<AmountRank>; Unit::COUNT],
}

impl Work {
    /// Sets an amount. A better basis wins over a worse one, and the later amount wins over an equal one.
    #[inline]
    pub fn set(&mut self, unit: Unit, amount: u64, basis: Basis) {
        self.rank(unit, amount, AmountRank::of(basis));
    }

    /// Sets an amount that a gateway in front of the server names. It counts as reported, until the server itself reports one.
    #[inline]
    pub fn set_by_gateway(&mut self, unit: Unit, amount: u64) {
        self.rank(unit, amount, AmountRank::ReportedByGateway);
    }

    fn rank(&mut self, unit: Unit, amount: u64, rank: AmountRank) {
        let at = unit.index();
        if self.ranks[at].is_none_or(|known| rank >= known) {
            (self.amounts[at], self.ranks[at]) = (amount, Some(rank));
        }
    }

    /// Whether the server itself has reported this amount.
    #[must_use]
    #[inline]
    pub fn is_reported_by_server(&self, unit: Unit) -> bool {
        self.ranks[unit.index()] == Some(AmountRank::Reported)
    }

    /// An amount and how it is known.
    #[must_use]
    #[inline]
    pub fn get(&self, unit: Unit) -> Option<(u64, Basis)> {
        Some((self.amounts[unit.index()], self.ranks[unit.index()]?.basis()))
    }

    /// The amount of the primary unit.
    #[must_use]
    #[inline]
    pub fn primary_amount(&self) -> Option<u64> {
        Some(self.get(self.primary?)?.0)
    }

    /// The cost class: `k` if the primary amount is in `2^k..2^(k+1)`, at most [`Self::CLASSES`] − 1. `None` for an amount of
    /// zero.
    #[must_use]
    #[inline]
    pub fn class(&self) -> Option<usize> {
        Self::class_of(self.primary_amount()?)
    }

    /// The cost class of an amount; `None` for zero.
    #[must_use]
    #[inline]
    pub fn class_of(amount: u64) -> Option<usize> {
        Some((amount.checked_ilog2()? as usize).min(Self::CLASSES - 1))
    }

    /// How many cost classes there are; the last one has no upper bound.
    pub const CLASSES: usize = 25;
}

/// A stage or phase whose time is divided by work: a slot of the per-unit histograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PerUnit {
    /// Ingress per byte of the request.
    Ingress,
    /// Hydration per entity.
    Hydration,
    /// Preprocessing per primary unit; for generative models per input token.
    Preprocessing,
    /// Forward per primary unit.
    Forward,
    /// Prefill per input token.
    Prefill,
    /// Decode per output token after the first, which is part of prefill.
    Decode,
    /// Postprocessing per primary unit.
    Postprocessing,
    /// Egress per byte of the response.
    Egress,
    /// The undivided upstream window per primary unit.
    Upstream,
    /// Forward per 10⁹ FLOPs.
    ForwardFlop,
}

impl PerUnit {
    /// How many slots there are.
    pub const COUNT: usize = 10;

    /// Every slot, in the order of a request's life.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Ingress,
        Self::Hydration,
        Self::Preprocessing,
        Self::Forward,
        Self::Prefill,
        Self::Decode,
        Self::Postprocessing,
        Self::Egress,
        Self::Upstream,
        Self::ForwardFlop,
    ];

    /// The place in arrays by slot.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The stage and phase that the time belongs to.
    #[must_use]
    #[inline]
    pub const fn stage(self) -> (Stage, Option<Phase>) {
        match self {
            Self::Ingress => (Stage::Ingress, None),
            Self::Hydration => (Stage::Hydration, None),
            Self::Preprocessing => (Stage::Preprocessing, None),
            Self::Forward | Self::ForwardFlop => (Stage::Forward, None),
            Self::Prefill => (Stage::Forward, Some(Phase::Prefill)),
            Self::Decode => (Stage::Forward, Some(Phase::Decode)),
            Self::Postprocessing => (Stage::Postprocessing, None),
            Self::Egress => (Stage::Egress, None),
            Self::Upstream => (Stage::Upstream, None),
        }
    }

    /// The name of the stage or phase on every surface.
    #[must_use]
    #[inline]
    pub const fn name(self) -> &'static str {
        match self.stage() {
            (_, Some(phase)) => phase.name(),
            (stage, None) => stage.name(),
        }
    }

    /// The unit of the slot if the primary unit is `primary`.
    #[must_use]
    #[inline]
    pub const fn unit(self, primary: Unit) -> Unit {
        match (self, primary) {
            (Self::Ingress | Self::Egress, _) => Unit::Byte,
            (Self::Hydration, _) => Unit::Entity,
            (Self::Prefill, _) | (Self::Preprocessing, Unit::OutputToken) => Unit::InputToken,
            (Self::Decode, _) => Unit::OutputToken,
            (Self::ForwardFlop, _) => Unit::Flop,
            (Self::Preprocessing | Self::Forward | Self::Postprocessing | Self::Upstream, _) => primary,
        }
    }

    /// The number of units a request has for the slot; `None` if it is unknown or zero.
    #[must_use]
    #[inline]
    pub fn amount(self, work: &Work, request_bytes: u64, response_bytes: u64) -> Option<u64> {
        let of = |unit| work.get(unit).map(|(amount, _)| amount);
        let amount = match self {
            Self::Ingress => Some(request_bytes),
            Self::Egress => Some(response_bytes),
            // the first token is part of prefill
            Self::Decode if work.sequences > 1 => None,
            Self::Decode => of(Unit::OutputToken).map(|tokens| tokens.saturating_sub(1)),
            _ => of(self.unit(work.primary?)),
        };
        amount.filter(|amount| *amount > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_better_basis_wins() {
        let mut work = Work { primary: Some(Unit::OutputToken), ..Work::default() };
        assert_eq!((work.primary_amount(), work.class()), (None, None));
        work.set(Unit::OutputToken, 7, Basis::Counted);
        work.set(Unit::OutputToken, 900, Basis::Estimated);
        assert_eq!(work.get(Unit::OutputToken), Some((7, Basis::Counted)));
        work.set(Unit::OutputToken, 8, Basis::Reported);
        assert_eq!((work.primary_amount(), work.class()), (Some(8), Some(3)));
        work.set(Unit::OutputToken, 0, Basis::Reported);
        assert_eq!(work.class(), None);
        work.set(Unit::OutputToken, u64::MAX, Basis::Reported);
        assert_eq!(work.class(), Some(Work::CLASSES - 1));
    }

    #[test]
    fn a_gateways_word_counts_as_reported_until_the_server_reports() {
        let mut work = Work::default();
        work.set_by_gateway(Unit::InputToken, 7);
        work.set(Unit::InputToken, 8, Basis::Counted);
        assert_eq!(work.get(Unit::InputToken), Some((7, Basis::Reported)));
        assert!(!work.is_reported_by_server(Unit::InputToken));
        work.set(Unit::InputToken, 9, Basis::Reported);
        work.set_by_gateway(Unit::InputToken, 7);
        assert_eq!(work.get(Unit::InputToken), Some((9, Basis::Reported)));
        assert!(work.is_reported_by_server(Unit::InputToken));
    }

    #[test]
    fn each_slot_has_its_unit_and_amount() {
        let mut work = Work { primary: Some(Unit::OutputToken), ..Work::default() };
        work.set(Unit::InputToken, 100, Basis::Reported);
        work.set(Unit::OutputToken, 11, Basis::Reported);
        work.set(Unit::Row, 1, Basis::Counted);
        work.set(Unit::Entity, 3, Basis::Counted);
        let amounts: Vec<_> = PerUnit::ALL.into_iter().map(|slot| slot.amount(&work, 300, 0)).collect();
        let expected = [Some(300), Some(3), Some(100), Some(11), Some(100), Some(10), Some(11), None, Some(11), None];
        assert_eq!(amounts, expected);
        work.sequences = 2;
        assert_eq!(PerUnit::Decode.amount(&work, 300, 0), None, "tokens of two sequences came at once");
        for (i, slot) in PerUnit::ALL.into_iter().enumerate() {
            assert_eq!(slot.index(), i);
        }
        for (i, unit) in Unit::ALL.into_iter().enumerate() {
            assert_eq!(unit.index(), i);
        }
    }
}
