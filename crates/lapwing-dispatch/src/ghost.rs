//! What the queue would have made of requests that passed without it: they are replayed in virtual time, with the service times that they had,
//! once in the order in which they came and once through the queue.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use lapwing_ledger::Stamp;

use crate::ask::{Ask, QueueOrder, QueueRequest, QueueSettings, Ticket, TicketState};
use crate::learn::{Departure, DepartureEnd, ServiceLearner, services};
use crate::queue::DispatchQueue;
use crate::service::ServiceModels;
use crate::upstreams::{RunEnd, RunId, UpstreamSet};

/// How often a replay publishes what is known of services, in nanoseconds.
const PUBLISHED_NS: u64 = 1_000_000_000;

/// Latencies of a replay, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GhostSide {
    /// The mean.
    pub mean_ns: u64,
    /// Of all requests.
    pub p99_ns: u64,
    /// Of the half that asks for least.
    pub small_p99_ns: u64,
    /// Of the twentieth that asks for most.
    pub large_p99_ns: u64,
}

/// How well it was predicted which requests would miss their deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissesForeseen {
    /// Would have been refused, and missed it.
    pub refused_rightly: u64,
    /// Would have been refused, and met it.
    pub refused_wrongly: u64,
    /// Would have been admitted, and missed it.
    pub admitted_wrongly: u64,
    /// Would have been admitted, and met it.
    pub admitted_rightly: u64,
}

/// What a replay shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GhostReport {
    /// How many requests were replayed.
    pub requests: usize,
    /// From the first to the last of them, in nanoseconds.
    pub covered_ns: u64,
    /// In the order in which they came.
    pub without: GhostSide,
    /// Through the queue.
    pub with: GhostSide,
    /// What admission would have foreseen.
    pub misses: MissesForeseen,
}

/// Requests for a replay.
#[derive(Debug)]
pub struct Ghost {
    /// With what each takes an upstream of mean speed, in nanoseconds.
    requests: Vec<(Departure, f64)>,
    models: ServiceModels,
}

impl Ghost {
    /// Replays what a learner keeps, by what it has learnt.
    #[must_use]
    pub fn new(learner: &ServiceLearner, models: &ServiceModels, now: Stamp) -> Self {
        let mut requests = Vec::new();
        for (upstream, sent) in learner.by_upstream(now) {
            let Some((slots, speed)) = models.of(upstream).and_then(|one| Some((one.slots.ok()?, one.speed))) else { continue };
            let timed = sent.iter().copied().zip(services(&sent, slots as usize)).map(|(one, ns)| (one, ns * speed));
            requests.extend(timed.filter(|(one, _)| one.end == DepartureEnd::Given));
        }
        requests.sort_unstable_by_key(|(one, _)| one.arrived);
        Self { requests, models: models.clone() }
    }

    /// Replays requests that are given with what they take.
    #[cfg(test)]
    pub(crate) fn of(requests: Vec<(Departure, f64)>, models: ServiceModels) -> Self {
        Self { requests, models }
    }

    #[cfg(test)]
    pub(crate) fn requests(&self) -> &[(Departure, f64)] {
        &self.requests
    }

    /// What the queue with these settings would have made of them. Admission foresees, and refuses nobody.
    #[must_use]
    pub fn report(&self, settings: &QueueSettings) -> Option<GhostReport> {
        let (first, last) = (self.requests.first()?, self.requests.last()?);
        let open = QueueSettings { rejects: false, max_waiting: usize::MAX, max_wait_ns: u64::MAX, ..settings.clone() };
        let fifo = QueueSettings { order: QueueOrder::Fifo, ..open.clone() };
        let without = self.replay(fifo);
        let with = self.replay(open);
        Some(GhostReport {
            requests: self.requests.len(),
            covered_ns: last.0.arrived.since(first.0.arrived),
            without: self.side(&without),
            with: self.side(&with),
            misses: self.misses(&without),
        })
    }

    fn misses(&self, without: &[Replayed]) -> MissesForeseen {
        let mut misses = MissesForeseen::default();
        for ((one, _), replayed) in self.requests.iter().zip(without) {
            let Some(deadline) = one.deadline else { continue };
            *match (replayed.is_foreseen_late, one.ended > deadline) {
                (true, true) => &mut misses.refused_rightly,
                (true, false) => &mut misses.refused_wrongly,
                (false, true) => &mut misses.admitted_wrongly,
                (false, false) => &mut misses.admitted_rightly,
            } += 1;
        }
        misses
    }

