//! Pairs from requests that each went to one side only: every request is matched with the latest unmatched one of the other side,
//! of the same route and class. The pairs feed the same counts as those of a shadow.
//!
//! Matching is decided when a request starts, so that its latency cannot influence with whom it is compared. Neighbours in time
//! share the load of their moment, which therefore cancels.

use std::collections::{BTreeMap, VecDeque};

use super::counts::{PairCounts, PairSide};

/// How many unmatched requests of each side wait for a partner. Older ones stay without.
const UNMATCHED: usize = 8;
/// How many requests are remembered until they finish; beyond, the oldest is forgotten.
const OPEN: usize = 4_096;

/// A request that was given to a [`LifoMatcher`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MatchTicket(u64);

/// What is known of two matched requests: by default the latency in nanoseconds, `None` for one that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchedPair<T = Option<u64>> {
    /// Of the request that went to the baseline.
    pub baseline: T,
    /// Of the request that went to the candidate.
    pub candidate: T,
}

impl MatchedPair {
    /// Records the pair.
    pub fn record(&self, counts: &mut PairCounts) {
        match (self.baseline, self.candidate) {
            (Some(baseline_ns), Some(candidate_ns)) => counts.record(baseline_ns, candidate_ns),
            (Some(baseline_ns), None) => counts.record_failed_side(PairSide::Candidate, baseline_ns),
            (None, Some(candidate_ns)) => counts.record_failed_side(PairSide::Baseline, candidate_ns),
            (None, None) => counts.record_both_failed(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct OpenRequest<T> {
    side: PairSide,
    partner: Option<MatchTicket>,
    /// What is known of it, once it has finished.
    finished: Option<T>,
}

/// Matches the requests of one route and cost class. Each is used at most once; at most 4,096 are
/// remembered.
///
/// With half of the requests on each side there are 0.47 pairs per request; with 5 % on the candidate, each of its requests has a
/// partner.
#[derive(Clone, Debug)]
pub struct LifoMatcher<T = Option<u64>> {
    next: u64,
    /// The unmatched requests of the baseline and of the candidate, the latest last.
    unmatched: [VecDeque<MatchTicket>; 2],
    open: BTreeMap<MatchTicket, OpenRequest<T>>,
}

impl<T> Default for LifoMatcher<T> {
    fn default() -> Self {
        Self { next: 0, unmatched: [VecDeque::new(), VecDeque::new()], open: BTreeMap::new() }
    }
}

impl<T> LifoMatcher<T> {
    /// A request starts. The ticket is for [`finish`](Self::finish) or [`abandon`](Self::abandon).
    pub fn start(&mut self, side: PairSide) -> MatchTicket {
        let ticket = MatchTicket(self.next);
        self.next += 1;
        let (own, other) = match side {
            PairSide::Baseline => (0, 1),
            PairSide::Candidate => (1, 0),
        };
        let partner = self.unmatched[other].pop_back();
        if let Some(request) = partner.and_then(|partner| self.open.get_mut(&partner)) {
            request.partner = Some(ticket);
        } else {
            self.unmatched[own].push_back(ticket);
            if self.unmatched[own].len() > UNMATCHED
                && let Some(oldest) = self.unmatched[own].pop_front()
            {
                self.open.remove(&oldest);
            }
        }
        self.open.insert(ticket, OpenRequest { side, partner, finished: None });
        if self.open.len() > OPEN
            && let Some(oldest) = self.open.keys().next().copied()
        {
            self.abandon(oldest);
        }
        ticket
    }

    /// A request finished, and `known` is what is to be compared. Returns the pair if its partner has finished too.
    pub fn finish(&mut self, ticket: MatchTicket, known: T) -> Option<MatchedPair<T>> {
        let request = self.open.get(&ticket)?;
        let side = request.side;
        let partner = request.partner.filter(|partner| self.open.get(partner).is_some_and(|other| other.finished.is_some()));
        let Some(partner) = partner else {
            self.open.get_mut(&ticket)?.finished = Some(known);
            return None;
        };
        self.open.remove(&ticket);
        let other = self.open.remove(&partner)?.finished?;
        Some(match side {
            PairSide::Baseline => MatchedPair { baseline: known, candidate: other },
            PairSide::Candidate => MatchedPair { baseline: other, candidate: known },
        })
    }

    /// A request ended without a latency and without being at fault, as when its client went away. Its partner, if it has one, is
    /// left out too.
    pub fn abandon(&mut self, ticket: MatchTicket) {
        let partner = self.open.remove(&ticket).and_then(|request| request.partner);
        if let Some(partner) = partner {
            self.open.remove(&partner);
        }
        for side in &mut self.unmatched {
            side.retain(|unmatched| *unmatched != ticket);
        }
    }

    /// How many requests are remembered.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.open.len()
    }
}
