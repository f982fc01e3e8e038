//! Whether a request would meet its deadline.

use std::fmt::Debug;

use lapwing_ledger::Stamp;

use crate::ask::{Ask, QueueOrder, QueueRequest};
use crate::lane::Urgency;
use crate::queue::DispatchQueue;
use crate::service::{Prediction, WorkSeries};
use crate::upstreams::UpstreamSet;

impl<W: Debug> DispatchQueue<W> {
    /// Refuses a request that would miss its deadline: `wait + time + what 99 of 100 take on top > deadline`. It tells how long what is there
    /// takes to go.
    pub(crate) fn refuse(
        &self,
        asked: &QueueRequest,
        class: usize,
        due: Stamp,
        predicted: Prediction,
        now: Stamp,
    ) -> Option<Ask> {
        let deadline = asked.deadline.filter(|_| self.settings.rejects)?;
        let left = deadline.since(now);
        let needed = predicted.service_ns + predicted.q99_more_ns;
        let wait_ns = self.wait_ns(asked.upstreams, class, due, now, left);
        let is_late = wait_ns.saturating_add(needed) > left || !self.has_time_for(asked, class, predicted, now);
        is_late.then(|| Ask::Late { wait_ns, drain_ns: self.drain_ns(asked.upstreams, now) })
    }

    /// Whether those of its class who wait already can still meet their deadlines beside it.
    fn has_time_for(&self, asked: &QueueRequest, class: usize, predicted: Prediction, now: Stamp) -> bool {
        let lane = self.lanes.iter().find(|lane| lane.class == class && lane.upstreams == asked.upstreams);
        let Some((lane, (latest, deadline))) = lane.zip(self.latest(asked, predicted).zip(asked.deadline)) else { return true };
        let Some((slots, rest)) = self.slots_and_rest(asked.upstreams, now) else { return true };
        let more = Urgency { deadline, latest, due: latest, service_ns: predicted.service_ns };
        lane.has_time_for(more, now.plus(rest / slots), slots, now)
    }

    /// Until when a request must begin to meet its deadline, if that counts.
    pub(crate) fn latest(&self, asked: &QueueRequest, predicted: Prediction) -> Option<Stamp> {
        let deadline = asked.deadline.filter(|_| self.settings.rejects && self.settings.order == QueueOrder::Due)?;
        let needed = predicted.service_ns + predicted.q99_more_ns;
        Some(Stamp::from_ns(deadline.as_ns().saturating_sub(needed)).unwrap_or_default())
    }

    /// Whether a request that comes now would be refused, if requests were.
    pub(crate) fn foresees_late(
        &self,
        series: WorkSeries,
        units: u64,
        upstreams: UpstreamSet,
        now: Stamp,
        deadline: Option<Stamp>,
    ) -> bool {
        let Some((predicted, deadline)) = self.predict(series, units).zip(deadline) else { return false };
        let left = deadline.since(now);
        let wait_ns = self.wait_ns(upstreams, 0, now, now, left);
        wait_ns.saturating_add(predicted.service_ns + predicted.q99_more_ns) > left
    }

    /// What one who is due at `due` waits until a slot is free, in nanoseconds; if it is more than `enough`, maybe less than that.
    pub(crate) fn wait_ns(&self, upstreams: UpstreamSet, class: usize, due: Stamp, now: Stamp, enough: u64) -> u64 {
        let Some((slots, rest)) = self.slots_and_rest(upstreams, now) else { return 0 };
        let enough = enough.saturating_mul(slots);
        let weight = |class: usize| u64::from(self.settings.classes.get(class).map_or(1, |class| class.weight.max(1)));
        let is_background = |class: usize| self.settings.classes.get(class).is_some_and(|class| class.is_background);
        let shares = |lane: &&crate::lane::Lane| upstreams.iter().any(|at| lane.upstreams.contains(at));
        let own = self.lanes.iter().filter(shares).filter(|lane| lane.class == class);
        let own: u64 = own.map(|lane| lane.ahead_ns(due, enough)).fold(0, u64::saturating_add);
        let others = self.lanes.iter().filter(shares).filter(|lane| lane.class != class);
        let others = others.map(|lane| match (is_background(lane.class), is_background(class)) {
            (true, false) => 0,
            (false, true) => lane.work_ns(),
            // while it has anything, a class gets its share beside the own one
            _ => lane.work_ns().min(own.saturating_mul(weight(lane.class)) / weight(class)),
        });
        rest.saturating_add(own).saturating_add(others.fold(0, u64::saturating_add)) / slots
    }

    /// When all who wait for some of these upstreams will have gone, in nanoseconds from now.
    pub(crate) fn drain_ns(&self, upstreams: UpstreamSet, now: Stamp) -> u64 {
        let Some((slots, rest)) = self.slots_and_rest(upstreams, now) else { return 0 };
        let shared = self.lanes.iter().filter(|lane| upstreams.iter().any(|at| lane.upstreams.contains(at)));
        shared.map(crate::lane::Lane::work_ns).fold(rest, u64::saturating_add) / slots
    }

    /// The slots of some upstreams and what is left of the work there; `None` if one of the slots is free.
    fn slots_and_rest(&self, upstreams: UpstreamSet, now: Stamp) -> Option<(u64, u64)> {
        let known = || upstreams.iter().filter_map(|at| self.upstreams.get(at));
        let slots = |one: &crate::upstreams::Upstream| one.window().unwrap_or(1) as usize;
        if known().any(|one| one.running() < slots(one)) {
            return None;
        }
        let all: usize = known().map(slots).sum();
        Some((all.max(1) as u64, known().map(|one| one.rest_ns(now)).fold(0, u64::saturating_add)))
    }
}
