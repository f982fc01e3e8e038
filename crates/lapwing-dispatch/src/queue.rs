//! The queue in front of upstreams: who goes where and when, who waits, and who is refused.
//!
//! Each upstream is sent as many requests as it works on at once, and one more if nobody can overtake that one any more. Who waits goes in
//! the order of `arrival + patience × own time`: one is overtaken only by those who came within `patience` times its own time after it, so
//! nobody starves (Lapwing's own batcher has the same order). Nothing is sent that can no longer meet its deadline.

use std::fmt::Debug;

use lapwing_ledger::Stamp;
use rustc_hash::FxHashMap;

use crate::ask::{Ask, Overdue, QueueOrder, QueueRequest, QueueSettings, Ticket, TicketState};
use crate::class_counts::ClassCounts;
use crate::fair::Turns;
use crate::hedges::Hedges;
use crate::lane::{Lane, Waiting};
use crate::service::{Prediction, ServiceModels, WorkSeries};
use crate::upstreams::{Room, RunEnd, RunId, Upstream, UpstreamSet};

/// Models that are older than this, in nanoseconds, are not believed: who makes them is gone.
const STALE_NS: u64 = 10_000_000_000;
/// So many more requests an upstream is sent in a recheck.
const RECHECK_MORE: usize = 3;

#[derive(Debug)]
struct Waiter<W> {
    state: TicketState,
    lane: usize,
    since: Stamp,
    due: Stamp,
    /// Until when it waits at most, and what becomes of it then.
    until: (Stamp, Overdue),
    waker: Option<W>,
}

/// Who goes next of a lane.
#[derive(Debug)]
struct Head {
    lane: usize,
    class: usize,
    ticket: u64,
    one: Waiting,
}

/// The queue. `W` is what wakes one who waits.
#[derive(Debug)]
pub struct DispatchQueue<W> {
    pub(crate) settings: QueueSettings,
    pub(crate) models: ServiceModels,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) lanes: Vec<Lane>,
    /// What became of the requests of each class.
    pub(crate) counts: Vec<ClassCounts>,
    pub(crate) turns: Turns,
    waiters: FxHashMap<u64, Waiter<W>>,
    /// Empty, with room for who goes next of each lane.
    heads: Vec<Head>,
    /// How many of them wait.
    pub(crate) waiting: usize,
    /// Upstreams that take no connections.
    pub(crate) away: UpstreamSet,
    /// What is counted for second requests.
    pub(crate) hedges: Hedges<W>,
    numbers: u64,
    /// Of equal upstreams, the one that is looked at first.
    pub(crate) turn: usize,
    /// How often an upstream was ejected.
    pub(crate) ejections: u64,
    pub(crate) woken: Vec<W>,
}

impl<W: Debug> DispatchQueue<W> {
    /// A queue in front of so many upstreams, of which nothing is known yet.
    #[must_use]
    pub fn new(settings: QueueSettings, upstreams: usize) -> Self {
        let (turns, counts) = (settings.turns(), vec![ClassCounts::default(); settings.classes.len()]);
        Self {
            settings,
            models: ServiceModels::default(),
            upstreams: (0..upstreams).map(|_| Upstream::new()).collect(),
            lanes: Vec::new(),
            counts,
            turns,
            waiters: FxHashMap::default(),
            heads: Vec::new(),
            waiting: 0,
            away: UpstreamSet::default(),
            hedges: Hedges::default(),
            numbers: 0,
            turn: 0,
            ejections: 0,
            woken: Vec::new(),
        }
    }

    /// Takes what is known of services, and sends what may go by it.
    pub fn publish(&mut self, models: ServiceModels, now: Stamp) {
        for (at, upstream) in self.upstreams.iter_mut().enumerate() {
            let known = models.of(at);
            upstream.slots = known.and_then(|one| one.slots.ok());
            upstream.speed = known.map_or(1.0, |one| one.speed);
        }
        self.models = models;
        self.fill(now);
        self.wake_blocked();
    }

    /// Sends upstreams more than they are known to work on at once, or no longer: it shows whether they batch, or work on more.
    pub fn recheck(&mut self, more: bool, now: Stamp) {
        self.upstreams.iter_mut().for_each(|upstream| upstream.more = if more { RECHECK_MORE } else { 0 });
        self.fill(now);
    }

