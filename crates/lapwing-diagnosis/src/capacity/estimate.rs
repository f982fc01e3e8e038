//! The estimate of a series' capacity, with its model's name and what it assumes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::crossing;
use super::queue::quantile_ns;
use super::service::{self, Gaps, SlotUse};
use crate::fit::{FittedValue, FittedWaiting, Part, WindowFit};
use crate::random::SeededRandom;

/// Requests of the simulation that the estimate comes from, and of each one that its interval comes from.
const REQUESTS: usize = 20_000;
const REPEATED: usize = 6_000;
/// How often blocks of time are drawn again for the interval.
const REPEATS: u64 = 16;
/// A server whose slots times the wait for each request ahead is less than this part of its service time, or more than that many
/// times of it, does not work on its slots one by one: it batches, or its slots share something.
const ONE_BY_ONE: [f64; 2] = [0.7, 1.6];
/// Below this ratio of the two, a part of the service time takes no slot; above it, the difference is the fit's error.
const WHOLE: f64 = 0.9;
const SEED: u64 = 0x1a9_71a6;

/// What is asked of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CapacityQuestion {
    /// The quantile that the budget is for, `0..1`, such as 0.99.
    pub quantile: f64,
    /// The budget for a request's whole time, in nanoseconds.
    pub budget_ns: u64,
    /// What a request takes outside its upstream window, in nanoseconds.
    pub outside_ns: u64,
}

/// What a server can take, estimated. Exactly one of `rate_at_budget` and `refused` is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapacityEstimate {
    /// The model that it comes from, such as `M/G/1, simulated with measured service times`.
    pub model: String,
    /// What it takes for granted.
    pub assumptions: Vec<String>,
    /// Requests per second, as measured.
    pub rate_now: f64,
    /// The share of its slots' time that the server works, with an interval that holds it with a probability of 95 %.
    pub utilisation: FittedValue,
    /// The quantile that the budget is for, `0..1`.
    pub quantile: f64,
    /// The budget for a request's whole time, in nanoseconds.
    pub budget_ns: u64,
    /// Requests per second at which the quantile crosses its budget, with an interval that holds it with a probability of 95 %; zero if
    /// the budget is not kept without load either.
    pub rate_at_budget: Option<FittedValue>,
    /// The quantile at the present rate by the same model, in nanoseconds. If it is far from the measured one, the model does not hold.
    pub predicted_now_ns: f64,
    /// The quantile with one more replica, which takes half of the requests, in nanoseconds.
    pub with_one_more_replica_ns: f64,
    /// Why there is no estimate.
    pub refused: Option<RefusedCapacity>,
}

/// Why a capacity is not estimated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedCapacity {
    /// The reason's name: `no_waiting_seen`, `not_one_by_one` or `no_rate`.
    pub reason: String,
    /// The reason in words.
    pub sentence: String,
    /// What would help.
    pub help: String,
}

impl CapacityEstimate {
    /// Estimates the capacity of a series from its fit. Takes some ten milliseconds.
    #[must_use]
    pub fn of(fit: &WindowFit, question: &CapacityQuestion) -> Self {
        let part = fit.all();
        let base = Self { rate_now: part.rate, quantile: question.quantile, budget_ns: question.budget_ns, ..Self::default() };
        let (per_ahead_ns, slots, slots_interval) = match fit.waiting {
            FittedWaiting::Fitted { per_ahead_ns, slots, slots_interval } => (per_ahead_ns, slots, slots_interval),
            FittedWaiting::Unseen { most_in_flight } => return base.refuse(Reason::NoWaiting { most_in_flight }),
        };
        if part.rate <= 0.0 {
            return base.refuse(Reason::NoRate);
        }
        let one_by_one = per_ahead_ns.value * f64::from(slots) / fit.service_ns.value;
        if !(ONE_BY_ONE[0]..=ONE_BY_ONE[1]).contains(&one_by_one) {
            return base.refuse(Reason::NotOneByOne { ratio: one_by_one });
        }
        // outliers that hold a slot are waited for, so that each request ahead takes longer than it should
        let by_outliers = one_by_one > f64::midpoint(1.0, service::mean_ratio(&part.ratios)) && fit.outlier_share > 0.0;
        // no other request waits for what comes before and after the slot
        let slot_use = SlotUse { by_outliers, partly: one_by_one < WHOLE };
        let budget_ns = question.budget_ns.saturating_sub(question.outside_ns) as f64;
        let requests = service::draw(part, slot_use, &mut SeededRandom::new(SEED), REQUESTS);
        let outside_ns = question.outside_ns as f64;
        let at = |rate: f64| quantile_ns(&requests, slots, rate, question.quantile) + outside_ns;
        let rate = crossing::find(&requests, slots, question.quantile, budget_ns).rate();
        let repeats = Repeats::of(fit, slots, slot_use, question.quantile, budget_ns);
        let utilisation = |part: &Part| part.rate * service_seconds(part, slot_use) / f64::from(slots);
        Self {
            model: name(part, slots),
            assumptions: assumptions(slots, slots_interval, slot_use, part, fit),
            utilisation: repeats.interval(utilisation(part), |repeat| utilisation(&repeat.part)),
            rate_at_budget: Some(repeats.interval(rate, |repeat| repeat.rate)),
            predicted_now_ns: at(part.rate),
            with_one_more_replica_ns: at(part.rate / 2.0),
            ..base
        }
    }

