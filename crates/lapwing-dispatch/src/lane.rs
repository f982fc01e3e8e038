//! Those who wait for the same upstreams in the same class, in the order in which they go.

use std::collections::BTreeMap;

use lapwing_ledger::Stamp;

use crate::service::Prediction;
use crate::upstreams::UpstreamSet;

/// One who waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// When it goes, if nobody is due before.
    pub(crate) due: Stamp,
    /// Until when it must have begun to meet its deadline.
    pub(crate) latest: Option<Stamp>,
    pub(crate) deadline: Option<Stamp>,
    pub(crate) predicted: Prediction,
}

/// What one who waits needs to meet its deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Urgency {
    pub(crate) deadline: Stamp,
    /// Until when it must have begun.
    pub(crate) latest: Stamp,
    pub(crate) due: Stamp,
    pub(crate) service_ns: u64,
}

impl Urgency {
    /// `None` without a deadline that counts.
    fn of(one: &Waiting) -> Option<Self> {
        let (deadline, latest) = one.deadline.zip(one.latest)?;
        Some(Self { deadline, latest, due: one.due, service_ns: one.predicted.service_ns })
    }
}

/// A place in an order: a time, then who came first.
type Place = (Stamp, u64);

/// Those who wait for the same upstreams in the same class.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) class: usize,
    pub(crate) upstreams: UpstreamSet,
    by_due: BTreeMap<Place, Waiting>,
    /// Those with a deadline that counts, the earliest first.
    by_deadline: BTreeMap<Place, Urgency>,
    /// What all of them take, in nanoseconds of one slot.
    work_ns: u64,
}

impl Lane {
    pub(crate) const fn new(class: usize, upstreams: UpstreamSet) -> Self {
        Self { class, upstreams, by_due: BTreeMap::new(), by_deadline: BTreeMap::new(), work_ns: 0 }
    }

    pub(crate) fn push(&mut self, ticket: u64, one: Waiting) {
        self.by_due.insert((one.due, ticket), one);
        if let Some(urgency) = Urgency::of(&one) {
            self.by_deadline.insert((urgency.deadline, ticket), urgency);
        }
        self.work_ns = self.work_ns.saturating_add(one.predicted.service_ns);
    }

    pub(crate) fn remove(&mut self, ticket: u64, due: Stamp) -> Option<Waiting> {
        let one = self.by_due.remove(&(due, ticket))?;
        if let Some(urgency) = Urgency::of(&one) {
            self.by_deadline.remove(&(urgency.deadline, ticket));
        }
        self.work_ns = self.work_ns.saturating_sub(one.predicted.service_ns);
        Some(one)
    }

    pub(crate) const fn work_ns(&self) -> u64 {
        self.work_ns
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.by_due.len()
    }

    /// Whether somebody waits whom nobody can overtake any more: who comes from now on is due later.
    pub(crate) fn is_settled(&self, now: Stamp) -> bool {
        self.by_due.first_key_value().is_some_and(|((due, _), _)| *due <= now)
    }

    /// Who goes next at `now`: who is due first, unless that one's time would make another late who can still meet its deadline.
    pub(crate) fn next(&self, now: Stamp, slots: u32) -> Option<(u64, &Waiting)> {
        let ((_, ticket), first) = self.by_due.first_key_value()?;
        let slots = u64::from(slots.max(1));
        let free = now.plus(first.predicted.service_ns / slots);
        let others = self.urgent(now).filter(|(other, _)| other != ticket).map(|(_, one)| one);
        let urgent = if in_time(others, free, slots) { None } else { self.urgent(now).next() };
        let urgent = urgent.and_then(|(other, one)| Some((other, self.by_due.get(&(one.due, other))?)));
        Some(urgent.unwrap_or((*ticket, first)))
    }

    /// Whether all who can meet their deadline still can beside one more, if they go in the order of their deadlines and `slots` are free from
    /// `free` on.
    pub(crate) fn has_time_for(&self, more: Urgency, free: Stamp, slots: u64, now: Stamp) -> bool {
        let order = || self.urgent(now).map(|(_, one)| one);
        let before = order().take_while(|one| one.deadline <= more.deadline);
        let after = order().skip_while(|one| one.deadline <= more.deadline);
        in_time(before.chain([more]).chain(after), free, slots)
    }

    /// Those who can still meet their deadline, the earliest first.
    fn urgent(&self, now: Stamp) -> impl Iterator<Item = (u64, Urgency)> + '_ {
        let can = move |(_, one): &(u64, Urgency)| one.latest >= now;
        self.by_deadline.iter().map(|((_, ticket), one)| (*ticket, *one)).filter(can)
    }

    /// What those take who go before one who is due at `due`, in nanoseconds of one slot; once it is more than `enough`, not all of it.
    pub(crate) fn ahead_ns(&self, due: Stamp, enough: u64) -> u64 {
        let mut sum = 0_u64;
        for one in self.by_due.range(..=(due, u64::MAX)).map(|(_, one)| one) {
            sum = sum.saturating_add(one.predicted.service_ns);
            if sum > enough {
                break;
            }
        }
        sum
    }
}

/// Whether all begin in time if they go in this order, on so many slots from `free` on.
fn in_time(order: impl Iterator<Item = Urgency>, free: Stamp, slots: u64) -> bool {
    let mut before = 0_u64;
    for one in order {
        if free.plus(before / slots) > one.latest {
            return false;
        }
        before = before.saturating_add(one.service_ns);
    }
    true
}
