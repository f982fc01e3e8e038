//! A live split, judged: one of several upstreams, the candidate, takes a share of clients' requests, and what both sides take and how
//! often they fail decides whether the share rises or falls to nothing. The data plane divides
//! ([`TrafficSplit`]); here is what becomes of its share.
//!
//! - `config`: the section `split`;
//! - `keys`: which requests are judged; `judge`: what they say; `verdict`: which limits that exceeds;
//! - `outputs`: what compared outputs say;
//! - `ramp`: the share over time.

mod config;
mod judge;
mod keys;
mod outputs;
mod ramp;
mod verdict;

use std::num::NonZeroU32;
use std::sync::Arc;

pub use self::config::{Config, StopOn};
use self::judge::{JudgeCounts, SplitJudge};
use self::outputs::SplitOutputs;
use self::ramp::{Findings, Ramp, RampEvent};
use crate::pairs::{CardSnapshot, OutputResult, PairFigure};
use lapwing_compare::ab::{IntervalEstimate, LatencyReport, PairSide};
use lapwing_ledger::{Exchange, LabelId, Stamp};
use lapwing_metrics::Labels;
use lapwing_proxy::{SplitAssignment, TrafficSplit};
use lapwing_settings::{ConfigHandle, Share};

/// How often what is known is looked at, in nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;

/// A live split while it runs. One thread feeds it; others may read.
#[derive(Debug)]
pub struct LiveSplit {
    traffic: Arc<TrafficSplit>,
    config: ConfigHandle<Config>,
    applied: Arc<Config>,
    candidate: LabelId,
    labels: Arc<Labels>,
    ramp: Ramp,
    judge: SplitJudge,
    /// While outputs are compared.
    outputs: Option<SplitOutputs>,
    looked: Stamp,
    findings: Findings,
}

impl LiveSplit {
    /// Sets the share of `traffic` by `config`, which is read at each look; `candidate` is the label of its exchanges.
    #[must_use]
    pub fn new(
        traffic: Arc<TrafficSplit>,
        config: ConfigHandle<Config>,
        candidate: LabelId,
        labels: Arc<Labels>,
        now: Stamp,
    ) -> Self {
        let applied = config.load();
        let ramp = Ramp::new(applied.shares(), applied.step.as_nanos(), now);
        traffic.set_share(ramp.share());
        let judge = SplitJudge::new(candidate, now);
        let outputs = applied.compare.then(SplitOutputs::default);
        Self { traffic, config, applied, candidate, labels, ramp, judge, outputs, looked: now, findings: Findings::default() }
    }

    /// Takes the account of a client's request.
    pub fn take(&mut self, exchange: &Exchange, now: Stamp) {
        self.judge.take(exchange, now);
    }

    /// Takes how the outputs of both sides compare for a request of `key`.
    pub fn take_outputs(&mut self, key: NonZeroU32, result: OutputResult, now: Stamp) {
        if let Some(outputs) = &mut self.outputs {
            outputs.take(key, result, now.as_ns());
        }
    }

    /// Lets time pass, and looks once a second at what is known.
    pub fn tick(&mut self, now: Stamp) {
        let elapsed = self.judge.tick(now);
        if let Some(outputs) = &mut self.outputs {
            outputs.tick(elapsed);
        }
        if now.since(self.looked) < LOOK_NS {
            return;
        }
        self.looked = now;
        self.apply_config(now);
        self.findings = verdict::findings(&self.judge, self.outputs.as_ref(), &self.applied.stop_on);
        let before = self.ramp.share();
        let Some(event) = self.ramp.look(&self.findings, now) else { return };
        self.traffic.set_share(self.ramp.share());
        let (candidate, share) = (self.traffic.candidate(), self.ramp.share());
        match event {
            RampEvent::Raised => tracing::info!(candidate, from = before, to = share, "split: the candidate gets more requests"),
            RampEvent::Stopped(reason) => {
                tracing::warn!(candidate, from = before, reason, "split: stopped; the candidate gets no more requests");
            }
        }
    }

    /// Begins anew if the settings of the split are others.
    fn apply_config(&mut self, now: Stamp) {
        let config = self.config.load();
        if *config != *self.applied {
            let Self { traffic, labels, .. } = &self;
            tracing::info!(candidate = traffic.candidate(), "split: its settings have changed, so it begins anew");
            *self = Self::new(traffic.clone(), self.config.clone(), self.candidate, labels.clone(), now);
        }
    }

    /// Forgets routes and models whose names gave way.
    pub fn retain_named(&mut self) {
        let labels = &self.labels;
        self.judge.retain(|route, model| labels.routes.holds(route) && labels.models.holds(model));
    }

