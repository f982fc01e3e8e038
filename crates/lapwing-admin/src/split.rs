//! `/split`: what requests say of the candidate of a live split, in words and as JSON. Durations are nanoseconds, shares 0 to 1.

use std::fmt;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;

use super::shadow::comparison::{ComparisonView, place};
use lapwing_compare::ab::{ASSUMPTIONS, IntervalEstimate, LatencyReport, sentence};
use lapwing_ledger::Stamp;
use lapwing_metrics::views::Pairs;
use lapwing_shadow::split::{LiveSplit, OutputsSnapshot, SplitSide, SplitSnapshot};

/// The whole report.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SplitView {
    /// The candidate's name in `upstreams`; the others are the baseline.
    candidate: String,
    /// What requests are divided by.
    key: String,
    /// The share of keys that the candidate gets now.
    share: f64,
    state: SplitState,
    /// Why it was stopped, or why it does not rise yet.
    reason: Option<String>,
    /// The step of the ramp, from 1, of how many.
    step: [usize; 2],
    /// The next share.
    next_share: Option<f64>,
    /// In how many nanoseconds it is due, at the earliest.
    next_in_ns: Option<u64>,
    limits: LimitsView,
    /// Requests by where they went.
    requests: Pairs<u64>,
    baseline: SideView,
    candidate_side: SideView,
    /// How the outputs of both sides compare, if they are compared.
    outputs: Option<OutputsView>,
    /// How many requests were judged of each key, on the side where these are more. Limits take each key as one request.
    requests_per_key: f64,
    /// Requests that were not judged, by reason.
    unjudged: Pairs<u64>,
    /// Requests that were judged out of the order in which they started.
    out_of_order: u64,
    assumptions: &'static str,
    /// All matched pairs in words.
    text: String,
    /// All matched pairs, by figure.
    figures: Pairs<LatencyReport>,
    /// The same by route, model and cost class.
    comparisons: Vec<ComparisonView>,
}

/// What a split does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SplitState {
    /// The share rises when its step is over.
    Rising,
    /// The share stays.
    Steady,
    /// A limit was exceeded.
    Stopped,
}

/// What stops a split; absent: nothing of this kind does.
#[derive(Debug, Serialize, JsonSchema)]
struct LimitsView {
    p50_ratio: Option<f64>,
    p99_ratio: Option<f64>,
    errors: Option<f64>,
    mismatch: Option<f64>,
}

/// The requests of a side.
#[derive(Debug, Serialize, JsonSchema)]
struct SideView {
    /// Keys that were judged.
    keys: u64,
    judged: u64,
    failed: u64,
    share_failed: IntervalEstimate,
    /// Requests that were not judged because the client left.
    left: u64,
}

impl From<SplitSide> for SideView {
    fn from(SplitSide { keys, judged, failed, share_failed, left }: SplitSide) -> Self {
        Self { keys, judged, failed, share_failed, left }
    }
}

/// How the outputs of both sides compare.
#[derive(Debug, Serialize, JsonSchema)]
struct OutputsView {
    /// Of each key one in each block of 10 s.
    compared: u64,
    mismatched: u64,
    share_mismatched: IntervalEstimate,
    /// Outputs of which it cannot be told.
    unjudged: u64,
    /// Outputs beyond one of a key in a block, or beyond the room for keys.
    left_out: u64,
}

impl From<OutputsSnapshot> for OutputsView {
    fn from(OutputsSnapshot { compared, mismatched, share_mismatched, unjudged, left_out }: OutputsSnapshot) -> Self {
        Self { compared, mismatched, share_mismatched, unjudged, left_out }
    }
}

