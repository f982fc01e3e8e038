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
        (0..self.upstreams.len()).filter(|at| self.upstreams[*at].is_ejected(now)).collect()
    }
}
