//! `/trials`: what blocks of time show of the lever on trial, in words and as JSON. Durations are nanoseconds, shares 0 to 1.

use std::fmt;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;

use lapwing_ledger::Stamp;
use lapwing_metrics::views::Pairs;
use lapwing_shadow::switchback::{
    HarmLimits, LeverTrials, ShownBlock, TrialEffect, TrialMeasure, TrialSide, TrialSnapshot, TrialState, TrialVerdict,
};

/// What the figures suppose.
const ASSUMPTIONS: &str = "Each verdict holds at every look, and all of a trial together with 95 % confidence, however load drifts: coins decide when the lever is on. \
     Bounds suppose that its effect is constant, and over when the beginning of a block is.";

/// The whole report.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TrialView {
    /// What is tried.
    lever: &'static str,
    state: TrialStateView,
    /// Why it was stopped.
    reason: Option<String>,
    /// Whether the trial has the lever on now.
    is_on: bool,
    /// What cannot be judged, and why.
    doubts: Vec<String>,
    /// How long ago it began.
    after_ns: u64,
    /// How long the block lasts that is open.
    next_in_ns: Option<u64>,
    block_ns: u64,
    drop_ns: u64,
    limits: HarmLimitsView,
    /// The lever's effects, by measure.
    effects: Pairs<EffectView>,
    on: TrialSideView,
    off: TrialSideView,
    /// Blocks that are over: on, off, and those of both that are not compared because most requests failed.
    blocks: Pairs<u64>,
    /// Requests that are counted by side, and those that are not: of the beginning of a block, or longer than it.
    requests: Pairs<u64>,
    assumptions: &'static str,
    /// The last blocks, the oldest first.
    latest: Vec<TrialBlockView>,
}

/// What a trial does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum TrialStateView {
    /// The lever is on and off in turn.
    Running,
    /// Its time is over, and the lever is as configured.
    Over,
    /// A limit was exceeded, and the lever is off.
    Stopped,
}

/// What stops a trial; absent: nothing of this kind does.
#[derive(Debug, Serialize, JsonSchema)]
struct HarmLimitsView {
    p50_ratio: Option<f64>,
    p99_ratio: Option<f64>,
    errors: Option<f64>,
    throughput_ratio: Option<f64>,
}

/// An effect: a ratio, on to off; of `errors` the difference of the shares.
#[derive(Debug, Serialize, JsonSchema)]
struct EffectView {
    value: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    verdict: TrialVerdict,
    /// How far from no effect the bounds may be for `same`.
    margin: f64,
    /// Blocks that a coin decided and that had enough requests.
    coins: u32,
    /// Blocks that had too few.
    too_few: u32,
}

/// The requests of a side, or of a block.
#[derive(Debug, Serialize, JsonSchema)]
struct TrialSideView {
    /// Blocks.
    blocks: u64,
    requests: u64,
    failed: u64,
    /// The work of those that did not fail, in the primary unit of each.
    units: u64,
    requests_per_s: f64,
    units_per_s: f64,
    p50_ns: Option<f64>,
    p99_ns: Option<f64>,
    /// Requests that were not counted because they outlasted their block.
    outlasting: u64,
    /// Requests that were not counted because the client left.
    left: u64,
}

/// A block of time.
#[derive(Debug, Serialize, JsonSchema)]
struct TrialBlockView {
    is_on: bool,
    /// Whether it is compared: not if most of its requests failed.
    is_compared: bool,
    /// When it began, since the trial did.
    after_ns: u64,
    side: TrialSideView,
}

impl From<TrialSide> for TrialSideView {
    fn from(side: TrialSide) -> Self {
        let TrialSide { blocks, requests, failed, units, requests_per_s, units_per_s, p50_ns, p99_ns, outlasting, left } = side;
        Self { blocks, requests, failed, units, requests_per_s, units_per_s, p50_ns, p99_ns, outlasting, left }
    }
}

impl From<ShownBlock> for TrialBlockView {
    fn from(ShownBlock { is_on, is_compared, after_ns, side }: ShownBlock) -> Self {
        Self { is_on, is_compared, after_ns, side: side.into() }
    }
}

impl HarmLimitsView {
    fn of(limits: &HarmLimits) -> Self {
        Self {
            p50_ratio: limits.p50_ratio.on().map(|ratio| ratio.get()),
            p99_ratio: limits.p99_ratio.on().map(|ratio| ratio.get()),
            errors: limits.errors.on().map(|share| share.get()),
            throughput_ratio: limits.throughput_ratio.on().map(|ratio| ratio.get()),
        }
    }
}