    /// Notes which upstreams take no connections.
    pub fn note_away(&mut self, away: UpstreamSet, now: Stamp) {
        if away != self.away {
            self.away = away;
            self.fill(now);
        }
    }

    /// Whether requests may wait: what is known of services is from a short while ago.
    pub(crate) fn is_fresh(&self, now: Stamp) -> bool {
        self.models.made != Stamp::default() && now.since(self.models.made) <= STALE_NS
    }

    /// What a request takes; `None` if that is not known.
    pub(crate) fn predict(&self, series: WorkSeries, units: u64) -> Option<Prediction> {
        Some(self.models.lines.get(&series)?.predict(units))
    }

    /// A request asks to be sent.
    pub fn ask(&mut self, asked: &QueueRequest, now: Stamp) -> Ask {
        let eligible = asked.upstreams.without(self.away);
        let is_windowed = |at: usize| self.upstreams.get(at).is_some_and(|one| one.slots.is_some());
        let predicted = self.predict(asked.series, asked.units).filter(|_| self.is_fresh(now));
        let Some(predicted) = predicted.filter(|_| !eligible.is_empty() && eligible.iter().all(is_windowed)) else {
            return Ask::Unknown;
        };
        let class = asked.class.min(self.settings.classes.len().saturating_sub(1));
        let due = self.due(asked, predicted);
        if let Some(late) = self.refuse(asked, class, due, predicted, now) {
            self.count(class, |counts| counts.refused += 1);
            return late;
        }
        let sound = eligible.without(self.unsound(now));
        let sound = if sound.is_empty() { eligible } else { sound };
        // nobody waits where there is room, but maybe for the next place
        if let Some(at) = self.freest(sound, due <= now) {
            let id = self.begin_first(at, Some(predicted), now);
            self.count(class, |counts| counts.sent += 1);
            return Ask::Go(at, id);
        }
        if self.waiting >= self.settings.max_waiting {
            return Ask::Full;
        }
        let ticket = self.number();
        let lane = self.lane(class, asked.upstreams);
        let latest = self.latest(asked, predicted);
        self.lanes[lane].push(ticket, Waiting { due, latest, deadline: asked.deadline, predicted });
        let until = self.until_at_most(asked.deadline, predicted, now);
        let waiter = Waiter { state: TicketState::Waiting, lane, since: now, due, until, waker: None };
        self.waiters.insert(ticket, waiter);
        self.count(class, |counts| counts.queued += 1);
        self.waiting += 1;
        Ask::Wait(Ticket(ticket))
    }

    /// A request was sent to the upstream at this place without asking.
    pub fn pass(&mut self, at: usize, series: WorkSeries, units: Option<u64>, now: Stamp) -> RunId {
        let predicted = units.and_then(|units| self.predict(series, units));
        self.begin_first(at, predicted, now)
    }

    /// A request has ended at its upstream, or never began there.
    pub fn end(&mut self, id: RunId, how: RunEnd, now: Stamp) {
        self.hedges.reckon(&self.upstreams, now);
        self.hedges.end(id, now);
        let Some(at) = self.upstreams.iter_mut().position(|upstream| upstream.end(id, now)) else { return };
        let ejected = self.upstreams.iter().filter(|upstream| upstream.is_ejected(now)).count();
        let may_eject = ejected < self.upstreams.len() / 2;
        if self.upstreams[at].judge(how, may_eject, now) {
            self.ejections += 1;
        }
        self.fill(now);
        self.wake_blocked();
    }

    /// A request goes to another upstream, because its own takes no connection.
    pub fn moved(&mut self, id: RunId, to: usize, now: Stamp) {
        let moved = self.upstreams.iter_mut().find_map(|upstream| upstream.take(id, now));
        if let (Some(predicted), Some(upstream)) = (moved, self.upstreams.get_mut(to)) {
            upstream.begin(id, predicted, now);
        }
        self.fill(now);
    }

