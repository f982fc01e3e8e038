//! What others see of the queue.

use std::fmt::Debug;

use lapwing_ledger::Stamp;

use crate::queue::DispatchQueue;
use crate::upstreams::{Upstream, UpstreamSet};

impl<W: Debug> DispatchQueue<W> {
    /// How many wait.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many wait and what they take, in nanoseconds of one slot, by class; a class may come several times.
    pub fn waiting_by_class(&self) -> impl Iterator<Item = (usize, usize, u64)> {
        self.lanes.iter().map(|lane| (lane.class, lane.waiting(), lane.work_ns()))
    }

    /// How many requests are at each upstream.
    pub fn running(&self) -> impl Iterator<Item = usize> {
        self.upstreams.iter().map(Upstream::running)
    }

    /// How often an upstream was ejected.
    #[must_use]
    pub const fn ejections(&self) -> u64 {
        self.ejections
    }

    /// The upstreams that are sent nothing for now.
    pub fn ejected(&self, now: Stamp) -> UpstreamSet {
        self.upstreams_that(|one| one.is_ejected(now))
    }

    /// The upstreams where a request has just failed.
    pub fn doubtful(&self, now: Stamp) -> UpstreamSet {
        self.upstreams_that(|one| one.is_doubtful(now))
    }

    /// The upstreams where nothing has ended since their oldest request took longer than 99 of 100 do.
    pub fn stalled(&self, now: Stamp) -> UpstreamSet {
        self.upstreams_that(|one| one.is_stalled(now))
    }

    fn upstreams_that(&self, are_so: impl Fn(&Upstream) -> bool) -> UpstreamSet {
        (0..self.upstreams.len()).filter(|at| are_so(&self.upstreams[*at])).collect()
    }
}
