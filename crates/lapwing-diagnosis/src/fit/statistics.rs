//! What is kept of a series' windows, in bounded memory, and folded as it comes.

use super::block::Block;
use super::cells::{WideCells, total};
use super::estimate;
use super::fitted::WindowFit;
use super::model::Model;
use super::pending::{FOLD, Sample, first_model, fold};
use super::refusal::FitRefusal;
use super::solve;

/// The most blocks of time; when there are more, neighbours merge.
pub(crate) const MAX_BLOCKS: usize = 10;
/// A fold of which more than this share is rejected shows that the server has changed: what was before is forgotten.
const CHANGED_SHARE: f64 = 0.15;

/// Sufficient statistics of one series' upstream windows by cost class and number in flight.
///
/// Recording costs a few additions; every 128 samples are judged by the model so far and folded into cells. At most 20 KiB for a
/// series ([`FitStatistics::MAX_BYTES`]), whatever it is sent.
#[derive(Clone, Debug, Default)]
pub struct FitStatistics {
    pending: Vec<Sample>,
    pending_from: u64,
    blocks: Vec<Block>,
    model: Option<Model>,
    folds: u32,
}

impl FitStatistics {
    /// The most memory that one series takes, in bytes.
    pub const MAX_BYTES: usize = 20 * 1024;

    /// Takes a request: `work` in units, `in_flight` requests when it arrived, itself included, its upstream window, and the time
    /// of its arrival on a monotonic clock. One without a known number in flight (zero) is left out.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "seven digits are enough")]
    pub fn record(&mut self, work: u64, in_flight: u32, window_ns: u64, at_ns: u64) {
        if in_flight == 0 || window_ns == 0 {
            return;
        }
        if self.pending.is_empty() {
            self.pending.reserve_exact(FOLD);
            self.pending_from = at_ns;
        }
        // requests end in another order than they come in; the few that came before the first of the fold count as with it
        let after_us = (at_ns.saturating_sub(self.pending_from) / 1_000).min(u64::from(u32::MAX)) as u32;
        self.pending.push(Sample { work: work as f32, in_flight, window_ns: window_ns as f32, after_us });
        if self.pending.len() >= FOLD {
            self.fold();
        }
    }

    /// Adds what another one holds, as of another worker.
    pub fn merge(&mut self, other: &Self) {
        for sample in &other.pending {
            let at = other.pending_from.saturating_add(u64::from(sample.after_us) * 1_000);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "they were integers")]
            self.record(sample.work as u64, sample.in_flight, sample.window_ns as u64, at);
        }
        self.model = self.model.or(other.model);
        self.blocks.extend(other.blocks.iter().cloned());
        self.blocks.sort_by_key(|block| block.first_at);
        self.bound();
    }

    /// Forgets blocks whose last request arrived before `before_ns`.
    pub fn expire(&mut self, before_ns: u64) {
        self.blocks.retain(|block| block.last_at >= before_ns);
        if self.blocks.is_empty() {
            self.model = None;
            self.folds = 0;
        }
        let last = self.pending.iter().map(|sample| sample.after_us).max().unwrap_or(0);
        if self.pending_from.saturating_add(u64::from(last) * 1_000) < before_ns {
            self.pending.clear();
        }
    }

    /// Fits what is held.
    ///
    /// # Errors
    ///
    /// What the figures lack, where they carry no fit.
    pub fn fit(&self) -> Result<WindowFit, FitRefusal> {
        let mut all = self.clone();
        // the last few say as much as any, but a block of very few says little of how blocks differ
        if all.pending.len() >= FOLD / 4 || all.blocks.is_empty() {
            all.fold();
        }
        estimate::fit(&all.blocks)
    }

    /// Whether the next sample is the first of a fold.
    pub(crate) const fn is_between_folds(&self) -> bool {
        self.pending.is_empty()
    }

    /// How many samples are held.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.blocks.iter().map(|block| block.samples).sum::<u64>() + self.pending.len() as u64
    }

    /// The memory that is held, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.pending.capacity() * size_of::<Sample>()
            + self.blocks.capacity() * size_of::<Block>()
            + self.blocks.iter().map(|block| block.cells.bytes()).sum::<usize>()
    }

    fn fold(&mut self) {
        let samples = std::mem::take(&mut self.pending);
        let known = self.model.map(|_| self.cells());
        self.model = self.model.or_else(|| first_model(&samples));
        if let Some(model) = self.model {
            let mut block = fold(&samples, self.pending_from, &model, known.as_ref());
            if block.rejected as f64 > samples.len() as f64 * CHANGED_SHARE
                && let Some(model) = first_model(&samples)
            {
                self.blocks.clear();
                self.folds = 0;
                self.model = Some(model);
                block = fold(&samples, self.pending_from, &model, None);
            }
            self.blocks.reserve_exact((MAX_BLOCKS + 1).saturating_sub(self.blocks.len()));
            self.blocks.push(block);
            self.bound();
            self.folds = self.folds.saturating_add(1);
            self.learn();
        }
        self.pending = samples;
        self.pending.clear();
    }

    /// Fits the model that the next samples are judged by: at each doubling with a new choice of the slots, else with one step.
    fn learn(&mut self) {
        let cells = self.cells();
        let total = total(cells.moments());
        let next = match self.model {
            Some(model) if !self.folds.is_power_of_two() => solve::refine(cells.moments(), &total, &model),
            _ => solve::choose(cells.moments(), &total).first().map(|candidate| candidate.model),
        };
        self.model = next.or(self.model);
    }

    fn cells(&self) -> WideCells {
        let mut cells = WideCells::default();
        self.blocks.iter().for_each(|block| cells.add_all(&block.cells));
        cells
    }

    /// Merges neighbours until there is room for one more.
    fn bound(&mut self) {
        while self.blocks.len() > MAX_BLOCKS {
            let blocks = std::mem::take(&mut self.blocks);
            for mut pair in blocks.chunks(2).map(<[Block]>::to_vec) {
                let later = (pair.len() > 1).then(|| pair.pop()).flatten();
                if let Some(mut block) = pair.pop() {
                    later.iter().for_each(|later| block.merge(later));
                    self.blocks.push(block);
                }
            }
        }
        self.blocks.shrink_to(MAX_BLOCKS + 1);
    }
}
