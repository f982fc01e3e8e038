//! A finished, merged ledger: the record behind the histograms and `/exchanges`.

use super::account::Account;
use super::optimum::{ForwardDebt, OptimalForward};
use super::record::Ledger;
use super::stage::{Phase, Source, Stage};
use super::work::{PerUnit, Unit};

/// A span that an upstream sent, placed on the request's own clock.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedSpan {
    /// The span's name as sent.
    pub name: Box<str>,
    /// The stage that the rules map it to; `None` claims no time.
    pub stage: Option<Stage>,
    /// The phase of the stage, if it has one.
    pub phase: Option<Phase>,
    /// Start, from the request's start; negative if the upstream's clock says so.
    pub start_ns: i64,
    /// End, from the request's start.
    pub end_ns: i64,
    /// How deep below Lapwing's own span it lies, from 1.
    pub depth: u32,
    /// What else is to be said about it.
    pub note: SpanNote,
}

/// What a received span reports in addition to its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanNote {
    /// By how much it was moved, with all spans of its process, so that they lie in the upstream window: the process's clock differs.
    pub shifted_ns: i64,
    /// How many requests it was for: the links of a batch's span. Zero if it is of one request.
    pub shared_by: u32,
}

/// How many reports and spans were clipped because they did not fit the upstream window by more than the tolerance, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClippedReports {
    /// Longer than the window, or than the time in it that nothing else claims.
    pub too_long: u32,
    /// Began before the window.
    pub before: u32,
    /// Ended after the window.
    pub after: u32,
}

impl ClippedReports {
    /// All of them.
    #[must_use]
    #[inline]
    pub const fn total(self) -> u32 {
        self.too_long.saturating_add(self.before).saturating_add(self.after)
    }

    /// The counts with the names of their causes.
    #[must_use]
    #[inline]
    pub const fn by_cause(self) -> [(&'static str, u32); 3] {
        [("too_long", self.too_long), ("before", self.before), ("after", self.after)]
    }
}

/// The finished account of one request.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// What the request path recorded. Boxed, as it comes from there: it is moved from hand to hand.
    pub ledger: Box<Ledger>,
    /// The time of each stage; sums to `ledger.total_ns`.
    pub account: Account,
    /// The upstream's spans, as received.
    pub traced: Vec<TracedSpan>,
    /// The part of the upstream window that reports and spans claim, in nanoseconds.
    pub claimed_ns: u64,
    /// How many reports or spans had to be clipped to the window.
    pub clipped: ClippedReports,
    /// Whether it lacks spans that exchanges like it have.
    pub is_incomplete: bool,
    /// What its forward would take at best; `None` where no optimum is declared for its model.
    pub optimal_forward: Option<OptimalForward>,
}

impl Exchange {
    /// An exchange of which nothing but its ledger is known.
    #[must_use]
    #[inline]
    pub fn of(ledger: impl Into<Box<Ledger>>) -> Self {
        Self {
            ledger: ledger.into(),
            account: Account::default(),
            traced: Vec::new(),
            claimed_ns: 0,
            clipped: ClippedReports::default(),
            is_incomplete: false,
            optimal_forward: None,
        }
    }

    /// How many of its spans were moved into the upstream window with their process.
    #[must_use]
    #[inline]
    pub fn shifted(&self) -> u32 {
        let moved = self.traced.iter().filter(|span| span.note.shifted_ns != 0).count();
        u32::try_from(moved).unwrap_or(u32::MAX)
    }

    /// The share of the upstream window that reports claim, `0..=1`; `None` if there is no window.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    #[inline]
    pub fn coverage(&self) -> Option<f64> {
        let window = self.ledger.window?.length_ns();
        (window > 0).then(|| self.claimed_ns as f64 / window as f64)
    }

    /// The time of `stage` and its source; `None` if the stage owns no time. A stage whose reports are below their own resolution
    /// is present with 0 ns. A stage whose reports found no free time is absent.
    #[must_use]
    #[inline]
    pub fn stage(&self, stage: Stage) -> Option<(u64, Source)> {
        match self.account.source(stage) {
            Some(source) => Some((self.account.stage_ns(stage), source)),
            None if self.ledger.reports.is_empty() => None,
            None => self.below_resolution(stage),
        }
    }

