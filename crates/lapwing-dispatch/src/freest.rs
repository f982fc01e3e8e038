//! Which upstreams may be sent something now.

use std::fmt::Debug;

use lapwing_ledger::Stamp;

use crate::queue::DispatchQueue;
use crate::upstreams::{Room, Upstream, UpstreamSet};

impl<W: Debug> DispatchQueue<W> {
    /// Upstreams that are sent nothing that can go elsewhere: at most half of those that are ejected, have just failed or stand still,
    /// in this order.
    pub(crate) fn unsound(&self, now: Stamp) -> UpstreamSet {
        let kinds = [self.ejected(now), self.doubtful(now), self.stalled(now)];
        let most = self.upstreams.len() / 2;
        kinds.into_iter().fold(UpstreamSet::default(), |all, more| if all.and(more).len() <= most { all.and(more) } else { all })
    }

    /// The upstream with the most room, the fastest of equals; `None` if none has room, with `or_next` for the next place.
    pub(crate) fn freest(&mut self, eligible: UpstreamSet, or_next: bool) -> Option<usize> {
        let count = self.upstreams.len();
        let turn = self.turn;
        let turned = (0..count).map(|step| (turn + step) % count).filter(|at| eligible.contains(*at));
        let room = |at: usize| {
            let one = self.upstreams.get(at)?;
            let idle = i64::from(one.window()?) - i64::try_from(one.running()).unwrap_or(i64::MAX);
            (one.room() == Room::Idle || or_next && one.room() == Room::Next).then_some((idle, one.speed))
        };
        let by = |a: &(usize, (i64, f64)), b: &(usize, (i64, f64))| a.1.0.cmp(&b.1.0).then(a.1.1.total_cmp(&b.1.1));
        let best = turned.filter_map(|at| Some((at, room(at)?))).reduce(|a, b| if by(&b, &a).is_gt() { b } else { a })?.0;
        self.turn = (best + 1) % count;
        Some(best)
    }

    /// The fastest of these upstreams that has a slot with nothing to do.
    pub(crate) fn idle(&self, of: UpstreamSet, now: Stamp) -> Option<usize> {
        let unsound = self.unsound(now).and(self.away);
        let slots = |at: usize, one: &Upstream| one.window().or((self.settings.hedge.spare == Some(at)).then_some(1));
        let is_idle = |at: &usize| {
            let one = self.upstreams.get(*at);
            one.is_some_and(|one| slots(*at, one).is_some_and(|slots| one.running() < slots as usize))
        };
        let speed = |at: &usize| self.upstreams[*at].speed;
        of.without(unsound).iter().filter(is_idle).max_by(|a, b| speed(a).total_cmp(&speed(b)))
    }
}
