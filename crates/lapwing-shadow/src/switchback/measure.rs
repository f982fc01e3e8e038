//! What is compared between a lever's two sides, and what the comparison means.

use schemars::JsonSchema;
use serde::Serialize;

use super::block::BlockFigures;
use super::config::HarmLimits;
use lapwing_compare::ab::EffectTracker;

/// A gain is found with a probability of at most one in so many, over all looks of a trial, by each of four measures where there is none. With those of
/// [`TrialMeasure::harm`] that is 5 % together. Harm has more, because the guard waits for it.
const GAIN: f64 = 670.0;

/// A figure of each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrialMeasure {
    /// The p50 of the total time of all requests that were answered.
    P50,
    /// Their p99, in blocks of at least 100.
    P99,
    /// The share of requests that failed.
    Errors,
    /// What was done a second: units of work, or requests where no units are known.
    Throughput,
}

impl TrialMeasure {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::P50, Self::P99, Self::Errors, Self::Throughput];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Errors => "errors",
            Self::Throughput => "throughput",
        }
    }

    /// Harm is found with a probability of at most one in so many where there is none. All requests carry the p50, so it finds harm first, and has most.
    const fn harm(self) -> f64 {
        match self {
            Self::P50 => 50.0,
            Self::P99 | Self::Errors | Self::Throughput => 125.0,
        }
    }

    /// Fewer requests of a block say nothing of it.
    const fn least_requests(self) -> u64 {
        match self {
            Self::P50 => 10,
            Self::P99 => 100,
            Self::Errors => 1,
            Self::Throughput => 0,
        }
    }

    /// Its value in a block, as effects add to it; `None` if the block has too few requests.
    #[allow(clippy::cast_precision_loss, reason = "requests and units")]
    fn of(self, block: &BlockFigures) -> Option<f64> {
        let answered = block.totals.total();
        match self {
            Self::P50 | Self::P99 if answered < self.least_requests() => None,
            Self::P50 => block.totals.quantile(0.5).map(|ns| ns.max(1.0).ln()),
            Self::P99 => block.totals.quantile(0.99).map(|ns| ns.max(1.0).ln()),
            Self::Errors if block.requests < self.least_requests() => None,
            Self::Errors => Some(block.failed as f64 / block.requests as f64),
            Self::Throughput => {
                let done = if block.units > 0 { block.units } else { answered };
                Some((done as f64 + 0.5).ln() - (block.ns.max(1) as f64 / 1e9).ln())
            }
        }
    }

    const fn is_share(self) -> bool {
        matches!(self, Self::Errors)
    }

    /// Whether more of it is better.
    const fn is_gain(self) -> bool {
        matches!(self, Self::Throughput)
    }

    /// A difference that nobody minds.
    fn margin(self) -> f64 {
        match self {
            Self::P50 | Self::Throughput => 1.02_f64.ln(),
            Self::P99 => 1.1_f64.ln(),
            Self::Errors => 0.005,
        }
    }
}

/// What is known of a lever by one measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrialVerdict {
    /// Nothing yet.
    Undecided,
    /// It is no worse and no better than within the margin.
    Same,
    /// It is better.
    Better,
    /// It is worse.
    Worse,
}

impl TrialVerdict {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Undecided => "undecided",
            Self::Same => "same",
            Self::Better => "better",
            Self::Worse => "worse",
        }
    }
}

/// The effect of a lever on one measure: a ratio, on to off, or of shares a difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialEffect {
    /// Of what.
    pub measure: TrialMeasure,
    /// The most likely one.
    pub value: Option<f64>,
    /// Its bounds, as far as they are known.
    pub low: Option<f64>,
    /// The same.
    pub high: Option<f64>,
    /// What it means.
    pub verdict: TrialVerdict,
    /// How far from no effect the bounds may be for [`TrialVerdict::Same`]: 0.02 is 2 %, or 2 points.
    pub margin: f64,
    /// Blocks of which a coin decided, and that had enough requests.
    pub coins: u32,
    /// Blocks that had too few.
    pub too_few: u32,
}