    fn refuse(self, reason: Reason) -> Self {
        Self { refused: Some(reason.say()), ..self }
    }
}

/// One drawing of the blocks.
struct Repeat {
    part: Part,
    rate: f64,
}

struct Repeats(Vec<Repeat>);

impl Repeats {
    fn of(fit: &WindowFit, slots: u32, slot_use: SlotUse, quantile: f64, budget_ns: f64) -> Self {
        let repeat = |at: u64| {
            let mut random = SeededRandom::new(SEED ^ (at + 1).wrapping_mul(0x5851_f42d_4c95_7f2d));
            let part = fit.resample(|count| random.place(count))?;
            let requests = service::draw(&part, slot_use, &mut random, REPEATED);
            Some(Repeat { rate: crossing::find(&requests, slots, quantile, budget_ns).rate(), part })
        };
        Self((0..REPEATS).filter_map(repeat).collect())
    }

    /// An estimate with the interval that its repeats say.
    fn interval(&self, value: f64, of: impl Fn(&Repeat) -> f64) -> FittedValue {
        let values: Vec<f64> = self.0.iter().map(of).collect();
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
        // Student's t with 15 degrees of freedom
        let half_width = 2.131 * variance.sqrt();
        FittedValue { value, low: (value - half_width).max(0.0), high: value + half_width }
    }
}

/// The mean time that a request takes a slot, in seconds.
fn service_seconds(part: &Part, slot_use: SlotUse) -> f64 {
    let (weight, sum) =
        part.works().fold((0.0, 0.0), |(weight, sum), (more, work, _)| (weight + more, sum + more * part.service_ns(work)));
    let ratio = if slot_use.by_outliers { service::mean_ratio(&part.ratios) } else { 1.0 };
    (sum / weight.max(1e-9) - slot_use.free_ns(part)).max(0.0) * ratio / 1e9
}

fn name(part: &Part, slots: u32) -> String {
    let arrivals = if Gaps::of(part.gap_variation) == Gaps::Poisson { "M" } else { "GI" };
    format!("{arrivals}/G/{slots}, simulated with measured service times")
}

fn assumptions(slots: u32, slots_interval: [u32; 2], slot_use: SlotUse, part: &Part, fit: &WindowFit) -> Vec<String> {
    let mut assumptions = vec![
        format!("the server takes requests in the order of their arrival and works on {slots} at once"),
        "only this series' requests use the server, and their mix of work stays as it is".to_owned(),
        format!(
            "gaps between arrivals are independent; their squared coefficient of variation is {:.2} as measured",
            part.gap_variation
        ),
        "one replica serves them now, and one more would take half of them".to_owned(),
    ];
    if slots_interval[0] != slots_interval[1] {
        assumptions.push(format!(
            "the figures allow {} to {} slots; the interval does not cover that",
            slots_interval[0], slots_interval[1]
        ));
    }
    if slot_use.partly {
        let free_ms = slot_use.free_ns(part) / 1e6;
        assumptions.push(format!("{free_ms:.1} ms of each request take no slot: nobody waits for them"));
    }
    if fit.outlier_share > 0.0 {
        let share = fit.outlier_share * 100.0;
        assumptions.push(if slot_use.by_outliers {
            format!("the {share:.1} % of requests that take much longer hold their slot meanwhile, as the waits behind them say")
        } else {
            format!("the {share:.1} % of requests that take much longer hold no slot meanwhile: nobody waits for them")
        });
    }
    assumptions
}

/// Why there is no estimate.
enum Reason {
    NoWaiting { most_in_flight: f64 },
    NotOneByOne { ratio: f64 },
    NoRate,
}

impl Reason {
    fn say(&self) -> RefusedCapacity {
        let (reason, sentence, help) = match self {
            Self::NoWaiting { most_in_flight } => (
                "no_waiting_seen",
                format!(
                    "no request waited, with up to {most_in_flight:.0} in flight: how many the server takes at once is not known"
                ),
                "look again under more load",
            ),
            Self::NotOneByOne { ratio } => (
                "not_one_by_one",
                format!("waits grow {ratio:.1} times as fast as a server's would that works on its slots one by one"),
                "if the server batches, or its workers share a lock or a processor, only a load test tells its capacity",
            ),
            Self::NoRate => ("no_rate", "the rate of arrivals is not known".to_owned(), "wait for more requests"),
        };
        RefusedCapacity { reason: reason.to_owned(), sentence, help: help.to_owned() }
    }
}
