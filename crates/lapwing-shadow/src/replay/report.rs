//! What a replay says: how it was sent, the same comparison as `/shadow`, and which gates hold.

use std::fmt::{self, Write};
use std::time::Duration;

use serde::Serialize;

use super::schedule::DurationsSnapshot;
use crate::gates::{Gate, GateInputs, GateResult, check_all};
use crate::pairs::PairOrder;
use crate::surface::{ShadowSurface, TargetInfo};
use lapwing_compare::ab::ASSUMPTIONS;

/// What the targets are compared with if there is one: the recorded answers.
pub(crate) const RECORDED: &str = "recorded";

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReplayError(pub(crate) String);

impl ReplayError {
    /// Says what could not be started, read or written.
    pub(crate) fn new(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// The report of a replay, with what is known of the targets as `T`.
#[derive(Debug, Serialize)]
pub struct ReplayReport<T> {
    /// The file.
    pub(crate) file: String,
    /// How requests were sent; absent where the report is made again from pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sending: Option<SendingReport>,
    /// What the targets are compared with: `recorded`, or the name of the first target.
    pub(crate) baseline: String,
    pub(crate) targets: T,
    pub(crate) gates: Vec<GateResult>,
    pub(crate) assumptions: &'static str,
}

impl<T> ReplayReport<T> {
    /// The report of what `surface` shows, whose targets `compared` describes. `requests` is how many the recording had.
    pub(crate) fn of(
        names: ReplayNames,
        surface: &ShadowSurface,
        gates: &[Gate],
        sending: Option<SendingReport>,
        requests: Option<u64>,
        compared: impl FnOnce(&ShadowSurface) -> T,
    ) -> Self {
        let ReplayNames { file, baseline } = names;
        Self {
            file,
            baseline,
            gates: check_gates(gates, surface, sending.as_ref().map(|sending| sending.lateness.p99_ns), requests),
            sending,
            targets: compared(surface),
            assumptions: ASSUMPTIONS,
        }
    }
}

/// What is replayed, and what its answers are compared with.
#[derive(Debug)]
pub(crate) struct ReplayNames {
    pub(crate) file: String,
    pub(crate) baseline: String,
}

/// How requests were sent.
#[derive(Debug, Serialize)]
pub(crate) struct SendingReport {
    /// Requests of the recording.
    pub(crate) requests: usize,
    pub(crate) pace: String,
    /// From the first to the last, in nanoseconds.
    pub(crate) duration_ns: u64,
    /// How late they were sent.
    pub(crate) lateness: DurationsSnapshot,
    /// What answered requests took from the time at which they were due to the last byte, lateness included; by target.
    pub(crate) from_due: Vec<FromDueReport>,
    /// The first target, if it is the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) baseline: Option<BaselineReport>,
}

/// What the answered requests to one target took from the time at which they were due.
#[derive(Debug, Serialize)]
pub(crate) struct FromDueReport {
    pub(crate) target: String,
    #[serde(flatten)]
    pub(crate) durations: DurationsSnapshot,
}

/// What became of the requests to the baseline.
#[derive(Debug, Serialize)]
pub(crate) struct BaselineReport {
    pub(crate) address: String,
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) failed: u64,
}

impl<T> ReplayReport<T> {
    /// The gates that do not hold.
    pub fn failed_gates(&self) -> impl Iterator<Item = &GateResult> {
        self.gates.iter().filter(|gate| !gate.holds)
    }
}

/// A gate's result in words: `p99_ratio<=1.05 of fast: p99_ratio is 1.02`.
#[must_use]
pub fn gate_in_words(gate: &GateResult) -> String {
    let of = |value: f64| match gate.field.rsplit('.').next() {
        Some("mismatch" | "failed" | "excused" | "unjudged") => format!("{:.4} %", value * 100.0),
        Some("lateness_p99") => format!("{:.3} ms", value / 1e6),
        _ => format!("{value:.4}"),
    };
    let value = gate.value.map_or_else(|| "not known".to_owned(), of);
    let verb = if gate.holds { "holds" } else { "FAILS" };
    let unjudged = match gate.unjudged {
        share if share > gate.unjudged_bound => format!(
            "; {:.4} % could not be judged, of which {:.4} % may be: a gate unjudged<=… changes that",
            share * 100.0,
            gate.unjudged_bound * 100.0
        ),
        0.0 => String::new(),
        share => format!("; {:.4} % could not be judged", share * 100.0),
    };
    format!("gate {} of {} {verb}: {} is {value}, the bound {}{unjudged}", gate.gate, gate.target, gate.field, of(gate.bound))
}

impl<T: fmt::Display> fmt::Display for ReplayReport<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(SendingReport { requests, pace, duration_ns, lateness, from_due, baseline }) = &self.sending {
            let seconds = Duration::from_nanos(*duration_ns).as_secs_f64();
            writeln!(f, "{}: {requests} requests sent {pace}, in {seconds:.1} s", self.file)?;
            let ms = |ns: u64| format!("{:.3} ms", Duration::from_nanos(ns).as_secs_f64() * 1e3);
            let DurationsSnapshot { p50_ns, p99_ns, max_ns, .. } = *lateness;
            writeln!(f, "sent later than due: p50 {}, p99 {}, at most {}", ms(p50_ns), ms(p99_ns), ms(max_ns))?;
            for FromDueReport { target, durations: DurationsSnapshot { p50_ns, p99_ns, max_ns, .. } } in from_due {
                let (p50, p99, max) = (ms(*p50_ns), ms(*p99_ns), ms(*max_ns));
                writeln!(f, "{target}, from the due time to the last byte: p50 {p50}, p99 {p99}, at most {max}")?;
            }
            if let Some(BaselineReport { address, sent, answered, failed }) = baseline {
                writeln!(f, "baseline {} ({address}): {sent} sent, {answered} answered, {failed} failed", self.baseline)?;
            }
        } else {
            writeln!(f, "{}: the pairs of an earlier replay", self.file)?;
        }
        writeln!(
            f,
            "compared with {}\n\n{}",
            if self.baseline == RECORDED { "what was recorded" } else { &self.baseline },
            self.targets
        )?;
        let mut gates = String::new();
        for gate in &self.gates {
            writeln!(gates, "{}", gate_in_words(gate))?;
        }
        write!(f, "{gates}\n{}", self.assumptions)
    }
}

/// Which side of a pair goes first.
pub(crate) const fn replay_order(is_baseline_recorded: bool) -> PairOrder {
    if is_baseline_recorded { PairOrder::AfterRecording } else { PairOrder::InTurn }
}

/// Every gate for every target, of so many requests.
fn check_gates(gates: &[Gate], surface: &ShadowSurface, lateness_p99_ns: Option<u64>, requests: Option<u64>) -> Vec<GateResult> {
    let pairs = surface.pairs.lock();
    let targets = surface.targets.iter().enumerate();
    let of = |(index, target): (usize, &TargetInfo)| {
        let known = GateInputs { pairs: &pairs.pooled(index), requests, lateness_p99_ns };
        check_all(gates, &target.name, &known)
    };
    targets.flat_map(of).collect()
}