/// Follows one measure.
#[derive(Clone, Debug)]
pub(crate) struct MeasureTracker {
    measure: TrialMeasure,
    effect: EffectTracker,
    too_few: u32,
}

impl MeasureTracker {
    pub(crate) fn new(measure: TrialMeasure) -> Self {
        let effect = if measure.is_share() { EffectTracker::of_share() } else { EffectTracker::of_ratio() };
        Self { measure, effect, too_few: 0 }
    }

    pub(crate) fn record(&mut self, block: &BlockFigures, is_on: bool, is_coin: bool) {
        match self.measure.of(block) {
            Some(figure) => self.effect.record(figure, is_on, is_coin),
            None => self.too_few += 1,
        }
    }

    /// The bounds of the effect, as effects add to the measure. They are refuted themselves.
    fn interval(&self) -> (f64, f64) {
        let harm = self.measure.harm();
        if self.measure.is_gain() { self.effect.interval(GAIN, harm) } else { self.effect.interval(harm, GAIN) }
    }

    pub(crate) fn effect(&self) -> TrialEffect {
        let (low, high) = self.interval();
        let margin = self.measure.margin();
        let verdict = if low >= -margin && high <= margin {
            TrialVerdict::Same
        } else if low < 0.0 && high > 0.0 {
            TrialVerdict::Undecided
        } else if (low >= 0.0) == self.measure.is_gain() {
            TrialVerdict::Better
        } else {
            TrialVerdict::Worse
        };
        let shown = |effect: f64| if self.measure.is_share() { effect } else { effect.exp() };
        TrialEffect {
            measure: self.measure,
            value: self.effect.estimate().map(shown),
            low: Some(low).filter(|low| low.is_finite()).map(shown),
            high: Some(high).filter(|high| high.is_finite()).map(shown),
            verdict,
            margin: if self.measure.is_share() { margin } else { margin.exp_m1() },
            coins: self.effect.coins(),
            too_few: self.too_few,
        }
    }

    /// Why its limit is exceeded, if it is.
    pub(crate) fn exceeds(&self, limits: &HarmLimits) -> Option<String> {
        let (low, high) = self.interval();
        let (limit, is_exceeded) = match self.measure {
            TrialMeasure::P50 => limits.p50_ratio.on().map(|limit| (limit.to_string(), low >= limit.get().ln()))?,
            TrialMeasure::P99 => limits.p99_ratio.on().map(|limit| (limit.to_string(), low >= limit.get().ln()))?,
            TrialMeasure::Errors => limits.errors.on().map(|limit| (limit.to_string(), low >= limit.get()))?,
            TrialMeasure::Throughput => {
                limits.throughput_ratio.on().map(|limit| (limit.to_string(), high <= limit.get().ln()))?
            }
        };
        let effect = self.effect();
        is_exceeded
            .then(|| format!("{}; the limit is {limit}{}", effect.words(), if self.measure.is_share() { " more" } else { "×" }))
    }
}

