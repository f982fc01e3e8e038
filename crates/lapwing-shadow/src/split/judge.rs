//! What the requests of both sides of a live split say. They are taken in the order in which they started, and each is matched with the
//! latest one of the other side, of the same route, model and cost class, that has no partner yet: neighbours in time share the load of
//! their moment. The pairs are counted as those of copies are.
//!
//! A request is held until those that started before it should have ended. One that comes later still is judged all the same, out of
//! order, and counted: to leave it out would leave out what is slow.

use std::collections::BTreeMap;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::keys::{KeyRefusal, KeyTable};
use crate::pairs::{Card, PairHalf};
use lapwing_compare::ab::{LifoMatcher, PairSide, WatchedShare};
use lapwing_ledger::{Exchange, ExchangeKind, LabelId, Outcome, Stamp};

/// How many requests are held at most; beyond, the oldest is judged at once.
const MAX_HELD: usize = 16_384;
/// The least and the greatest time that a request is held after its start, in nanoseconds: one and a half times the longest seen.
const HOLD_NS: (u64, u64) = (1_000_000_000, 30_000_000_000);
/// How many routes, models and classes are told apart.
const MAX_CARDS: usize = 128;

/// What became of requests that are not judged, or not in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JudgeCounts {
    /// Judged.
    pub(crate) judged: u64,
    /// Judged out of order, because they came later than their neighbours were held.
    pub(crate) late: u64,
    /// Judged early, because too many were held.
    pub(crate) early: u64,
    /// Not judged: another of the same key was, in the same block.
    pub(crate) same_key: u64,
    /// Not judged: too many keys or too many routes, models and classes.
    pub(crate) crowded: u64,
    /// Not judged: the client left before the answer's end; of the baseline and of the candidate.
    pub(crate) left: [u64; 2],
}

/// A request that is held.
#[derive(Debug)]
struct HeldRequest {
    side: PairSide,
    key: u32,
    /// `None` for one that its caller is to blame for: it has failed, and says nothing of latency.
    half: Option<PairHalf>,
    has_failed: bool,
}

/// A route, a model and a cost class.
pub(crate) type CardKey = (LabelId, LabelId, Option<u8>);

#[derive(Debug, Default)]
pub(crate) struct MatchedCard {
    matcher: LifoMatcher<PairHalf>,
    pub(crate) card: Card,
}

/// What is known of both sides. One thread owns it; time is passed in.
#[derive(Debug)]
pub(crate) struct SplitJudge {
    candidate: LabelId,
    started: Stamp,
    held: BTreeMap<(Stamp, u64), HeldRequest>,
    /// Tells those apart that started in the same nanosecond.
    number: u64,
    /// All that started before it were judged.
    judged_until: Stamp,
    longest_ns: u64,
    pub(crate) keys: KeyTable,
    pub(crate) cards: FxHashMap<CardKey, Box<MatchedCard>>,
    /// All pairs together, each of one route, model and class.
    pub(crate) all: Card,
    /// Which of the requests failed, of the baseline and of the candidate.
    pub(crate) failed: [WatchedShare; 2],
    pub(crate) counts: JudgeCounts,
}

impl SplitJudge {
    /// Judges the upstream with the label `candidate` by all others.
    pub(crate) fn new(candidate: LabelId, started: Stamp) -> Self {
        Self {
            candidate,
            started,
            held: BTreeMap::new(),
            number: 0,
            judged_until: Stamp::default(),
            longest_ns: 0,
            keys: KeyTable::default(),
            cards: FxHashMap::default(),
            all: Card::default(),
            failed: Default::default(),
            counts: JudgeCounts::default(),
        }
    }

    /// Takes the account of a client's request that the split placed.
    pub(crate) fn take(&mut self, exchange: &Exchange, now: Stamp) {
        let ledger = &exchange.ledger;
        let Some(key) = ledger.split_key.filter(|_| ledger.kind == ExchangeKind::Request) else { return };
        let side = if ledger.series.upstream == self.candidate { PairSide::Candidate } else { PairSide::Baseline };
        let (half, has_failed) = match ledger.outcome {
            Outcome::Cancelled => {
                self.counts.left[side_index(side)] += 1;
                return;
            }
            // refused here: no upstream had it
            Outcome::Rejected | Outcome::Shed => return,
            Outcome::ClientError => (None, true),
            outcome => (Some(PairHalf::of_copy(exchange)), outcome != Outcome::Ok),
        };
        let held = HeldRequest { side, key: key.get(), half, has_failed };
        self.longest_ns = self.longest_ns.max(now.since(ledger.started));
        if ledger.started < self.judged_until {
            self.counts.late += 1;
            self.judge(ledger.started, held, now);
            return;
        }
        self.number += 1;
        self.held.insert((ledger.started, self.number), held);
        if self.held.len() > MAX_HELD {
            self.counts.early += 1;
            self.judge_oldest(now);
        }
    }

    /// Judges what was held long enough, and closes the blocks that have ended. Returns how long this has been going on.
    pub(crate) fn tick(&mut self, now: Stamp) -> Duration {
        let hold_ns = (self.longest_ns.saturating_mul(3) / 2).clamp(HOLD_NS.0, HOLD_NS.1);
        while self.held.keys().next().is_some_and(|(started, _)| now.since(*started) >= hold_ns) {
            self.judge_oldest(now);
        }
        let elapsed = self.elapsed(now);
        self.all.tick(elapsed);
        self.cards.values_mut().for_each(|matched| matched.card.tick(elapsed));
        self.failed.iter_mut().for_each(|share| share.tick(elapsed));
        elapsed
    }

    fn elapsed(&self, now: Stamp) -> Duration {
        Duration::from_nanos(now.since(self.started))
    }

    fn judge_oldest(&mut self, now: Stamp) {
        if let Some(((started, _), oldest)) = self.held.pop_first() {
            self.judged_until = self.judged_until.max(started);
            self.judge(started, oldest, now);
        }
    }

    fn judge(&mut self, started: Stamp, request: HeldRequest, now: Stamp) {
        match self.keys.admit(request.side, request.key, started.as_ns()) {
            Ok(()) => {}
            Err(KeyRefusal::Again) => {
                self.counts.same_key += 1;
                return;
            }
            Err(KeyRefusal::Crowded) => {
                self.counts.crowded += 1;
                return;
            }
        }
        self.counts.judged += 1;
        self.failed[side_index(request.side)].record(request.has_failed);
        let Some(half) = request.half else { return };
        let key = (half.series.route, half.series.model, half.class);
        if !self.cards.contains_key(&key) && self.cards.len() >= MAX_CARDS {
            self.counts.crowded += 1;
            return;
        }
        let since = self.elapsed(now);
        let fresh = || Box::new(MatchedCard { card: Card::new(since), ..MatchedCard::default() });
        let matched = self.cards.entry(key).or_insert_with(fresh);
        let ticket = matched.matcher.start(request.side);
        if let Some(pair) = matched.matcher.finish(ticket, half) {
            matched.card.record(&pair.baseline, &pair.candidate);
            self.all.record(&pair.baseline, &pair.candidate);
        }
    }

    /// Forgets routes and models that are not named any more.
    pub(crate) fn retain(&mut self, is_named: impl Fn(LabelId, LabelId) -> bool) {
        self.cards.retain(|(route, model, _), _| is_named(*route, *model));
    }
}

pub(crate) const fn side_index(side: PairSide) -> usize {
    match side {
        PairSide::Baseline => 0,
        PairSide::Candidate => 1,
    }
}
