//! The queue of a data plane, for all its workers and whatever settings are in force.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Waker;

use parking_lot::Mutex;

use crate::ask::{Ask, Overdue, QueueClass, QueueRequest, Ticket, TicketState};
use crate::class_counts::ClassCounts;
use crate::config::Config;
use crate::learn::Departure;
use crate::queue::DispatchQueue;
use crate::service::ServiceModels;
use crate::speeds::UpstreamSpeeds;
use crate::upstreams::UpstreamSet;
use lapwing_ledger::Stamp;

/// The queue of a data plane.
#[derive(Debug)]
pub struct DispatchPlane {
    queue: Mutex<DispatchQueue<Waker>>,
    /// Which upstreams take no connections.
    away: Away,
    /// Where others read how fast upstreams work.
    speeds: Arc<UpstreamSpeeds>,
    /// How often it panicked.
    panics: AtomicU64,
    /// What upstreams did whose answer came too late, until it is learnt from.
    lost: Mutex<Vec<Departure>>,
}

/// How many of those are kept.
const MAX_LOST: usize = 256;

/// What waits and what runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DispatchState {
    /// Requests that wait.
    pub waiting: usize,
    /// The classes in force.
    pub classes: Vec<WaitingClass>,
    /// Requests at each upstream, as far as they were counted.
    pub running: Vec<usize>,
    /// Upstreams that are sent nothing for now, because they failed.
    pub ejected: UpstreamSet,
    /// Upstreams where a request has just failed.
    pub doubtful: UpstreamSet,
    /// Upstreams where nothing has ended since their oldest request took longer than 99 of 100 do.
    pub stalled: UpstreamSet,
    /// Those of these three that are sent nothing that can go elsewhere: at most half.
    pub left_out: UpstreamSet,
    /// How often an upstream was ejected.
    pub ejections: u64,
    /// How often the queue panicked: who waited was sent, and it began afresh.
    pub panics: u64,
    /// What all requests that were sent are expected to take, in nanoseconds, second ones not counted.
    pub predicted_ns: u64,
    /// What their second ones are.
    pub hedged_ns: u64,
}

/// Those of a class who wait, and what became of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitingClass {
    /// Its name.
    pub name: Box<str>,
    /// How many there are.
    pub waiting: usize,
    /// What they take, in nanoseconds of one slot.
    pub work_ns: u64,
    /// What became of its requests since it is there.
    pub counts: ClassCounts,
}

impl DispatchPlane {
    /// A queue in front of so many upstreams.
    pub(crate) fn new(
        upstreams: usize,
        away: impl Fn() -> UpstreamSet + Send + Sync + 'static,
        speeds: Arc<UpstreamSpeeds>,
    ) -> Self {
        let queue = Mutex::new(DispatchQueue::new(Config::default().queue(), upstreams));
        Self { queue, away: Away(Box::new(away)), speeds, panics: AtomicU64::new(0), lost: Mutex::default() }
    }

    /// Takes what is known of services.
    pub fn publish(&self, models: ServiceModels) {
        self.speeds.publish(&models);
        self.with((), |queue, now| queue.publish(models, now));
    }

    /// Sends upstreams more than they are known to work on at once, or no longer.
    pub(crate) fn recheck(&self, more: bool) {
        self.with((), |queue, now| queue.recheck(more, now));
    }

    /// What waits and runs now.
    #[must_use]
    pub fn state(&self) -> DispatchState {
        let queue = self.queue.lock();
        let now = Stamp::now();
        let class = |(class, counts): (&QueueClass, &ClassCounts)| WaitingClass {
            name: class.name.clone(),
            counts: counts.clone(),
            ..WaitingClass::default()
        };
        let mut state = DispatchState {
            waiting: queue.waiting(),
            running: queue.running().collect(),
            classes: queue.classes().map(class).collect(),
            ejected: queue.ejected(now),
            doubtful: queue.doubtful(now),
            stalled: queue.stalled(now),
            left_out: queue.unsound(now),
            ejections: queue.ejections(),
            panics: self.panics.load(Relaxed),
            predicted_ns: queue.hedges.predicted_ns,
            hedged_ns: queue.hedges.hedged_ns,
        };
        for (class, waiting, work_ns) in queue.waiting_by_class() {
            if let Some(class) = state.classes.get_mut(class) {
                class.waiting += waiting;
                class.work_ns += work_ns;
            }
        }
        state
    }

