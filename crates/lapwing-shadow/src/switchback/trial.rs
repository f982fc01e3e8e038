//! One trial: its blocks one after the other, what is known of them, and the guard that ends it.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

use super::block::{Block, BlockFigures, is_judged};
use super::config::Config;
use super::lever::TrialLever;
use super::measure::{MeasureTracker, TrialEffect, TrialMeasure, TrialVerdict};
use super::schedule::BlockSchedule;
use super::shown::{BlockSide, ShownBlock, TrialSide, TrialSnapshot, TrialState, TrialStatus};
use lapwing_compare::ab::EffectTracker;
use lapwing_ledger::{Ledger, Stamp};
use lapwing_proxy::Levers;

/// How long after a block's end its last requests are waited for, in nanoseconds: the aggregator takes them every 20 ms.
const SETTLE_NS: u64 = 1_000_000_000;
/// In how many blocks in which the lever was on most requests must fail, and in none between in which it was off, to stop at once.
const STRIKES: u32 = 2;
/// How many blocks are shown.
const SHOWN: usize = 32;

/// A trial while it runs, and its result after that.
#[derive(Debug)]
pub(crate) struct Trial {
    config: Arc<Config>,
    levers: Levers,
    schedule: BlockSchedule,
    /// The open block, and before it those whose last requests may still come.
    blocks: VecDeque<Block>,
    started: Stamp,
    state: TrialState,
    measures: [MeasureTracker; 4],
    verdicts: [TrialVerdict; 4],
    /// On, off.
    sides: [SideSums; 2],
    failed_blocks: u64,
    dropped: u64,
    /// Of blocks that are counted already.
    outlasting: u64,
    shown: VecDeque<ShownBlock>,
    strikes: u32,
}

#[derive(Debug, Default)]
struct SideSums {
    blocks: u64,
    figures: BlockFigures,
}

impl Trial {
    /// Begins with a first block.
    pub(crate) fn new(config: Arc<Config>, levers: Levers, seed: u64, now: Stamp) -> Self {
        let mut trial = Self {
            config,
            levers,
            schedule: BlockSchedule::new(seed),
            blocks: VecDeque::new(),
            started: now,
            state: TrialState::Running,
            measures: TrialMeasure::ALL.map(MeasureTracker::new),
            verdicts: [TrialVerdict::Undecided; 4],
            sides: Default::default(),
            failed_blocks: 0,
            dropped: 0,
            outlasting: 0,
            shown: VecDeque::new(),
            strikes: 0,
        };
        trial.open_block(now);
        trial
    }

    fn lever(&self) -> TrialLever {
        self.config.lever
    }

    /// Takes a request that has ended.
    pub(crate) fn take(&mut self, ledger: &Ledger) {
        if !is_judged(ledger) {
            return;
        }
        match self.blocks.iter_mut().rev().find(|block| block.start <= ledger.started) {
            Some(block) => block.take(ledger),
            // it began in a block that is counted already
            None if ledger.started >= self.started => self.outlasting += 1,
            None => {}
        }
    }

    /// Ends the open block when its time is over, and counts those that ended a while ago.
    pub(crate) fn tick(&mut self, now: Stamp) {
        if self.state == TrialState::Running
            && let Some(open) = self.blocks.back_mut()
        {
            let is_gross = open.is_on && open.has_failed;
            if is_gross || now.since(open.start) >= self.config.block.as_nanos() {
                open.close(now);
                // what fails on both sides is not the lever's fault
                self.strikes = match (open.is_on, open.has_failed) {
                    (true, true) => self.strikes + 1,
                    (false, false) => self.strikes,
                    _ => 0,
                };
                if self.strikes >= STRIKES {
                    let reason =
                        format!("most requests failed in each of {STRIKES} blocks in which it was on, and not between them");
                    self.stop(reason);
                } else if now.since(self.started) >= self.config.max_time.as_nanos() {
                    self.finish();
                } else if is_gross {
                    tracing::warn!(lever = self.lever().name(), "trial: most requests fail; the lever is off for a block");
                    self.open(false, false, now);
                } else {
                    self.open_block(now);
                }
            }
        }
        while self.blocks.front().and_then(|block| block.end).is_some_and(|end| now.since(end) >= SETTLE_NS) {
            if let Some(block) = self.blocks.pop_front() {
                self.count(block);
            }
        }
    }

    fn open_block(&mut self, now: Stamp) {
        let draw = self.schedule.next();
        self.open(draw.is_on, draw.is_coin, now);
    }

    fn open(&mut self, is_on: bool, is_coin: bool, now: Stamp) {
        self.lever().turn(&self.levers, Some(is_on));
        self.blocks.push_back(Block::new(is_on, is_coin, now, self.config.drop.as_nanos()));
    }

