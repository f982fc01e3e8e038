//! The work of a series' requests and their time per unit of work, as `/stats` shows them.

use schemars::JsonSchema;
use serde::Serialize;

use super::pairs::{Pairs, slot_key};
use super::polled;
use crate::{BatchStatistics, Distribution, HistogramScratch, Measure, SeriesSnapshot, UnitDistribution};
use lapwing_ledger::{Basis, PerUnit, Unit, Work};

/// Work, time per unit, cost classes, token timing and batches. What did not occur is left out or `null`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WorkView {
    units: Pairs<u128>,
    basis: Pairs<Pairs<u64>>,
    per_unit: Pairs<UnitDistribution>,
    classes: Vec<Class>,
    generation: Option<Generation>,
    batch: Option<BatchStatistics>,
}

/// Totals of the requests with `from..=to` of the primary unit.
#[derive(Debug, Serialize, JsonSchema)]
struct Class {
    class: usize,
    from: u64,
    to: Option<u64>,
    unit: Unit,
    #[serde(flatten)]
    distribution: Distribution,
}

/// Token timing of generated responses, as the proxy measured it and as the server reported it.
#[derive(Debug, Serialize, JsonSchema)]
struct Generation {
    first_token: Option<Distribution>,
    per_output_token: Option<Distribution>,
    inter_token: Option<Distribution>,
    server_first_token: Option<Distribution>,
    server_per_output_token: Option<Distribution>,
    output_tokens_per_s: Option<Speed>,
}

/// Output tokens per second of one request: the slow end of the time per output token is the slow end of the speed.
#[derive(Debug, Serialize, JsonSchema)]
struct Speed {
    p50: Option<f64>,
    p10: Option<f64>,
    p1: Option<f64>,
}

impl WorkView {
    pub(crate) fn of(series: &SeriesSnapshot, scratch: &mut HistogramScratch) -> Self {
        let bases = [Basis::Reported, Basis::Counted, Basis::Estimated];
        let basis = series.figures.work().map(|(unit, sum)| {
            let counts = bases.into_iter().map(|basis| (basis.name(), sum.requests(basis)));
            (unit.name(), counts.filter(|(_, n)| *n > 0).collect())
        });
        let slots = PerUnit::ALL.into_iter();
        Self {
            units: series.figures.work().map(|(unit, sum)| (unit.name(), sum.amount)).collect(),
            basis: basis.collect(),
            per_unit: slots.filter_map(|slot| Some((slot_key(slot), series.per_unit(slot, scratch)?))).collect(),
            classes: classes(series, scratch),
            generation: Generation::of(series, scratch),
            batch: polled::latest(&series.polled.unwrap_or_default(), series.batch),
        }
    }
}

fn classes(series: &SeriesSnapshot, scratch: &mut HistogramScratch) -> Vec<Class> {
    let Some(unit) = series.facts.primary else { return Vec::new() };
    let occurred = (0..Work::CLASSES).filter(|class| series.figures.values(Measure::Class(*class)) > 0);
    let made = occurred.map(|class| Class {
        class,
        from: 1 << class,
        to: (class + 1 < Work::CLASSES).then(|| (1 << (class + 1)) - 1),
        unit,
        distribution: series.distribution(Measure::Class(class), scratch),
    });
    made.collect()
}

impl Generation {
    fn of(series: &SeriesSnapshot, scratch: &mut HistogramScratch) -> Option<Self> {
        let all =
            Measure::GENERATIVE.map(|measure| series.distribution(measure, scratch)).map(|d| Some(d).filter(|d| d.count > 0));
        let [first_token, per_output_token, inter_token, server_first_token, server_per_output_token] = all;
        let output_tokens_per_s =
            per_output_token.map(|d| Speed { p50: speed(d.p50_ns), p10: speed(d.p90_ns), p1: speed(d.p99_ns) });
        all.iter().any(Option::is_some).then_some(Self {
            first_token,
            per_output_token,
            inter_token,
            server_first_token,
            server_per_output_token,
            output_tokens_per_s,
        })
    }
}

/// Tokens per second of a time per token in nanoseconds; `None` when the time per token is zero.
#[allow(clippy::cast_precision_loss, reason = "a ratio")]
pub(crate) fn speed(per_token_ns: u64) -> Option<f64> {
    (per_token_ns > 0).then(|| 1e9 / per_token_ns as f64)
}