impl From<TrialEffect> for EffectView {
    fn from(TrialEffect { value, low, high, verdict, margin, coins, too_few, .. }: TrialEffect) -> Self {
        Self { value, low, high, verdict, margin, coins, too_few }
    }
}

/// The report until now, and the sentences on its effects; `None` if there is no trial.
pub(crate) fn view(trials: &Mutex<LeverTrials>) -> Option<(TrialView, String)> {
    let TrialSnapshot { status, state, config, after_ns, next_in_ns, doubts, effects, on, off, blocks } =
        trials.lock().snapshot(Stamp::now())?;
    let sentences = effects.iter().map(|effect| format!("  {}\n", sentence(effect))).collect();
    let (state, reason) = match state {
        TrialState::Running => (TrialStateView::Running, None),
        TrialState::Over => (TrialStateView::Over, None),
        TrialState::Stopped(reason) => (TrialStateView::Stopped, Some(reason)),
    };
    let view = TrialView {
        lever: status.lever,
        state,
        reason,
        is_on: status.is_on,
        doubts,
        after_ns,
        next_in_ns,
        block_ns: config.block.as_nanos(),
        drop_ns: config.drop.as_nanos(),
        limits: HarmLimitsView::of(&config.stop_on),
        effects: effects.into_iter().map(|effect| (effect.measure.name(), effect.into())).collect(),
        on: on.into(),
        off: off.into(),
        blocks: status.blocks.iter().map(|(side, n)| (side.name(), *n)).collect(),
        requests: status.requests.into_iter().collect(),
        assumptions: ASSUMPTIONS,
        latest: blocks.into_iter().map(TrialBlockView::from).collect(),
    };
    Some((view, sentences))
}

/// What is known of an effect.
fn sentence(effect: &TrialEffect) -> String {
    let words = effect.words();
    match effect.verdict {
        TrialVerdict::Undecided => format!("{words}: undecided"),
        TrialVerdict::Better => format!("{words}: better"),
        TrialVerdict::Worse => format!("{words}: worse"),
        TrialVerdict::Same if effect.measure == TrialMeasure::Errors => {
            format!("{words}: no difference beyond {:.1} points", 100.0 * effect.margin)
        }
        TrialVerdict::Same => format!("{words}: no difference beyond {:.0} %", 100.0 * effect.margin),
    }
}

/// In words, for people: what it does, what it could not judge, then what it could. `effects` are the sentences on these.
pub(crate) fn words(view: &TrialView, effects: &str) -> String {
    format!("{view}{effects}\n{ASSUMPTIONS}\n")
}

impl fmt::Display for TrialView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lever, state, is_on, .. } = self;
        let seconds = |ns: u64| ns / 1_000_000_000;
        write!(f, "lever `{lever}`, for {} s: ", seconds(self.after_ns))?;
        match (state, &self.reason) {
            (TrialStateView::Stopped, reason) => {
                writeln!(f, "stopped, and off until a setting of the trial changes: {}", reason.as_deref().unwrap_or_default())?;
            }
            (TrialStateView::Over, _) => writeln!(f, "over; it is as configured")?,
            (TrialStateView::Running, _) => {
                let now = if *is_on { "on" } else { "off" };
                writeln!(f, "{now}; a coin is tossed in {} s", seconds(self.next_in_ns.unwrap_or_default()))?;
            }
        }
        for doubt in &self.doubts {
            writeln!(f, "  {doubt}")?;
        }
        for (name, side) in [("on", &self.on), ("off", &self.off)] {
            let TrialSideView { blocks, requests, failed, requests_per_s, units_per_s, .. } = side;
            let ms = |ns: Option<f64>| ns.map_or_else(|| "?".to_owned(), |ns| format!("{:.3}", ns / 1e6));
            writeln!(
                f,
                "{name}: {blocks} blocks, {requests} requests, {failed} failed; p50 {} ms, p99 {} ms; {requests_per_s:.1} requests/s, {units_per_s:.1} units/s",
                ms(side.p50_ns),
                ms(side.p99_ns)
            )?;
        }
        let not_counted: Vec<String> = self.requests.0.iter().skip(2).map(|(reason, n)| format!("{n} {reason}")).collect();
        writeln!(f, "not counted: {}, {} left", not_counted.join(", "), self.on.left + self.off.left)
    }
}