    /// Compares a block with those before it.
    fn count(&mut self, block: Block) {
        let Block { is_on, is_coin, start, ref figures, dropped, .. } = block;
        self.dropped += dropped;
        let side = match (block.has_failed, is_on) {
            (true, _) => BlockSide::Failed,
            (false, true) => BlockSide::On,
            (false, false) => BlockSide::Off,
        };
        if self.shown.len() == SHOWN {
            self.shown.pop_front();
        }
        let after_ns = start.since(self.started);
        self.shown.push_back(ShownBlock {
            is_on,
            is_compared: side != BlockSide::Failed,
            after_ns,
            side: TrialSide::of(1, figures),
        });
        if side == BlockSide::Failed {
            self.failed_blocks += 1;
            return;
        }
        let sums = &mut self.sides[usize::from(!is_on)];
        sums.blocks += 1;
        sums.figures.add(figures);
        self.measures.iter_mut().for_each(|measure| measure.record(figures, is_on, is_coin));
        self.look();
    }

    /// Says what has become certain, and stops at what exceeds a limit.
    fn look(&mut self) {
        for (measure, verdict) in self.measures.iter().zip(&mut self.verdicts) {
            let effect = measure.effect();
            if effect.verdict != *verdict {
                *verdict = effect.verdict;
                let (lever, measure) = (self.config.lever.name(), effect.measure.name());
                tracing::info!(lever, measure, verdict = verdict.name(), effect = effect.words(), "trial: a verdict");
            }
        }
        let mut reasons = String::new();
        for reason in self.measures.iter().filter_map(|measure| measure.exceeds(&self.config.stop_on)) {
            let _ = write!(reasons, "{}{reason}", if reasons.is_empty() { "" } else { "; " });
        }
        if !reasons.is_empty() && !matches!(self.state, TrialState::Stopped(_)) {
            self.stop(reasons);
        }
    }

    fn stop(&mut self, reason: String) {
        self.lever().turn(&self.levers, Some(false));
        self.blocks.clear();
        tracing::warn!(
            lever = self.lever().name(),
            reason,
            "trial: stopped; the lever is off until the settings of the trial change"
        );
        self.state = TrialState::Stopped(reason);
    }

    fn finish(&mut self) {
        self.lever().turn(&self.levers, None);
        self.state = TrialState::Over;
        let effects: Vec<String> = self.measures.iter().map(|measure| measure.effect().words()).collect();
        tracing::info!(
            lever = self.lever().name(),
            effects = effects.join("; "),
            "trial: its time is over; the lever is as configured"
        );
    }

    pub(crate) fn status(&self) -> TrialStatus {
        let [on, off] = self.sides.each_ref();
        let open = self.blocks.back().filter(|_| self.state == TrialState::Running);
        TrialStatus {
            lever: self.lever().name(),
            is_on: open.is_some_and(|block| block.is_on),
            is_stopped: matches!(self.state, TrialState::Stopped(_)),
            blocks: [(BlockSide::On, on.blocks), (BlockSide::Off, off.blocks), (BlockSide::Failed, self.failed_blocks)],
            requests: [
                ("on", on.figures.requests),
                ("off", off.figures.requests),
                ("dropped", self.dropped),
                ("outlasting", self.outlasting()),
            ],
        }
    }

    #[cfg(test)]
    pub(crate) const fn verdicts(&self) -> [TrialVerdict; 4] {
        self.verdicts
    }

    fn outlasting(&self) -> u64 {
        self.outlasting + self.sides.iter().map(|side| side.figures.outlasting).sum::<u64>()
    }

    pub(crate) fn snapshot(&self, now: Stamp) -> TrialSnapshot {
        let [on, off] = self.sides.each_ref().map(|side| TrialSide::of(side.blocks, &side.figures));
        let open = self.blocks.back().filter(|_| self.state == TrialState::Running);
        TrialSnapshot {
            status: self.status(),
            state: self.state.clone(),
            config: self.config.clone(),
            after_ns: now.since(self.started),
            next_in_ns: open.map(|block| self.config.block.as_nanos().saturating_sub(now.since(block.start))),
            doubts: self.doubts(),
            effects: self.measures.each_ref().map(MeasureTracker::effect),
            on,
            off,
            blocks: self.shown.iter().cloned().collect(),
        }
    }

    /// What cannot be judged, and why.
    fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        let blocks: u64 = self.sides.iter().map(|side| side.blocks).sum();
        for measure in &self.measures {
            let TrialEffect { measure, coins, too_few, .. } = measure.effect();
            let name = measure.name();
            if u64::from(too_few) * 4 > blocks {
                doubts.push(format!("{name}: {too_few} of {blocks} blocks have too few requests; longer ones have more"));
            } else if coins < EffectTracker::MIN_COINS {
                doubts.push(format!(
                    "{name}: too early: coins have decided {coins} blocks so far, and {} is the least that proves anything",
                    EffectTracker::MIN_COINS
                ));
            }
        }
        let counted: u64 = self.sides.iter().map(|side| side.figures.requests).sum();
        if self.outlasting() * 10 > counted {
            doubts.push(format!(
                "{} requests outlasted their block, {counted} did not: blocks should be longer",
                self.outlasting()
            ));
        }
        if self.failed_blocks > 0 {
            doubts.push(format!("{} blocks are not compared: most of their requests failed", self.failed_blocks));
        }
        doubts
    }
}
