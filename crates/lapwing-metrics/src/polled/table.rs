//! The totals of every polled model, in the slots of time of the series' windows.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::{BatchStatistics, PolledInterval, PolledKey, PolledTotals};
use crate::window::{CoarseRotation, Selection, Window};
use lapwing_ledger::Stamp;

/// The polled models.
#[derive(Debug, Default)]
pub(crate) struct PolledTable {
    models: FxHashMap<PolledKey, PolledModel>,
}

#[derive(Debug, Default)]
struct PolledModel {
    now: PolledTotals,
    before: PolledTotals,
    /// Slots by number.
    fine: VecDeque<(u64, PolledTotals)>,
    coarse: VecDeque<(u64, PolledTotals)>,
    /// The latest batches, and until when they count as such.
    batch: Option<(BatchStatistics, Stamp)>,
}

impl PolledTable {
    /// Adds what a poll found; its batches are the latest until `valid_until`.
    pub(crate) fn record(&mut self, key: PolledKey, interval: &PolledInterval, valid_until: Stamp) {
        let model = self.models.entry(key).or_default();
        model.now.add(interval);
        model.batch = interval.batch.map(|batch| (batch, valid_until));
    }

    /// Forgets the models that are not kept.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&PolledKey) -> bool) {
        self.models.retain(|key, _| is_kept(key));
    }

    /// Whether anything was ever polled of the model.
    pub(crate) fn holds(&self, key: PolledKey) -> bool {
        self.models.contains_key(&key)
    }

    /// Closes the fine slot `number`.
    pub(crate) fn rotate(&mut self, number: u64) {
        for model in self.models.values_mut().filter(|model| model.now.polls > 0) {
            let totals = std::mem::take(&mut model.now);
            model.before.merge(&totals);
            model.fine.push_back((number, totals));
        }
    }

    /// Merges fine slots into a coarse one, and drops slots that no window reaches any more.
    pub(crate) fn roll(&mut self, roll: &CoarseRotation) {
        for model in self.models.values_mut() {
            let mut totals = PolledTotals::default();
            model.fine.iter().filter(|(number, _)| *number >= roll.fine_from).for_each(|(_, slot)| totals.merge(slot));
            if totals.polls > 0 {
                model.coarse.push_back((roll.coarse, totals));
            }
            model.fine.retain(|(number, _)| *number >= roll.fine_kept);
            model.coarse.retain(|(number, _)| *number >= roll.coarse_kept);
        }
    }

    /// The totals of every model with a poll in `window`.
    pub(crate) fn read(&self, window: Window, selection: &Selection) -> Vec<(PolledKey, PolledTotals)> {
        let models = self.models.iter().map(|(key, model)| (*key, model.read(window, selection)));
        models.filter(|(_, totals)| totals.polls > 0).collect()
    }

    /// The totals of one model in `window`; `None` if no poll of it ended there.
    pub(crate) fn get(&self, key: PolledKey, window: Window, selection: &Selection) -> Option<PolledTotals> {
        Some(self.models.get(&key)?.read(window, selection)).filter(|totals| totals.polls > 0)
    }

    /// The latest batches of one model, if they are not out of date at `now`.
    pub(crate) fn batch(&self, key: PolledKey, now: Stamp) -> Option<BatchStatistics> {
        let (batch, valid_until) = self.models.get(&key)?.batch?;
        (now <= valid_until).then_some(batch)
    }
}

impl PolledModel {
    fn read(&self, window: Window, selection: &Selection) -> PolledTotals {
        let mut totals = self.now;
        if window == Window::All {
            totals.merge(&self.before);
        }
        let fine = self.fine.iter().filter(|(number, _)| *number >= selection.fine_from);
        let coarse = self.coarse.iter().filter(|(number, _)| *number >= selection.coarse_from);
        fine.chain(coarse).for_each(|(_, slot)| totals.merge(slot));
        totals
    }
}