    /// An answer came too late.
    pub(crate) fn note_lost(&self, departure: Departure) {
        let mut lost = self.lost.lock();
        if lost.len() < MAX_LOST {
            lost.push(departure);
        }
    }

    /// What came too late since the last call.
    pub(crate) fn take_lost(&self) -> Vec<Departure> {
        std::mem::take(&mut *self.lost.lock())
    }

    /// How one who waits stands; it leaves its waker if it waits on.
    pub(crate) fn poll(&self, ticket: Ticket, waker: &Waker) -> TicketState {
        self.with(TicketState::Overdue(Overdue::Wait), |queue, now| queue.poll(ticket, now, || waker.clone()))
    }

    /// Until when one waits at most.
    pub(crate) fn until(&self, ticket: Ticket) -> Stamp {
        self.queue.lock().until(ticket).unwrap_or_default()
    }

    /// A request asks to be sent.
    pub(crate) fn ask(&self, request: &QueueRequest) -> Ask {
        self.with(Ask::Unknown, |queue, now| queue.ask(request, now))
    }

    /// Does something to the queue, which knows by now who is away, and wakes whom that concerns once it is done. If it panics, the answer is
    /// `otherwise`, and who waits goes as without a queue.
    pub(crate) fn with<T>(&self, otherwise: T, act: impl FnOnce(&mut DispatchQueue<Waker>, Stamp) -> T) -> T {
        let away = (self.away.0)();
        let (done, woken) = {
            let queue = &mut *self.queue.lock();
            // while it is locked, so that the queue's time never goes back
            let now = Stamp::now();
            let acted = catch_unwind(AssertUnwindSafe(|| {
                queue.note_away(away, now);
                (act(queue, now), queue.take_woken())
            }));
            acted.unwrap_or_else(|_| {
                self.panics.fetch_add(1, Relaxed);
                (otherwise, queue.begin_afresh())
            })
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    use super::*;
    use crate::service::{RatioQuantiles, ServiceLine, SlotsOf, WorkSeries};
    use lapwing_ledger::SeriesKey;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn models() -> ServiceModels {
        let ratios = vec![RatioQuantiles { hedge: 1.0, q99: 1.0 }; 25];
        let line = ServiceLine { fixed_ns: 1e6, per_unit_ns: 1e6, samples: 100, unexplained: 0.0, ratios };
        ServiceModels {
            made: Stamp::now(),
            lines: [(WorkSeries::from(SeriesKey::default()), line)].into_iter().collect(),
            upstreams: vec![SlotsOf { upstream: 0, slots: Ok(1), speed: 1.0 }],
            ..ServiceModels::default()
        }
    }

    #[test]
    fn after_a_panic_who_waits_goes_and_the_queue_begins_afresh() {
        let plane = DispatchPlane::new(1, UpstreamSet::default, Arc::default());
        plane.publish(models());
        let request = QueueRequest {
            class: 0,
            upstreams: UpstreamSet::first(1),
            series: SeriesKey::default().into(),
            // an hour: nothing that takes so long is due while this runs
            units: 3_600_000,
            arrived: Stamp::now(),
            deadline: None,
        };
        assert!(matches!(plane.ask(&request), Ask::Go(0, _)));
        let Ask::Wait(ticket) = plane.ask(&request) else { panic!("one is there") };
        let woken = Arc::new(Woken::default());
        assert_eq!(plane.poll(ticket, &woken.clone().into()), TicketState::Waiting);
        assert_eq!(plane.with(7, |_, _| panic!("as a fault would")), 7);
        assert_eq!((woken.0.load(Relaxed), plane.state().panics), (1, 1));
        assert_eq!(plane.poll(ticket, Waker::noop()), TicketState::Overdue(Overdue::Wait), "it goes as without a queue");
        assert_eq!(plane.ask(&request), Ask::Unknown, "nothing is known until it is published again");
        assert_eq!((plane.state().waiting, plane.state().running), (0, vec![0]));
        plane.publish(models());
        assert!(matches!(plane.ask(&request), Ask::Go(0, _)));
        let Ask::Wait(other) = plane.ask(&request) else { panic!("one is there") };
        assert_ne!(other, ticket);
    }
}
