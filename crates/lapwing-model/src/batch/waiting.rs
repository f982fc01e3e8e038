//! The calls that wait for one model, and the decision whether a batch of them runs now or waits for more.
//!
//! Time is an argument, so that a simulation can drive it; the thread that waits is in `queue`. Times are nanoseconds.

use super::arrivals::Arrivals;
use super::pack::{Batch, Held, Packer};
use super::{CallCost, Config, Fit, Item, Policy, QueueError, Tuning};
use lapwing_engine::clock::Stamp;

/// What the executor does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Run the batch.
    Run,
    /// Ask again at this time, or when a call has arrived.
    Wait(Stamp),
    /// Ask again when a call has arrived: none waits.
    Idle,
}

/// The waiting calls, in the order in which they are due.
#[derive(Debug)]
pub struct Waiting<T> {
    config: Config,
    tuning: Tuning,
    calls: Vec<Held<T>>,
    order: Vec<(u64, usize)>,
    number: u64,
    units: usize,
    arrivals: Arrivals,
    fit: Fit,
}

impl<T> Waiting<T> {
    /// An empty one.
    #[must_use]
    pub fn new(config: Config, tuning: Tuning) -> Self {
        Self {
            config: config.sane(),
            tuning,
            calls: Vec::new(),
            order: Vec::new(),
            number: 0,
            units: 0,
            arrivals: Arrivals::default(),
            fit: Fit::default(),
        }
    }

    /// How many calls wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Units of all that wait.
    #[must_use]
    pub fn units(&self) -> usize {
        self.units
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The fitted forward time.
    #[must_use]
    pub fn fit(&self) -> &Fit {
        &self.fit
    }

    /// Records how long a batch's forward pass took; warm-up runs count too.
    pub fn observe(&mut self, cost: CallCost, forward_ns: u64) {
        self.fit.observe(cost.units(), forward_ns);
    }

    /// Adds a call.
    ///
    /// # Errors
    /// [`QueueError::Full`]: the call is dropped.
    pub fn push(&mut self, item: Item<T>) -> Result<(), QueueError> {
        if self.calls.len() >= self.config.queue_calls {
            return Err(QueueError::Full { waiting: self.calls.len() });
        }
        let units = item.cost.units();
        self.arrivals.note(item.arrived);
        let held = Held { due: self.due(&item), item, number: self.number, passed: 0, chosen: false };
        let at = self.calls.partition_point(|other| (other.due, other.number) < (held.due, held.number));
        self.calls.insert(at, held);
        self.number += 1;
        self.units += units;
        Ok(())
    }

    /// When a call is due: its arrival plus a multiple of its own forward time, but no later than it must start.
    fn due(&self, item: &Item<T>) -> Stamp {
        if let Policy::Fixed { .. } = self.config.policy {
            return Stamp::default();
        }
        let forward = self.fit.forward_ns(item.cost.units());
        let due = item.arrived.plus((forward * self.tuning.stretch) as u64);
        item.deadline.map_or(due, |deadline| due.min(before(deadline, forward)))
    }

    /// What a free executor does now. `into` holds the batch then, and nothing unless it is to run; `expired` holds the calls
    /// whose deadline has passed. Both are emptied first. `closing`: no more calls come, so nothing waits for others.
    pub fn poll(&mut self, now: Stamp, closing: bool, into: &mut Vec<Item<T>>, expired: &mut Vec<Item<T>>) -> Next {
        into.clear();
        expired.clear();
        if self.calls.iter().any(|held| is_late(&held.item, now)) {
            self.remove(expired, |held| is_late(&held.item, now));
        }
        let overdue = self.calls.iter().any(|held| held.passed >= self.tuning.overtakes);
        let (config, tuning, fit) = (&self.config, &self.tuning, &self.fit);
        let packer = Packer { config, tuning, fit, now, backlog: self.units, overdue };
        let Some(batch) = packer.pack(&mut self.calls, &mut self.order) else { return Next::Idle };
        if !closing && !batch.full {
            let until = self.waits_until(&batch, now);
            if until > now {
                return Next::Wait(until);
            }
        }
        let youngest = self.calls.iter().filter(|held| held.chosen).map(|held| held.number).max().unwrap_or_default();
        self.remove(into, |held| held.chosen);
        for held in self.calls.iter_mut().filter(|held| held.number < youngest) {
            held.passed += 1;
        }
        Next::Run
    }

    /// Until when waiting for one more call pays for this batch; a time in the past if it does not.
    fn waits_until(&self, batch: &Batch, now: Stamp) -> Stamp {
        let least = batch.oldest.plus(self.config.min_wait_ns);
        let most = batch.oldest.plus(self.config.max_wait_ns);
        let until = match self.config.policy {
            Policy::Fixed { .. } => most,
            Policy::Adaptive => self.gains_until(now).unwrap_or_default().clamp(least, most),
        };
        let forward = self.fit.forward_ns(batch.cost.units());
        let last_starts = self.calls.iter().filter_map(|held| {
            let own = if held.chosen { 0.0 } else { self.fit.forward_ns(held.item.cost.units()) };
            held.item.deadline.map(|deadline| before(deadline, forward + own))
        });
        last_starts.fold(until, Stamp::min)
    }

    /// One more call in this batch saves the fixed cost of another batch.
    fn gains_until(&self, now: Stamp) -> Option<Stamp> {
        self.arrivals.pays_until(now, self.fit.line()?.fixed_ns, self.calls.len())
    }

    /// Moves calls out, and keeps the others in order.
    fn remove(&mut self, into: &mut Vec<Item<T>>, which: impl Fn(&Held<T>) -> bool) {
        let from = into.len();
        into.extend(self.calls.extract_if(.., |held| which(held)).map(|held| held.item));
        self.units -= into[from..].iter().map(|item| item.cost.units()).sum::<usize>();
    }
}

fn is_late<T>(item: &Item<T>, now: Stamp) -> bool {
    item.deadline.is_some_and(|deadline| deadline <= now)
}

/// The stamp `ns` nanoseconds before `at`.
fn before(at: Stamp, ns: f64) -> Stamp {
    Stamp::from_ns(at.as_ns().saturating_sub(ns as u64)).unwrap_or_default()
}
