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

/// A place in an order: a time, then who came first.
type Place = (Stamp, u64);

/// Those who wait for the same upstreams in the same class.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) class: usize,
    pub(crate) upstreams: UpstreamSet,
    by_due: BTreeMap<Place, Waiting>,
    /// Those with a deadline, and when each is due.
    by_latest: BTreeMap<Place, Stamp>,
    /// What all of them take, in nanoseconds of one slot.
    work_ns: u64,
}

impl Lane {
    pub(crate) const fn new(class: usize, upstreams: UpstreamSet) -> Self {
        Self { class, upstreams, by_due: BTreeMap::new(), by_latest: BTreeMap::new(), work_ns: 0 }
    }

    pub(crate) fn push(&mut self, ticket: u64, one: Waiting) {
        self.by_due.insert((one.due, ticket), one);
        if let Some(latest) = one.latest {
            self.by_latest.insert((latest, ticket), one.due);
        }
        self.work_ns = self.work_ns.saturating_add(one.predicted.service_ns);
    }

    pub(crate) fn remove(&mut self, ticket: u64, due: Stamp) -> Option<Waiting> {
        let one = self.by_due.remove(&(due, ticket))?;
        if let Some(latest) = one.latest {
            self.by_latest.remove(&(latest, ticket));
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
        let meanwhile = now.plus(first.predicted.service_ns / u64::from(slots.max(1)));
        let urgent = self.by_latest.range((now, 0)..).next().filter(|((latest, _), _)| *latest < meanwhile);
        let urgent = urgent.and_then(|((_, other), due)| Some((*other, self.by_due.get(&(*due, *other))?)));
        Some(urgent.unwrap_or((*ticket, first)))
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