    /// How one who waits stands. If it waits on, `waker` wakes it, once; else its ticket is gone.
    pub fn poll(&mut self, Ticket(ticket): Ticket, now: Stamp, waker: impl FnOnce() -> W) -> TicketState {
        let Some(waiter) = self.waiters.get_mut(&ticket) else { return TicketState::Overdue(Overdue::Wait) };
        let (until, why) = waiter.until;
        if waiter.state == TicketState::Waiting && now >= until {
            self.overdue(ticket, why, now);
        }
        let Some(waiter) = self.waiters.get_mut(&ticket) else { return TicketState::Overdue(Overdue::Wait) };
        let state = waiter.state;
        if state == TicketState::Waiting {
            waiter.waker = Some(waker());
        } else {
            self.waiters.remove(&ticket);
        }
        state
    }

    /// Until when one waits at most.
    #[must_use]
    pub fn until(&self, Ticket(ticket): Ticket) -> Option<Stamp> {
        Some(self.waiters.get(&ticket)?.until.0)
    }

    /// One who waits leaves.
    pub fn leave(&mut self, Ticket(ticket): Ticket, now: Stamp) {
        let Some(waiter) = self.waiters.remove(&ticket) else { return };
        match waiter.state {
            TicketState::Waiting => {
                self.waiting -= 1;
                self.lanes[waiter.lane].remove(ticket, waiter.due);
                self.count(self.lanes[waiter.lane].class, |counts| counts.waits.note(now.since(waiter.since)));
            }
            TicketState::Go(_, id) => self.end(id, RunEnd::Left, now),
            TicketState::Overdue(_) => {}
        }
    }

    /// Forgets everything but its settings, after a panic. Returns whom to wake: who waited goes as without a queue.
    pub(crate) fn begin_afresh(&mut self) -> Vec<W> {
        let waiters = std::mem::take(&mut self.waiters).into_values().filter_map(|waiter| waiter.waker);
        let woken = std::mem::take(&mut self.woken).into_iter().chain(waiters).chain(self.hedges.take_blocked()).collect();
        self.lanes.clear();
        self.waiting = 0;
        self.models = ServiceModels::default();
        self.upstreams.iter_mut().for_each(Upstream::forget);
        self.hedges = Hedges::default();
        woken
    }

    /// Who is to be woken by what has happened since the last call.
    pub fn take_woken(&mut self) -> Vec<W> {
        std::mem::take(&mut self.woken)
    }

    /// Sends whom there is room for.
    pub fn fill(&mut self, now: Stamp) {
        if self.waiting == 0 {
            return;
        }
        let (is_fresh, unsound) = (self.is_fresh(now), self.unsound(now).and(self.away));
        for at in 0..self.upstreams.len() {
            while self.waiting > 0 {
                let room = if is_fresh { self.upstreams[at].room() } else { Room::Idle };
                let settled = |lane: &Lane| lane.upstreams.contains(at) && lane.is_settled(now);
                if room == Room::None || room == Room::Next && !self.lanes.iter().any(settled) {
                    break;
                }
                let Some((lane, ticket)) = self.next_for((at, room), unsound, now) else { break };
                self.send(lane, ticket, at, now);
            }
        }
    }

    /// Who goes next to an upstream: those who can no longer meet their deadline are dropped on the way.
    fn next_for(&mut self, (at, room): (usize, Room), unsound: UpstreamSet, now: Stamp) -> Option<(usize, u64)> {
        let mut heads = std::mem::take(&mut self.heads);
        let next = loop {
            let slots = self.upstreams[at].slots.unwrap_or(1);
            let is_unsound = unsound.contains(at);
            let of_lane = |(place, lane): (usize, &Lane)| {
                let (ticket, one) = lane.next(now, slots)?;
                Some(Head { lane: place, class: lane.class, ticket, one: *one })
            };
            let lanes = self
                .lanes
                .iter()
                .enumerate()
                .filter(|(_, lane)| lane.upstreams.contains(at) && (room == Room::Idle || lane.is_settled(now)))
                // an upstream that takes no connections, or stands still, is sent only what can go nowhere else
                .filter(|(_, lane)| !is_unsound || lane.upstreams.without(unsound).is_empty());
            heads.clear();
            heads.extend(lanes.filter_map(of_lane));
            let end = |one: &Waiting| if self.settings.rejects { now.plus(one.predicted.service_ns) } else { now };
            let is_late = |head: &&Head| head.one.deadline.is_some_and(|deadline| end(&head.one) > deadline);
            if let Some(late) = heads.iter().find(is_late) {
                self.overdue(late.ticket, Overdue::Deadline, now);
                continue;
            }
            let is_background = |class: usize| self.settings.classes.get(class).is_some_and(|class| class.is_background);
            let only_background = heads.iter().all(|head| is_background(head.class));
            let of_class = |class: usize| {
                let heads = heads.iter().filter(|head| head.class == class && (only_background || !is_background(class)));
                heads.min_by_key(|head| (head.one.due, head.ticket))
            };
            let class = self.turns.next(|class| of_class(class).map(|head| head.one.predicted.service_ns));
            break class.and_then(of_class).map(|head| (head.lane, head.ticket));
        };
        heads.clear();
        self.heads = heads;
        next
    }