    /// What a stage without time has: 0 ns if reports said so that can say no less. Apart from [`Self::stage`], which is small then and
    /// part of its callers.
    fn below_resolution(&self, stage: Stage) -> Option<(u64, Source)> {
        let resolution_ns = u64::from(self.resolution_ns(stage)?);
        let place = self.ledger.reports.iter().filter(|r| r.stage == stage).map(|r| r.place).max()?;
        let valid = self.ledger.reports.iter().filter(|r| r.stage == stage && r.place == place);
        let said_ns = valid.fold(0_u64, |sum, r| sum.saturating_add(r.duration_ns));
        (said_ns < resolution_ns).then_some((0, Source::Reported))
    }

    /// The queue time inside the upstream, from all sources. The rest of the stage is the proxy's own queue.
    #[must_use]
    #[inline]
    pub fn upstream_queue_ns(&self) -> u64 {
        self.account.stage_ns(Stage::Queue) - self.account.by_source_ns(Stage::Queue, Source::Observed)
    }

    /// The coarsest resolution of the reports of `stage`, in nanoseconds; `None` if all are exact.
    #[must_use]
    #[inline]
    pub fn resolution_ns(&self, stage: Stage) -> Option<u32> {
        let reports = self.ledger.reports.iter().filter(|r| r.stage == stage && r.resolution_ns > 1);
        reports.map(|r| r.resolution_ns).max()
    }

    /// The time of `phase` and its source; `None` if the phase owns no time.
    #[must_use]
    #[inline]
    pub fn phase(&self, phase: Phase) -> Option<(u64, Source)> {
        Some((self.account.phase_ns(phase), self.account.phase_source(phase)?))
    }

    /// Time to first token as the proxy measured it: from the request's start to the first content.
    #[must_use]
    #[inline]
    pub fn first_token_ns(&self) -> Option<u64> {
        self.ledger.generation.as_ref()?.first_ns
    }

    /// Time per output token as the proxy measured it, by AIPerf's definition: from the first content to the last, divided by the
    /// output tokens after the first. `None` if several sequences were generated at once.
    #[must_use]
    #[inline]
    pub fn per_output_token_ns(&self) -> Option<u64> {
        if self.ledger.work.sequences > 1 {
            return None;
        }
        let (tokens, _) = self.ledger.work.get(Unit::OutputToken)?;
        self.ledger.generation.as_ref()?.per_output_token_ns(tokens)
    }

    /// The time of forward as the server reported or traced it for this very request; `None` where it did not, or where the time
    /// is below the resolution of its report.
    #[must_use]
    #[inline]
    pub fn measured_forward_ns(&self) -> Option<u64> {
        let (ns, source) = self.stage(Stage::Forward)?;
        (ns > 0 && source != Source::Observed).then_some(ns)
    }

    /// Its forward and the optimum; `None` where either is unknown. Meaningless if the request was not answered.
    #[must_use]
    #[inline]
    pub fn forward_debt(&self) -> Option<ForwardDebt> {
        let optimum_ps = self.optimal_forward?.ps?;
        Some(ForwardDebt { forward_ns: self.measured_forward_ns()?, optimum_ps })
    }

    /// The time of a per-unit slot and the number of units to divide it by; `None` if either is unknown. Only answered requests
    /// have one.
    #[must_use]
    #[inline]
    pub fn per_unit(&self, slot: PerUnit) -> Option<(u64, u64)> {
        let units = slot.amount(&self.ledger.work, self.ledger.request_bytes, self.ledger.response_bytes)?;
        let (stage, phase) = slot.stage();
        let (ns, _) = match phase {
            Some(phase) => self.phase(phase)?,
            None => self.stage(stage)?,
        };
        // a time below its resolution is unknown and must not be divided
        (ns > 0).then_some((ns, units))
    }
}
