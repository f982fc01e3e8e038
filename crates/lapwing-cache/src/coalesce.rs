//! The same request several times at once: the first is asked, the others wait for its answer. A state machine without tasks,
//! timers or a clock.
//!
//! A leader owes its followers an end: [`Coalescer::finish`] is to be called exactly once for each [`LeaderTicket`], also if the
//! leader's client has left. So the caller runs the exchange of a leader in a task of its own, to its end; a client that leaves
//! takes nothing from those who follow.
//!
//! A follower ends in exactly one way. It is given the leader's answer; or it goes on its own, because the leader failed, its
//! answer is not to be shared, or the follower's time is up; or its own client leaves.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::key::CacheKey;
use lapwing_ledger::Stamp;

/// Bounds on those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoalesceBounds {
    /// How many may follow one leader.
    pub followers: usize,
    /// How many requests may lead at once.
    pub leaders: usize,
    /// How long one may follow, in nanoseconds.
    pub wait_ns: u64,
}

/// Who leads. To be given back by [`Coalescer::finish`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "those who follow wait for it"]
pub struct LeaderTicket {
    key: CacheKey,
    number: u64,
}

impl LeaderTicket {
    /// What it leads to.
    #[must_use]
    pub const fn key(&self) -> &CacheKey {
        &self.key
    }
}

/// Who follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FollowerId(u64);

/// What a request does that came to a coalescer.
#[derive(Debug, PartialEq, Eq)]
pub enum CoalesceRole {
    /// It is asked; others may follow it.
    Lead(LeaderTicket),
    /// It waits, until this time at most.
    Follow {
        /// Who it is.
        id: FollowerId,
        /// When it goes on its own.
        until: Stamp,
    },
    /// It is asked, and nobody follows it.
    Alone(WhyAlone),
}

/// Why a request neither leads nor follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyAlone {
    /// As many follow as may.
    Followers,
    /// As many lead as may.
    Leaders,
}

impl WhyAlone {
    /// Its name as the value of a label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Followers => "followers",
            Self::Leaders => "leaders",
        }
    }
}

/// How a leader ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaderEnd {
    /// With an answer that those who followed may be given.
    Shared,
    /// Without one: it failed, or its answer is its own.
    Failed,
}

/// How waiting ended for a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowerEnd {
    /// It is given the leader's answer.
    Answered,
    /// It is asked on its own; nobody follows it.
    OnItsOwn,
}

/// Requests that are asked, and those that wait for their answers.
#[derive(Debug)]
pub struct Coalescer {
    bounds: CoalesceBounds,
    flights: FxHashMap<CacheKey, LedFlight>,
    /// Where each follower waits.
    followers: FxHashMap<FollowerId, CacheKey>,
    /// Those who follow by when their time is up, which is the order in which they came as long as the bounds stay; some may be gone.
    deadlines: VecDeque<(Stamp, FollowerId)>,
    next: u64,
}

#[derive(Debug)]
struct LedFlight {
    number: u64,
    followers: Vec<FollowerId>,
}

impl Coalescer {
    /// Without any.
    #[must_use]
    pub fn new(bounds: CoalesceBounds) -> Self {
        Self { bounds, flights: FxHashMap::default(), followers: FxHashMap::default(), deadlines: VecDeque::new(), next: 0 }
    }

    /// Applies other bounds to those who come from now on.
    pub fn set_bounds(&mut self, bounds: CoalesceBounds) {
        self.bounds = bounds;
    }

    /// The bounds in force.
    pub(crate) const fn bounds(&self) -> CoalesceBounds {
        self.bounds
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// What a request with this key does.
    pub fn join(&mut self, key: CacheKey, now: Stamp) -> CoalesceRole {
        let number = self.number();
        let leaders = self.flights.len();
        let Some(flight) = self.flights.get_mut(&key) else {
            if leaders >= self.bounds.leaders {
                return CoalesceRole::Alone(WhyAlone::Leaders);
            }
            self.flights.insert(key, LedFlight { number, followers: Vec::new() });
            return CoalesceRole::Lead(LeaderTicket { key, number });
        };
        if flight.followers.len() >= self.bounds.followers {
            return CoalesceRole::Alone(WhyAlone::Followers);
        }
        let (id, until) = (FollowerId(number), now.plus(self.bounds.wait_ns));
        flight.followers.push(id);
        self.followers.insert(id, key);
        let place = self.deadlines.partition_point(|(other, _)| *other <= until);
        self.deadlines.insert(place, (until, id));
        CoalesceRole::Follow { id, until }
    }

    /// The leader's request has ended. Returns those who followed, in the order in which they came, and what becomes of them.
    pub fn finish(&mut self, leader: LeaderTicket, end: LeaderEnd) -> (FollowerEnd, Vec<FollowerId>) {
        let end = match end {
            LeaderEnd::Shared => FollowerEnd::Answered,
            LeaderEnd::Failed => FollowerEnd::OnItsOwn,
        };
        if self.flights.get(&leader.key).is_none_or(|flight| flight.number != leader.number) {
            return (end, Vec::new());
        }
        let followers = self.flights.remove(&leader.key).map(|flight| flight.followers).unwrap_or_default();
        for id in &followers {
            self.followers.remove(id);
        }
        self.forget_deadlines();
        (end, followers)
    }

    /// A follower's client has left. Whether it still waited.
    pub fn leave(&mut self, id: FollowerId) -> bool {
        let waited = self.remove(id);
        self.forget_deadlines();
        waited
    }

    /// Those whose time is up: they go on their own.
    pub fn expire(&mut self, now: Stamp) -> Vec<FollowerId> {
        let mut expired = Vec::new();
        while let Some((_, id)) = self.deadlines.front().copied().filter(|(until, _)| *until <= now) {
            self.deadlines.pop_front();
            if self.remove(id) {
                expired.push(id);
            }
        }
        self.forget_deadlines();
        expired
    }

    /// When the next one's time is up.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Stamp> {
        self.deadlines.front().map(|(until, _)| *until)
    }

    /// How many lead, and how many follow.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.flights.len(), self.followers.len())
    }

    fn remove(&mut self, id: FollowerId) -> bool {
        let Some(key) = self.followers.remove(&id) else { return false };
        if let Some(flight) = self.flights.get_mut(&key) {
            flight.followers.retain(|other| *other != id);
        }
        true
    }

    /// Drops the deadlines of those who do not wait any more: the first, so that the next deadline is one of somebody, and all
    /// once most are such.
    fn forget_deadlines(&mut self) {
        let followers = &self.followers;
        if self.deadlines.len() > 2 * followers.len() + 64 {
            self.deadlines.retain(|(_, id)| followers.contains_key(id));
        }
        while self.deadlines.front().is_some_and(|(_, id)| !followers.contains_key(id)) {
            self.deadlines.pop_front();
        }
    }
}
