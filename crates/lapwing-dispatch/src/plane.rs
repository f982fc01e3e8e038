//! The queue of a data plane, for all its workers and whatever settings are in force.

use std::fmt;
use std::task::Waker;

use parking_lot::Mutex;

use crate::ask::{Ask, QueueRequest, Ticket, TicketState};
use crate::config::Config;
use crate::queue::DispatchQueue;
use crate::service::ServiceModels;
use crate::upstreams::UpstreamSet;
use lapwing_ledger::Stamp;

/// The queue of a data plane.
#[derive(Debug)]
pub struct DispatchPlane {
    queue: Mutex<DispatchQueue<Waker>>,
    /// Which upstreams take no connections.
    away: Away,
}

/// What waits and what runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DispatchState {
    /// Requests that wait.
    pub waiting: usize,
    /// Those of each class, by its place; a last class without any may be missing.
    pub classes: Vec<WaitingClass>,
    /// Requests at each upstream, as far as they were counted.
    pub running: Vec<usize>,
    /// Upstreams that are sent nothing for now, because they failed.
    pub ejected: UpstreamSet,
    /// How often an upstream was.
    pub ejections: u64,
}

/// Those of a class who wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingClass {
    /// How many there are.
    pub waiting: usize,
    /// What they take, in nanoseconds of one slot.
    pub work_ns: u64,
}

impl DispatchPlane {
    /// A queue in front of so many upstreams.
    pub(crate) fn new(upstreams: usize, away: impl Fn() -> UpstreamSet + Send + Sync + 'static) -> Self {
        Self { queue: Mutex::new(DispatchQueue::new(Config::default().queue(), upstreams)), away: Away(Box::new(away)) }
    }

    /// Takes what is known of services.
    pub fn publish(&self, models: ServiceModels) {
        self.with(|queue, now| queue.publish(models, now));
    }

    /// Sends upstreams more than they are known to work on at once, or no longer.
    pub(crate) fn recheck(&self, more: bool) {
        self.with(|queue, now| queue.recheck(more, now));
    }

    /// What waits and runs now.
    #[must_use]
    pub fn state(&self) -> DispatchState {
        let queue = self.queue.lock();
        let mut state = DispatchState {
            waiting: queue.waiting(),
            running: queue.running().collect(),
            classes: Vec::new(),
            ejected: queue.ejected(Stamp::now()),
            ejections: queue.ejections(),
        };
        for (class, waiting, work_ns) in queue.waiting_by_class() {
            if state.classes.len() <= class {
                state.classes.resize(class + 1, WaitingClass::default());
            }
            state.classes[class].waiting += waiting;
            state.classes[class].work_ns += work_ns;
        }
        state
    }

    /// How one who waits stands; it leaves its waker if it waits on.
    pub(crate) fn poll(&self, ticket: Ticket, waker: &Waker) -> TicketState {
        self.with(|queue, now| queue.poll(ticket, now, || waker.clone()))
    }

    /// Until when one waits at most.
    pub(crate) fn until(&self, ticket: Ticket) -> Stamp {
        self.queue.lock().until(ticket).unwrap_or_default()
    }

    /// A request asks to be sent.
    pub(crate) fn ask(&self, request: &QueueRequest) -> Ask {
        self.with(|queue, now| queue.ask(request, now))
    }

    /// Does something to the queue, which knows by now who is away, and wakes whom that concerns once it is done.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut DispatchQueue<Waker>, Stamp) -> T) -> T {
        let away = (self.away.0)();
        let (done, woken) = {
            let queue = &mut *self.queue.lock();
            // while it is locked, so that the queue's time never goes back
            let now = Stamp::now();
            queue.note_away(away, now);
            (act(queue, now), queue.take_woken())
        };
        woken.into_iter().for_each(Waker::wake);
        done
    }
}

/// Says which upstreams take no connections.
struct Away(Box<dyn Fn() -> UpstreamSet + Send + Sync>);

impl fmt::Debug for Away {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Away").finish()
    }
}
