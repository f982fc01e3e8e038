//! The queue between the callers of a model and the one thread that runs it.
//!
//! Callers push from any thread and never wait; the executor's thread sleeps in [`Queue::take`] until a batch is due.
//! It starts no thread and needs no runtime. Time is [`Stamp::now`].

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{CallCost, Config, Item, Line, Next, QueueError, Tuning, Waiting};
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
