//! A finished, merged ledger: what histograms record and `/exchanges` shows.

use serde::Serialize;

use super::account::Account;
use super::record::{Ledger, Report};
use super::stage::{Phase, Source, Stage};
use super::work::{PerUnit, Unit};

/// A span that an upstream sent, placed on the request's own clock.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedSpan {
    /// The span's name as sent.
    pub name: Box<str>,
    /// The stage that the rules map it to; `None` claims no time.
    pub stage: Option<Stage>,
    /// The phase of the stage, where it is one.
    pub phase: Option<Phase>,
    /// Start, from the request's start; negative if the upstream's clock says so.
    pub start_ns: i64,
    /// End, from the request's start.
    pub end_ns: i64,
    /// How deep below Lapwing's own span it lies, from 1.
    pub depth: u32,
}

/// What the upstream's own statistics say of the batches in which requests like this one ran, averaged over one poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BatchStatistics {
    /// Rows per execution of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<f64>,
    /// The share of what was executed that was padding, in `[0, 1)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padding: Option<f64>,
    /// Requests that ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<f64>,
    /// Requests that waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<f64>,
}

/// One request's finished account.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// What the request path saw.
    pub ledger: Ledger,
    /// What each stage owns; sums to `ledger.total_ns`.
    pub account: Account,
    /// The upstream's spans as they came.
    pub traced: Vec<TracedSpan>,
    /// How much of the upstream window reports and spans claim.
    pub claimed_ns: u64,
    /// How many reports or spans had to be clipped to the window.
    pub clipped: u32,
    /// What the upstream's statistics say of requests like this one: means, which claim what nobody else does.
    pub polled: Vec<Report>,
    /// The batches in which it ran, where the upstream's statistics tell.
    pub batch: Option<BatchStatistics>,
}

impl Exchange {
    /// The share of the upstream window that reports claim, `0..=1`; `None` where there is no window.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn coverage(&self) -> Option<f64> {
        let window = self.ledger.window?.length_ns();
        (window > 0).then(|| self.claimed_ns as f64 / window as f64)
    }

    /// Who speaks for `stage`, and for how long; `None` if it owns nothing. A stage that the reports put below their
    /// resolution is there with 0 ns; one whose reports found no room is not.
    #[must_use]
    pub fn stage(&self, stage: Stage) -> Option<(u64, Source)> {
        if let Some(source) = self.account.source(stage) {
            return Some((self.account.stage_ns(stage), source));
        }
        let resolution_ns = u64::from(self.resolution_ns(stage)?);
        let place = self.ledger.reports.iter().filter(|r| r.stage == stage).map(|r| r.place).max()?;
        let valid = self.ledger.reports.iter().filter(|r| r.stage == stage && r.place == place);
        let said_ns = valid.fold(0_u64, |sum, r| sum.saturating_add(r.duration_ns));
        (said_ns < resolution_ns).then_some((0, Source::Reported))
    }

    /// The queue's time inside the upstream, by whoever speaks for it; the rest of the stage is the proxy's own.
    #[must_use]
    pub fn upstream_queue_ns(&self) -> u64 {
        self.account.stage_ns(Stage::Queue) - self.account.by_source_ns(Stage::Queue, Source::Observed)
    }

    /// How coarse the reports of `stage` are, in nanoseconds; `None` where none is coarse.
    #[must_use]
    pub fn resolution_ns(&self, stage: Stage) -> Option<u32> {
        let reports = self.ledger.reports.iter().filter(|r| r.stage == stage && r.resolution_ns > 1);
        reports.map(|r| r.resolution_ns).max()
    }

    /// Who speaks for `phase`, and for how long; `None` if it owns nothing.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> Option<(u64, Source)> {
        Some((self.account.phase_ns(phase), self.account.phase_source(phase)?))
    }

    /// Time to first token as the proxy saw it: from the request's start to the first content.
    #[must_use]
    pub fn first_token_ns(&self) -> Option<u64> {
        self.ledger.generation.as_ref()?.first_ns
    }

    /// Time per output token as the proxy saw it, by AIPerf's definition: from the first content to the last, over the
    /// output tokens after the first. `None` where several sequences were written at once.
    #[must_use]
    pub fn per_output_token_ns(&self) -> Option<u64> {
        if self.ledger.work.sequences > 1 {
            return None;
        }
        let (tokens, _) = self.ledger.work.get(Unit::OutputToken)?;
        self.ledger.generation.as_ref()?.per_output_token_ns(tokens)
    }

    /// The time of a per-unit slot and the units that it is divided by; `None` where either is not known. Only answered
    /// requests have such.
    #[must_use]
    pub fn per_unit(&self, slot: PerUnit) -> Option<(u64, u64)> {
        let (stage, phase) = slot.stage();
        let (ns, _) = match phase {
            Some(phase) => self.phase(phase)?,
            None => self.stage(stage)?,
        };
        let units = slot.amount(&self.ledger.work, self.ledger.request_bytes, self.ledger.response_bytes)?;
        // below its resolution a time is not known, and must not be divided
        (ns > 0).then_some((ns, units))
    }
}
