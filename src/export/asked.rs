//! What one request asked for, its time over that, and the pace of its answer, as `/exchanges` says it.

use serde::Serialize;

use super::pairs::{Pairs, slot_key};
use super::stats::speed;
use crate::ledger::{Basis, Exchange, PerUnit, Unit, Work};
use crate::metrics::{Units, per_unit_ps, slots};

/// How much of each unit that is known.
#[derive(Debug, Serialize)]
pub(super) struct Amounts {
    primary: Option<Unit>,
    #[serde(flatten)]
    amounts: Pairs<Amount>,
}

#[derive(Clone, Debug, Serialize)]
struct Amount {
    amount: u64,
    basis: Basis,
}

impl Amounts {
    /// `None` where nothing is known.
    pub(super) fn of(work: &Work) -> Option<Self> {
        let known = Unit::ALL.into_iter().filter_map(|unit| Some((unit.name(), work.get(unit)?)));
        let amounts = Pairs::from_iter(known.map(|(name, (amount, basis))| (name, Amount { amount, basis })));
        (work.primary.is_some() || !amounts.0.is_empty()).then_some(Self { primary: work.primary, amounts })
    }
}

/// The time of a stage or phase over its units.
#[derive(Clone, Debug, Serialize)]
pub(super) struct UnitTime {
    unit: &'static str,
    units: Units,
    ps: u64,
}

impl UnitTime {
    /// By slot; none for a request that was not answered.
    pub(super) fn of(exchange: &Exchange) -> Pairs<Self> {
        let made = |(slot, unit, ns, units): (PerUnit, Unit, u64, u64)| {
            let ps = per_unit_ps(ns, units, unit);
            (slot_key(slot), Self { unit: unit.per_name(), units: Units::new(units.into(), unit), ps })
        };
        slots(exchange).map(made).collect()
    }
}

/// The pace of a generated answer.
#[derive(Debug, Serialize)]
pub(super) struct Pace {
    streamed: bool,
    first_token_ns: Option<u64>,
    per_output_token_ns: Option<u64>,
    output_tokens_per_s: Option<f64>,
    chunks: u64,
    gaps: usize,
    gaps_dropped: u64,
    server: Option<ServerPace>,
}

/// The pace by the server's word.
#[derive(Debug, Serialize)]
struct ServerPace {
    first_token_ns: Option<u64>,
    per_output_token_ns: Option<u64>,
}

impl Pace {
    /// `None` where the answer was not generated.
    pub(super) fn of(exchange: &Exchange) -> Option<Self> {
        let generation = exchange.ledger.generation.as_ref()?;
        let (first, per_token) = (generation.server_first_token_ns, generation.server_per_output_token_ns);
        let per_output_token_ns = exchange.per_output_token_ns();
        Some(Self {
            streamed: generation.first_ns.is_some(),
            first_token_ns: exchange.first_token_ns(),
            per_output_token_ns,
            output_tokens_per_s: per_output_token_ns.and_then(speed),
            chunks: generation.chunks,
            gaps: generation.gaps_us.len(),
            gaps_dropped: generation.gaps_dropped,
            server: (first.is_some() || per_token.is_some())
                .then_some(ServerPace { first_token_ns: first, per_output_token_ns: per_token }),
        })
    }
}
