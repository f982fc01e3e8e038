//! The queue between the callers of a model and the one thread that runs it, and the decision whether a batch of the calls that wait in it
//! runs now or waits for more.
//!
//! Callers push from any thread and never wait; the executor's thread sleeps in [`Queue::take`] until a batch is due. It starts no thread
//! and needs no runtime. Time is [`Stamp::now`] there and an argument of [`Waiting`], so that a simulation can drive it; times are
//! nanoseconds.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::arrivals::Arrivals;
use super::pack::{Batch, Held, Packer};
use super::{CallCost, Config, Fit, Item, Line, Policy, QueueError, Tuning};
use lapwing_engine::clock::Stamp;

/// The result of [`Queue::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A batch, expired calls, or both.
    Calls,
    /// Nothing: the queue is closed, and empty.
    Closed,
}

/// The calls that wait for one model.
#[derive(Debug)]
pub struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    waiting: Waiting<T>,
    closed: bool,
}

impl<T> Queue<T> {
    /// An open, empty queue.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let waiting = Waiting::new(config, Tuning::default());
        Self { state: Mutex::new(State { waiting, closed: false }), changed: Condvar::new() }
    }

    /// Puts a call in.
    ///
    /// # Errors
    /// When the queue is full, and after [`Self::close`]; the call is dropped.
    pub fn push(&self, item: Item<T>) -> Result<(), QueueError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(QueueError::Closed);
        }
        state.waiting.push(item)?;
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Sleeps until a batch is due. `into` then holds it, and `expired` the calls whose deadline passed while they waited; one of
    /// them may be empty. Both are emptied first and keep their room. A deadline that passes during a forward pass is reported after it.
    pub fn take(&self, into: &mut Vec<Item<T>>, expired: &mut Vec<Item<T>>) -> Taken {
        let mut state = self.state.lock();
        loop {
            let now = Stamp::now();
            let closed = state.closed;
            let next = state.waiting.poll(now, closed, into, expired);
            if next == Next::Run || !expired.is_empty() {
                return Taken::Calls;
            }
            match next {
                Next::Wait(until) => {
                    self.changed.wait_for(&mut state, Duration::from_nanos(until.since(now)));
                }
                _ if closed => return Taken::Closed,
                _ => self.changed.wait(&mut state),
            }
        }
    }

    /// Records how long a batch's forward pass took. Warm-up runs of several sizes let the first batches have the right size.
    pub fn observe(&self, cost: CallCost, forward_ns: u64) {
        self.state.lock().waiting.observe(cost, forward_ns);
    }

    /// The fitted forward time; `None` until batches of different sizes have run.
    #[must_use]
    pub fn line(&self) -> Option<Line> {
        self.state.lock().waiting.fit().line()
    }

    /// The forward time in proportion to the units; `None` until a batch has run.
    #[must_use]
    pub fn proportion(&self) -> Option<Line> {
        self.state.lock().waiting.fit().proportion()
    }

    /// How many calls wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Closes the queue: it takes no more calls; waiting calls still run, without waiting for others.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

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
