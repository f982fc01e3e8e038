//! How often what happened, since the start.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::refusal::CacheRefusal;

/// What became of a request that may be answered from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheEvent {
    /// It was answered by an answer in memory.
    L1,
    /// It was answered by an answer in the shared Redis.
    L2,
    /// It was given the answer to the same request, which was under way.
    Coalesced,
    /// There was no answer to it.
    Miss,
    /// There was, and the upstream was asked all the same, to compare.
    Verified,
    /// There was, and its series has not shown yet that it gives the same answer.
    Unproven,
    /// Its series gave other answers to the same question.
    Refused,
    /// Somebody asked for an answer from here only, and there was none.
    OnlyIfCached,
    /// Too many waited for the answer to the same request.
    FollowersFull,
    /// Too many requests led others.
    LeadersFull,
    /// It waited for an answer to the same request and had to be asked itself: the other failed, or took too long.
    FollowerAlone,
    /// An answer was compared with an earlier one, and was the same.
    Same,
    /// It was another.
    Different,
    /// Its answer was to be noted, and too much was waiting for that.
    Unread,
    /// An answer that was still good was asked for anew, and came.
    Refreshed,
}

impl CacheEvent {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::L1,
        Self::L2,
        Self::Coalesced,
        Self::Miss,
        Self::Verified,
        Self::Unproven,
        Self::Refused,
        Self::OnlyIfCached,
        Self::FollowersFull,
        Self::LeadersFull,
        Self::FollowerAlone,
        Self::Same,
        Self::Different,
        Self::Unread,
        Self::Refreshed,
    ];

    /// Its name as the value of a label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::L1 => "l1",
            Self::L2 => "l2",
            Self::Coalesced => "coalesced",
            Self::Miss => "miss",
            Self::Verified => "verified",
            Self::Unproven => "unproven",
            Self::Refused => "refused",
            Self::OnlyIfCached => "only_if_cached",
            Self::FollowersFull => "followers_full",
            Self::LeadersFull => "leaders_full",
            Self::FollowerAlone => "follower_alone",
            Self::Same => "same",
            Self::Different => "different",
            Self::Unread => "unread",
            Self::Refreshed => "refreshed",
        }
    }
}

/// Counts that many threads raise.
#[derive(Debug, Default)]
pub(crate) struct CacheCounters {
    events: [AtomicU64; CacheEvent::ALL.len()],
    refusals: [AtomicU64; CacheRefusal::ALL.len()],
    /// What answers from here took when they were asked for, in nanoseconds.
    saved_ns: AtomicU64,
}

impl CacheCounters {
    pub(crate) fn bump(&self, event: CacheEvent) {
        self.events[event as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn refuse(&self, refusal: CacheRefusal) {
        self.refusals[refusal as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn save(&self, ns: u64) {
        self.saved_ns.fetch_add(ns, Relaxed);
    }

    pub(crate) fn counts(&self) -> CacheCounts {
        CacheCounts {
            events: CacheEvent::ALL.map(|event| (event, self.events[event as usize].load(Relaxed))),
            refusals: CacheRefusal::ALL.map(|refusal| (refusal, self.refusals[refusal as usize].load(Relaxed))),
            saved_ns: self.saved_ns.load(Relaxed),
        }
    }
}

/// How often what happened, since the start.
#[derive(Clone, Copy, Debug)]
pub struct CacheCounts {
    /// What became of requests.
    pub events: [(CacheEvent, u64); CacheEvent::ALL.len()],
    /// Why requests and answers stayed out.
    pub refusals: [(CacheRefusal, u64); CacheRefusal::ALL.len()],
    /// What answers from here took when they were asked for, in nanoseconds.
    pub saved_ns: u64,
}

impl CacheCounts {
    /// How often this happened.
    #[must_use]
    pub const fn of(&self, event: CacheEvent) -> u64 {
        self.events[event as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_has_a_place_and_a_name_of_its_own() {
        let counters = CacheCounters::default();
        for (at, event) in CacheEvent::ALL.into_iter().enumerate() {
            assert_eq!(event as usize, at);
            (0..=at).for_each(|_| counters.bump(event));
        }
        let names: std::collections::BTreeSet<_> = CacheEvent::ALL.map(CacheEvent::name).into_iter().collect();
        assert_eq!(names.len(), CacheEvent::ALL.len());
        assert!(CacheEvent::ALL.into_iter().enumerate().all(|(at, event)| counters.counts().of(event) == at as u64 + 1));
    }
}
