//! Service times as they were measured, and gaps between arrivals like the measured ones.

use crate::fit::{Part, Ratios};
use crate::random::SeededRandom;

/// A request of the simulation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The gap before it, in units of the mean gap.
    pub(crate) gap: f64,
    /// How long it takes a slot, in nanoseconds.
    pub(crate) service_ns: f64,
    /// What comes on top without a slot, in nanoseconds.
    pub(crate) late_ns: f64,
}

/// A ratio to the mean from which a service time counts as an outlier.
const OUTLIER: f64 = 3.0;

/// This share of the difference between a service time and the wait for each request ahead is time without a slot. The rest comes from the fit,
/// which takes a request outside its slot for one that is ahead; found by simulation, with a twelfth to a quarter of the service time outside
/// the slot.
const WITHOUT_SLOT: f64 = 0.7;

/// What of a service time takes a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SlotUse {
    /// Whether outliers take their slot, and not only their own request's time.
    pub(crate) by_outliers: bool,
    /// Whether a part of each service time takes none, as the waits of those behind say.
    pub(crate) partly: bool,
}

impl SlotUse {
    /// The part of each service time that takes no slot, in nanoseconds.
    pub(crate) fn free_ns(self, part: &Part) -> f64 {
        if self.partly { WITHOUT_SLOT * (part.mean_service_ns() - part.slot_ns()).max(0.0) } else { 0.0 }
    }
}

/// Draws `count` requests.
pub(crate) fn draw(part: &Part, slot_use: SlotUse, random: &mut SeededRandom, count: usize) -> Vec<Request> {
    let free_ns = slot_use.free_ns(part);
    let works: Vec<(f64, f64, f64)> = part.works().collect();
    let mut cumulated = Vec::with_capacity(works.len());
    let mut weight = 0.0;
    for work in &works {
        weight += work.0;
        cumulated.push(weight);
    }
    let mut ratios = Vec::new();
    let mut counted = 0_u64;
    for count in part.ratios.0 {
        counted += u64::from(count);
        ratios.push(counted);
    }
    let gaps = Gaps::of(part.gap_variation);
    let mut draw_one = || {
        let place = random.uniform() * weight;
        let at = cumulated.partition_point(|below| *below <= place).min(works.len().saturating_sub(1));
        let (_, mean, deviation) = works.get(at).copied().unwrap_or_default();
        // uniform within its class
        let work = (mean + deviation * 3.0_f64.sqrt() * (2.0 * random.uniform() - 1.0)).max(0.0);
        let service_ns = part.service_ns(work);
        let place = random.uniform() * counted as f64;
        let bucket = ratios.partition_point(|below| *below as f64 <= place).min(ratios.len().saturating_sub(1));
        let ratio = if counted == 0 { 1.0 } else { Ratios::ratio(bucket, random.uniform()) };
        let gap = gaps.draw(random);
        let in_slot_ns = (service_ns - free_ns).max(0.0);
        if ratio > OUTLIER && !slot_use.by_outliers {
            Request { gap, service_ns: in_slot_ns, late_ns: service_ns * ratio - in_slot_ns }
        } else {
            Request { gap, service_ns: in_slot_ns * ratio, late_ns: (service_ns - in_slot_ns) * ratio }
        }
    };
    (0..count).map(|_| draw_one()).collect()
}

/// The mean ratio of a service time to what the fit expects, outliers included.
pub(crate) fn mean_ratio(ratios: &Ratios) -> f64 {
    let sum: f64 = ratios.0.iter().enumerate().map(|(bucket, count)| f64::from(*count) * Ratios::ratio(bucket, 0.5)).sum();
    if ratios.total() == 0 { 1.0 } else { sum / ratios.total() as f64 }
}

/// How gaps between arrivals are drawn, by their measured variation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Gaps {
    /// A Poisson process.
    Poisson,
    /// More even than that: the sum of some exponential steps (Erlang).
    Even { steps: u32 },
    /// More uneven: short gaps with this probability, long ones else (a hyperexponential distribution with balanced means).
    Bursts { short: f64 },
}

impl Gaps {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between one and ten")]
    pub(crate) fn of(variation: f64) -> Self {
        if variation > 1.5 {
            let variation = variation.min(100.0);
            Self::Bursts { short: (1.0 + ((variation - 1.0) / (variation + 1.0)).sqrt()) / 2.0 }
        } else if variation < 0.6 && variation > 0.0 {
            Self::Even { steps: (1.0 / variation).round().clamp(2.0, 10.0) as u32 }
        } else {
            Self::Poisson
        }
    }

    fn draw(self, random: &mut SeededRandom) -> f64 {
        match self {
            Self::Poisson => random.exponential(),
            Self::Even { steps } => (0..steps).map(|_| random.exponential()).sum::<f64>() / f64::from(steps),
            Self::Bursts { short } => {
                let share = if random.uniform() < short { short } else { 1.0 - short };
                random.exponential() / (2.0 * share)
            }
        }
    }
}