impl TrialEffect {
    /// Measure, effect and bounds, as in `p50 is 1.100× [1.020, 1.200] while it is on`.
    #[must_use]
    pub fn words(&self) -> String {
        let name = self.measure.name();
        let text = |value: Option<f64>, unknown: &str| match value {
            None => unknown.to_owned(),
            Some(share) if self.measure.is_share() => format!("{:+.2}", 100.0 * share),
            Some(ratio) => format!("{ratio:.3}"),
        };
        let (low, high) = (text(self.low, "?"), text(self.high, "?"));
        let unit = if self.measure.is_share() { " points" } else { "×" };
        format!("{name} is {}{unit} [{low}, {high}] while it is on", text(self.value, "?"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(ns: u64, requests: u64, failed: u64) -> BlockFigures {
        let mut figures = BlockFigures { ns: 10_000_000_000, requests, failed, ..BlockFigures::default() };
        (failed..requests).for_each(|n| figures.totals.record(ns + n * 1_000));
        figures
    }

    /// After blocks of these on and off, in turn.
    fn after(measure: TrialMeasure, blocks: u32, on: &BlockFigures, off: &BlockFigures) -> MeasureTracker {
        let mut tracker = MeasureTracker::new(measure);
        (0..blocks).for_each(|n| tracker.record(if n % 3 == 1 { on } else { off }, n % 3 == 1, true));
        tracker
    }

    #[test]
    fn each_measure_finds_harm_and_gain() {
        let (slow, quick, failing) = (block(12_000_000, 200, 0), block(9_000_000, 220, 0), block(10_000_000, 200, 10));
        let off = block(10_000_000, 200, 0);
        for (measure, on, verdict) in [
            (TrialMeasure::P50, &slow, TrialVerdict::Worse),
            (TrialMeasure::P99, &slow, TrialVerdict::Worse),
            (TrialMeasure::P50, &quick, TrialVerdict::Better),
            (TrialMeasure::Throughput, &quick, TrialVerdict::Better),
            (TrialMeasure::Throughput, &failing, TrialVerdict::Worse),
            (TrialMeasure::Errors, &failing, TrialVerdict::Worse),
            (TrialMeasure::Errors, &slow, TrialVerdict::Same),
        ] {
            let effect = after(measure, 60, on, &off).effect();
            assert_eq!(effect.verdict, verdict, "{effect:?}");
        }
        let words = after(TrialMeasure::Errors, 60, &failing, &off).exceeds(&HarmLimits::default()).unwrap();
        assert!(words.starts_with("errors is +5.0") && words.ends_with("while it is on; the limit is 0% more"), "{words}");
        let words = after(TrialMeasure::P50, 60, &slow, &off).exceeds(&HarmLimits::default()).unwrap();
        assert!(words.starts_with("p50 is 1.200× [1.1") && words.ends_with("the limit is 1×"), "{words}");
    }

    #[test]
    fn a_limit_counts_as_exceeded_when_the_whole_interval_is() {
        let limits = |text: &str| serde_json::from_str::<HarmLimits>(text).unwrap();
        let tracker = after(TrialMeasure::P50, 60, &block(12_000_000, 200, 0), &block(10_000_000, 200, 0));
        assert!(tracker.exceeds(&limits(r#"{"p50_ratio": 1.1}"#)).is_some());
        assert_eq!(tracker.exceeds(&limits(r#"{"p50_ratio": 1.3}"#)), None);
        assert_eq!(tracker.exceeds(&limits(r#"{"p50_ratio": "off"}"#)), None);
    }

    #[test]
    fn all_errors_together_are_five_per_cent() {
        let wrong: f64 = TrialMeasure::ALL.iter().map(|measure| 1.0 / measure.harm() + 1.0 / GAIN).sum();
        assert!(wrong <= 0.05, "{wrong}");
    }

    #[test]
    fn blocks_with_too_few_requests_are_counted_apart() {
        let (few, none) = (block(10_000_000, 50, 0), block(10_000_000, 0, 0));
        assert_eq!(after(TrialMeasure::P99, 9, &few, &few).effect().too_few, 9);
        assert_eq!(after(TrialMeasure::P50, 9, &few, &none).effect().too_few, 6);
        assert_eq!(after(TrialMeasure::Errors, 9, &none, &none).effect().coins, 0);
        // a lever that stops everything
        assert_eq!(after(TrialMeasure::Throughput, 60, &none, &few).effect().verdict, TrialVerdict::Worse);
        assert_eq!(TrialMeasure::ALL.map(TrialMeasure::name), ["p50", "p99", "errors", "throughput"]);
    }
}
