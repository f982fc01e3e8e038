//! The work of one request, its time per unit of work, and the timing of its tokens, as `/exchanges` shows them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::pairs::{Pairs, slot_key};
use super::work::speed;
use crate::{Labels, Measure, Units, per_unit_ps, slots};
use lapwing_ledger::{Basis, Exchange, ForwardDebt, PerUnit, Unit, Work};

/// The amount of each unit that is known.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Amounts {
    primary: Option<Unit>,
    #[serde(flatten)]
    amounts: Pairs<Amount>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Amount {
    amount: u64,
    basis: Basis,
}

impl Amounts {
    /// `None` when nothing is known.
    pub(crate) fn of(work: &Work) -> Option<Self> {
        let known = Unit::ALL.into_iter().filter_map(|unit| Some((unit.name(), work.get(unit)?)));
        let amounts = Pairs::from_iter(known.map(|(name, (amount, basis))| (name, Amount { amount, basis })));
        (work.primary.is_some() || !amounts.0.is_empty()).then_some(Self { primary: work.primary, amounts })
    }
}

/// The time of a stage or phase divided by its units.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct UnitTime {
    unit: &'static str,
    units: Units,
    ps: u64,
}

impl UnitTime {
    /// By slot; empty for a request that was not answered.
    pub(crate) fn of(exchange: &Exchange) -> Pairs<Self> {
        let made = |(slot, unit, ns, units): (PerUnit, Unit, u64, u64)| {
            let ps = per_unit_ps(ns, units, unit);
            (slot_key(slot), Self { unit: unit.per_name(), units: Units::new(units.into(), unit), ps })
        };
        slots(exchange).map(made).collect()
    }
}

/// The forward of a request over what the optimum takes for the same work.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ExchangeDebt {
    ratio: f64,
    forward_ns: u64,
    optimum_ps: u64,
    optimum: Arc<str>,
}

impl ExchangeDebt {
    /// `None` where the request has no debt: no optimum, no reported forward, unknown work, or no answer.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub(crate) fn of(exchange: &Exchange, labels: &Labels) -> Option<Self> {
        let debt = exchange.forward_debt().filter(|_| Measure::of(exchange) == Measure::Total)?;
        Some(Self {
            ratio: debt.ratio_ppm() as f64 / ForwardDebt::PPM as f64,
            forward_ns: debt.forward_ns,
            optimum_ps: debt.optimum_ps.get(),
            optimum: labels.optima.text(exchange.optimal_forward?.optimum),
        })
    }
}

/// When the tokens of a generated response came, measured at the proxy.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TokenTiming {
    streamed: bool,
    first_token_ns: Option<u64>,
    per_output_token_ns: Option<u64>,
    output_tokens_per_s: Option<f64>,
    chunks: u64,
    gaps: usize,
    gaps_dropped: u64,
    server: Option<ServerTokenTiming>,
}

/// The same as the server reported it.
#[derive(Debug, Serialize, JsonSchema)]
struct ServerTokenTiming {
    first_token_ns: Option<u64>,
    per_output_token_ns: Option<u64>,
}

impl TokenTiming {
    /// `None` when the response was not generated.
    pub(crate) fn of(exchange: &Exchange) -> Option<Self> {
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
                .then_some(ServerTokenTiming { first_token_ns: first, per_output_token_ns: per_token }),
        })
    }
}