    /// Where requests went, and which share is in force.
    #[must_use]
    pub fn status(&self) -> SplitStatus {
        SplitStatus {
            candidate: self.traffic.candidate().to_owned(),
            share: self.ramp.share(),
            is_stopped: self.ramp.stopped().is_some(),
            assigned: SplitAssignment::ALL.map(|to| (to, self.traffic.assigned(to))),
            judged: self.judge.counts.judged,
        }
    }

    /// Everything that is known at `now`.
    #[must_use]
    pub fn snapshot(&self, now: Stamp) -> SplitSnapshot {
        let JudgeCounts { late, early, same_key, crowded, left, .. } = self.judge.counts;
        let mut cards: Vec<CardSnapshot> = (self.judge.cards.iter())
            .map(|((route, model, class), matched)| CardSnapshot {
                route: *route,
                model: *model,
                class: *class,
                figures: matched.card.reports(),
            })
            .collect();
        cards.sort_by_key(|card| (card.route, card.model, card.class));
        let side = |side: PairSide, left: u64| {
            let (failed, judged, share_failed) = verdict::failures(&self.judge, side);
            SplitSide { keys: self.judge.keys.keys(side), judged, failed, share_failed, left }
        };
        SplitSnapshot {
            status: self.status(),
            key: self.traffic.key().to_string(),
            step: self.ramp.step(),
            next: self.ramp.next(now),
            stopped: self.ramp.stopped().map(str::to_owned),
            doubts: self.findings.doubts.clone(),
            limits: self.applied.stop_on.clone(),
            baseline: side(PairSide::Baseline, left[0]),
            candidate: side(PairSide::Candidate, left[1]),
            outputs: self.outputs.as_ref().map(|SplitOutputs { mismatched, unjudged, left_out, .. }| OutputsSnapshot {
                compared: mismatched.trials(),
                mismatched: mismatched.hits(),
                share_mismatched: mismatched.estimate(),
                unjudged: *unjudged,
                left_out: *left_out,
            }),
            requests_per_key: self.judge.keys.requests_per_key(),
            unjudged: [("same_key", same_key), ("crowded", crowded)],
            out_of_order: late + early,
            all: self.judge.all.reports(),
            cards,
        }
    }

    /// The names of routes and models.
    #[must_use]
    pub const fn labels(&self) -> &Arc<Labels> {
        &self.labels
    }
}

/// What metrics say of a split.
#[derive(Clone, Debug)]
pub struct SplitStatus {
    /// The candidate's name.
    pub candidate: String,
    /// The share in force, 0 to 1.
    pub share: f64,
    /// Whether a limit was exceeded, so that it is 0.
    pub is_stopped: bool,
    /// How many requests went where.
    pub assigned: [(SplitAssignment, u64); SplitAssignment::ALL.len()],
    /// How many were judged.
    pub judged: u64,
}

/// What is known of the requests of a side.
#[derive(Clone, Debug)]
pub struct SplitSide {
    /// Keys that were judged.
    pub keys: u64,
    /// Requests that were judged.
    pub judged: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// Their share.
    pub share_failed: IntervalEstimate,
    /// Requests that were not judged because the client left.
    pub left: u64,
}

/// How the outputs of both sides compare.
#[derive(Clone, Debug)]
pub struct OutputsSnapshot {
    /// Outputs that were compared, of each key one in each block of time.
    pub compared: u64,
    /// Those of them that differ.
    pub mismatched: u64,
    /// Their share.
    pub share_mismatched: IntervalEstimate,
    /// Outputs of which it cannot be told.
    pub unjudged: u64,
    /// Outputs that were left out, because another of their key was compared in the same block, or there are too many keys.
    pub left_out: u64,
}

/// Everything that is known of a split.
#[derive(Clone, Debug)]
pub struct SplitSnapshot {
    /// What metrics say of it.
    pub status: SplitStatus,
    /// What requests are divided by.
    pub key: String,
    /// Which step of the ramp it is at, from 0, and how many there are.
    pub step: (usize, usize),
    /// The next share, and in how many nanoseconds it is due at the earliest.
    pub next: Option<(Share, u64)>,
    /// Why the candidate gets nothing any more.
    pub stopped: Option<String>,
    /// Why the share does not rise yet.
    pub doubts: Option<String>,
    /// What stops it.
    pub limits: StopOn,
    /// The others.
    pub baseline: SplitSide,
    /// The candidate.
    pub candidate: SplitSide,
    /// What compared outputs say; `None` if none are.
    pub outputs: Option<OutputsSnapshot>,
    /// How many requests were judged of each key, on the side where these are more.
    pub requests_per_key: f64,
    /// Requests that were not judged, by reason.
    pub unjudged: [(&'static str, u64); 2],
    /// Requests that were judged out of order.
    pub out_of_order: u64,
    /// All matched pairs, by figure.
    pub all: Vec<(PairFigure, LatencyReport)>,
    /// The same by route, model and class.
    pub cards: Vec<CardSnapshot>,
}

#[cfg(test)]
mod tests;