    fn side(&self, replayed: &[Replayed]) -> GhostSide {
        let mut works: Vec<u64> = self.requests.iter().map(|(one, _)| one.units).collect();
        works.sort_unstable();
        let (small, large) = (works[works.len() / 2], works[works.len() - 1 - works.len() / 20]);
        let p99 = |takes: &dyn Fn(u64) -> bool| {
            let these = self.requests.iter().zip(replayed).filter(|((one, _), _)| takes(one.units));
            let mut all: Vec<u64> = these.filter_map(|(_, replayed)| replayed.latency_ns).collect();
            all.sort_unstable();
            all.get((all.len() * 99 / 100).min(all.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        let all: Vec<u64> = replayed.iter().filter_map(|one| one.latency_ns).collect();
        GhostSide {
            mean_ns: all.iter().sum::<u64>() / all.len().max(1) as u64,
            p99_ns: p99(&|_| true),
            small_p99_ns: p99(&|units| units <= small),
            large_p99_ns: p99(&|units| units >= large),
        }
    }

    /// Runs all requests through a queue with these settings.
    pub(crate) fn replay(&self, settings: QueueSettings) -> Vec<Replayed> {
        let count = self.models.upstreams.iter().map(|one| one.upstream + 1).max().unwrap_or(0);
        let server = |at: usize| {
            let known = self.models.of(at);
            Server::new(known.and_then(|one| one.slots.ok()).unwrap_or(1) as usize, known.map_or(1.0, |one| one.speed))
        };
        let mut replay = Replay {
            queue: DispatchQueue::new(settings, count),
            servers: (0..count).map(server).collect(),
            ends: BinaryHeap::new(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            done: vec![Replayed::default(); self.requests.len()],
            requests: &self.requests,
        };
        let everywhere: UpstreamSet = self.models.upstreams.iter().map(|one| one.upstream).collect();
        let mut published = Stamp::default();
        for (at, (one, _)) in self.requests.iter().enumerate() {
            replay.until(one.arrived);
            if at == 0 || one.arrived.since(published) > PUBLISHED_NS {
                published = one.arrived;
                replay.queue.publish(ServiceModels { made: published, ..self.models.clone() }, published);
            }
            replay.arrive(at, everywhere);
        }
        replay.until(Stamp::default().plus(u64::MAX));
        replay.done
    }
}

/// What became of a request in a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// `None` if it was refused, or dropped.
    pub(crate) latency_ns: Option<u64>,
    /// Whether it was refused when it came.
    pub(crate) is_refused: bool,
    /// Whether admission would have refused it.
    pub(crate) is_foreseen_late: bool,
}

/// A server that works on some at a time, in the order in which they were sent.
#[derive(Debug)]
struct Server {
    slots: usize,
    speed: f64,
    working: usize,
    behind: VecDeque<usize>,
}

impl Server {
    const fn new(slots: usize, speed: f64) -> Self {
        Self { slots, speed, working: 0, behind: VecDeque::new() }
    }
}

struct Replay<'r> {
    /// It wakes by the place of the request.
    queue: DispatchQueue<usize>,
    servers: Vec<Server>,
    /// When, which request, where.
    ends: BinaryHeap<Reverse<(Stamp, usize, usize)>>,
    waiting: BTreeMap<usize, Ticket>,
    running: BTreeMap<usize, RunId>,
    done: Vec<Replayed>,
    requests: &'r [(Departure, f64)],
}

impl Replay<'_> {
    fn arrive(&mut self, at: usize, upstreams: UpstreamSet) {
        let one = &self.requests[at].0;
        let Departure { series, units, arrived, deadline, .. } = *one;
        self.done[at].is_foreseen_late = self.queue.foresees_late(series, units, upstreams, arrived, deadline);
        // who refuses nobody drops nobody
        let deadline = deadline.filter(|_| self.queue.settings.rejects);
        match self.queue.ask(&QueueRequest { class: 0, upstreams, series, units, arrived, deadline }, arrived) {
            Ask::Go(server, id) => self.send(at, server, id, arrived),
            Ask::Wait(ticket) => {
                self.waiting.insert(at, ticket);
                self.look(at, arrived);
            }
            Ask::Late { .. } => self.done[at].is_refused = true,
            Ask::Unknown | Ask::Full => {
                let id = self.queue.pass(0, series, Some(units), arrived);
                self.send(at, 0, id, arrived);
            }
        }
    }

    fn send(&mut self, at: usize, server: usize, id: RunId, now: Stamp) {
        self.running.insert(at, id);
        let to = &mut self.servers[server];
        if to.working < to.slots {
            to.working += 1;
            self.begin(at, server, now);
        } else {
            to.behind.push_back(at);
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times below years")]
    fn begin(&mut self, at: usize, server: usize, now: Stamp) {
        let takes = (self.requests[at].1 / self.servers[server].speed) as u64;
        self.ends.push(Reverse((now.plus(takes.max(1)), at, server)));
    }

    /// Lets time pass.
    fn until(&mut self, now: Stamp) {
        while let Some(Reverse((end, at, server))) = self.ends.peek().copied().filter(|Reverse((end, ..))| *end <= now) {
            self.ends.pop();
            self.done[at].latency_ns = Some(end.since(self.requests[at].0.arrived));
            self.servers[server].working -= 1;
            if let Some(next) = self.servers[server].behind.pop_front() {
                self.servers[server].working += 1;
                self.begin(next, server, end);
            }
            if let Some(id) = self.running.remove(&at) {
                self.queue.end(id, RunEnd::Answered, end);
            }
            for woken in self.queue.take_woken() {
                self.look(woken, end);
            }
        }
    }

    /// Sends one who waited if its turn has come.
    fn look(&mut self, at: usize, now: Stamp) {
        let Some(ticket) = self.waiting.get(&at) else { return };
        match self.queue.poll(*ticket, now, || at) {
            TicketState::Waiting => return,
            TicketState::Go(server, id) => self.send(at, server, id, now),
            TicketState::Overdue(_) => {}
        }
        self.waiting.remove(&at);
    }
}
