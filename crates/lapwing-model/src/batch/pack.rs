//! Packs the next batch: the order in which waiting calls are considered, and which of them fit.
//!
//! Packing marks the calls and removes none: `waiting` decides whether the batch runs now or waits for more calls.
//! Units are [`super::CallCost::units`]; stamps are nanoseconds. Nothing is dropped here.

use super::{CallCost, Config, Fit, Item, Policy, Tuning};
use lapwing_engine::clock::Stamp;

/// A call that waits.
#[derive(Debug)]
pub(crate) struct Held<T> {
    pub(crate) item: Item<T>,
    /// Its due time; the earliest goes first.
    pub(crate) due: Stamp,
    /// Its place in the order of arrival.
    pub(crate) number: u64,
    /// How many batches with a younger call in them have started without it.
    pub(crate) passed: u32,
    /// Whether it belongs to the batch packed last.
    pub(crate) chosen: bool,
}

/// A packed batch: the calls that are marked as chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) calls: usize,
    pub(crate) cost: CallCost,
    /// No further call is waited for: a limit is reached, or a waiting call was left out.
    pub(crate) full: bool,
    /// When its oldest call came.
    pub(crate) oldest: Stamp,
    /// The earliest deadline of a member that this batch still meets.
    meets: Option<Stamp>,
}

/// The limits that one packing obeys.
pub(crate) struct Packer<'a> {
    pub(crate) config: &'a Config,
    pub(crate) tuning: &'a Tuning,
    pub(crate) fit: &'a Fit,
    pub(crate) now: Stamp,
    /// Units of all waiting calls.
    pub(crate) backlog: usize,
    /// Whether a call has been overtaken as often as allowed.
    pub(crate) overdue: bool,
}

impl Packer<'_> {
    /// How many units a batch may hold: enough that its fixed cost does not matter, more with a long backlog.
    pub(crate) fn budget(&self) -> usize {
        let (Policy::Adaptive, Some(line)) = (self.config.policy, self.fit.line()) else { return self.config.max_tokens };
        let amortised = line.fixed_ns / line.unit_ns.max(1e-9) * (1.0 / self.tuning.fixed_share - 1.0);
        // a float too large for an integer becomes the largest one
        (amortised.max(self.backlog as f64 * self.tuning.backlog_share) as usize).clamp(1, self.config.max_tokens)
    }

    /// Marks the next batch; `None` where nothing waits. `order` is room for sorting.
    pub(crate) fn pack<T>(&self, calls: &mut [Held<T>], order: &mut Vec<(u64, usize)>) -> Option<Batch> {
        for held in calls.iter_mut() {
            held.chosen = false;
        }
        let budget = self.budget();
        let mut batch = None;
        if !self.overdue {
            for held in calls.iter_mut() {
                self.consider(held, &mut batch, budget);
                if self.policy_stops(batch.as_ref()) {
                    break;
                }
            }
            return batch;
        }
        order.clear();
        order.extend(calls.iter().enumerate().map(|(at, held)| (held.number, at)));
        order.sort_unstable();
        for &(_, at) in order.iter() {
            let held = &mut calls[at];
            self.consider(held, &mut batch, budget);
            if self.policy_stops(batch.as_ref()) {
                break;
            }
            if !held.chosen && held.passed >= self.tuning.overtakes {
                // any later call, waiting or still to come, would overtake it once too often
                batch.iter_mut().for_each(|batch| batch.full = true);
                break;
            }
        }
        batch
    }

    fn most_calls(&self) -> usize {
        match self.config.policy {
            Policy::Adaptive => self.config.max_calls,
            Policy::Fixed { calls } => calls,
        }
    }

    fn policy_stops(&self, batch: Option<&Batch>) -> bool {
        batch.is_some_and(|b| b.calls >= self.most_calls() || b.full && matches!(self.config.policy, Policy::Fixed { .. }))
    }

    /// Chooses one call where it fits. The first one always does.
    fn consider<T>(&self, held: &mut Held<T>, batch: &mut Option<Batch>, budget: usize) {
        let Item { cost, arrived, deadline, .. } = held.item;
        let (calls, total, meets, oldest) = match batch {
            None => (1, cost, None, arrived),
            Some(batch) => (batch.calls + 1, batch.cost.plus(cost), batch.meets, batch.oldest.min(arrived)),
        };
        let done = self.done(total);
        if let Some(batch) = batch {
            let fits = calls <= self.most_calls() && total.rows <= self.config.max_rows && total.units() <= budget;
            // a member that meets its deadline without this call must meet it with this call
            if !fits || meets.is_some_and(|deadline| done > deadline) {
                batch.full = true;
                return;
            }
        }
        // a call that is late in any case delays no other: running it later would not help it
        let own = deadline.filter(|&deadline| done <= deadline);
        let meets = meets.into_iter().chain(own).min();
        held.chosen = true;
        *batch = Some(Batch { calls, cost: total, full: self.reached(calls, total, budget), oldest, meets });
    }

    fn reached(&self, calls: usize, cost: CallCost, budget: usize) -> bool {
        calls >= self.most_calls() || cost.rows >= self.config.max_rows || cost.units() >= budget
    }

    /// When a batch that starts now is expected to be done.
    fn done(&self, cost: CallCost) -> Stamp {
        self.now.plus(self.fit.forward_ns(cost.units()) as u64)
    }
}