    fn send(&mut self, lane: usize, ticket: u64, at: usize, now: Stamp) {
        let Some(due) = self.waiters.get(&ticket).map(|waiter| waiter.due) else { return };
        let Some(one) = self.lanes[lane].remove(ticket, due) else { return };
        let id = self.begin_first(at, Some(one.predicted), now);
        self.settle(ticket, TicketState::Go(at, id), now);
    }

    fn overdue(&mut self, ticket: u64, why: Overdue, now: Stamp) {
        if let Some(waiter) = self.waiters.get(&ticket) {
            self.lanes[waiter.lane].remove(ticket, waiter.due);
            self.settle(ticket, TicketState::Overdue(why), now);
        }
    }

    fn settle(&mut self, ticket: u64, state: TicketState, now: Stamp) {
        let Some(waiter) = self.waiters.get_mut(&ticket) else { return };
        waiter.state = state;
        self.waiting -= 1;
        self.woken.extend(waiter.waker.take());
        let (class, waited_ns) = (self.lanes[waiter.lane].class, now.since(waiter.since));
        self.count(class, |counts| {
            counts.waits.note(waited_ns);
            counts.expired += u64::from(state == TicketState::Overdue(Overdue::Deadline));
        });
    }

    /// A request goes that was not sent before.
    fn begin_first(&mut self, at: usize, predicted: Option<Prediction>, now: Stamp) -> RunId {
        self.hedges.reckon(&self.upstreams, now);
        if let Some(predicted) = predicted {
            self.hedges.earn(&self.settings.hedge, predicted.service_ns);
        }
        self.begin(at, predicted, now)
    }

    pub(crate) fn begin(&mut self, at: usize, predicted: Option<Prediction>, now: Stamp) -> RunId {
        let id = RunId(self.number());
        if let Some(upstream) = self.upstreams.get_mut(at) {
            upstream.begin(id, predicted, now);
        }
        id
    }

    const fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The place of the lane for a class and upstreams.
    fn lane(&mut self, class: usize, upstreams: UpstreamSet) -> usize {
        let found = self.lanes.iter().position(|lane| lane.class == class && lane.upstreams == upstreams);
        found.unwrap_or_else(|| {
            // places stay as they are while somebody waits
            if self.waiting == 0 {
                self.lanes.clear();
            }
            self.lanes.push(Lane::new(class, upstreams));
            self.lanes.len() - 1
        })
    }

    /// Until when one waits at most, and what becomes of it then: nothing that can no longer be in time is sent.
    fn until_at_most(&self, deadline: Option<Stamp>, predicted: Prediction, now: Stamp) -> (Stamp, Overdue) {
        let wait = (now.plus(self.settings.max_wait_ns), Overdue::Wait);
        let Some(deadline) = deadline else { return wait };
        let needed = if self.settings.rejects { predicted.service_ns } else { 0 };
        let in_time = Stamp::from_ns(deadline.as_ns().saturating_sub(needed).saturating_add(1)).unwrap_or_default();
        if in_time < wait.0 { (in_time, Overdue::Deadline) } else { wait }
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times below years")]
    fn due(&self, asked: &QueueRequest, predicted: Prediction) -> Stamp {
        match self.settings.order {
            QueueOrder::Fifo => asked.arrived,
            QueueOrder::Due => asked.arrived.plus((self.settings.patience * predicted.service_ns as f64) as u64),
        }
    }
}