/// The report until now.
pub(crate) fn view(split: &Mutex<LiveSplit>) -> SplitView {
    let (snapshot, labels) = {
        let split = split.lock();
        (split.snapshot(Stamp::now()), split.labels().clone())
    };
    let SplitSnapshot { status, key, step, next, stopped, doubts, limits, baseline, candidate, .. } = snapshot;
    let spoken: Vec<(&str, &LatencyReport)> = snapshot.all.iter().map(|(figure, report)| (figure.name(), report)).collect();
    let state = match (&stopped, &next) {
        (Some(_), _) => SplitState::Stopped,
        (None, Some(_)) => SplitState::Rising,
        (None, None) => SplitState::Steady,
    };
    let text = sentence(&status.candidate, &spoken);
    SplitView {
        comparisons: snapshot.cards.into_iter().map(|card| ComparisonView::of(&labels, &status.candidate, card)).collect(),
        figures: snapshot.all.iter().map(|(figure, report)| (figure.name(), report.clone())).collect(),
        key,
        share: status.share,
        state,
        reason: stopped.or(doubts),
        step: [step.0 + 1, step.1],
        next_share: next.map(|(share, _)| share.get()),
        next_in_ns: next.map(|(_, ns)| ns),
        limits: LimitsView {
            p50_ratio: limits.p50_ratio.on().map(|ratio| ratio.get()),
            p99_ratio: limits.p99_ratio.on().map(|ratio| ratio.get()),
            errors: limits.errors.on().map(|share| share.get()),
            mismatch: limits.mismatch.on().map(|share| share.get()),
        },
        requests: status.assigned.iter().map(|(to, n)| (to.name(), *n)).collect(),
        baseline: baseline.into(),
        candidate_side: candidate.into(),
        outputs: snapshot.outputs.map(OutputsView::from),
        requests_per_key: snapshot.requests_per_key,
        unjudged: snapshot.unjudged.into_iter().collect(),
        out_of_order: snapshot.out_of_order,
        assumptions: ASSUMPTIONS,
        text,
        candidate: status.candidate,
    }
}

/// In words, for people.
impl fmt::Display for SplitView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { candidate, key, share, state, step: [at, of], .. } = self;
        let reason = self.reason.as_deref().unwrap_or("nothing speaks against it");
        write!(f, "candidate `{candidate}` gets {} of keys ({key})", percent(*share))?;
        match (state, self.next_share, self.next_in_ns) {
            (SplitState::Stopped, ..) => writeln!(f, ": stopped, because {reason}")?,
            (_, Some(next), Some(0)) => writeln!(f, ", step {at} of {of}; {} wait: {reason}", percent(next))?,
            (_, Some(next), Some(ns)) => {
                writeln!(f, ", step {at} of {of}; {} in {} s at the earliest: {reason}", percent(next), ns / 1_000_000_000)?;
            }
            _ => writeln!(f, ": {reason}")?,
        }
        let requests: Vec<String> = self.requests.0.iter().map(|(to, n)| format!("{n} {to}")).collect();
        writeln!(f, "requests: {}", requests.join(", "))?;
        for (name, side) in [("candidate", &self.candidate_side), ("baseline", &self.baseline)] {
            let SideView { keys, judged, failed, share_failed, left } = side;
            let low = percent(share_failed.low);
            let high = percent(share_failed.high.unwrap_or(1.0));
            writeln!(f, "  {name}: {judged} judged of {keys} keys, {failed} failed [{low}, {high}]; {left} left by clients")?;
        }
        if let Some(OutputsView { compared, mismatched, share_mismatched, unjudged, left_out }) = &self.outputs {
            let (low, high) = (percent(share_mismatched.low), percent(share_mismatched.high.unwrap_or(1.0)));
            let what = format!("{compared} compared, {mismatched} differ [{low}, {high}]");
            writeln!(f, "  outputs: {what}; not judged: {unjudged}, {left_out} of the same keys")?;
        }
        let unjudged: Vec<String> = self.unjudged.0.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        writeln!(f, "  not judged: {}; out of order: {}", unjudged.join(", "), self.out_of_order)?;
        if !self.text.is_empty() {
            writeln!(f, "{}", self.text)?;
        }
        for comparison in &self.comparisons {
            writeln!(
                f,
                "  {}\n    {}",
                place(&comparison.route, comparison.model.as_deref(), comparison.class),
                comparison.text
            )?;
        }
        writeln!(f, "\n{}", self.assumptions)
    }
}

fn percent(share: f64) -> String {
    let text = format!("{:.2}", 100.0 * share);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}
