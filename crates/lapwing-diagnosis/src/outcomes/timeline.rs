//! How the requests of one series ended, counted exactly by blocks of time, with the latest that did not end well.

use std::collections::VecDeque;

use super::FailureKind;
use crate::block::BLOCKS;
use lapwing_ledger::{Annotation, Basis, Exchange, ExchangeKind, Stage, Stamp, TraceId, Unit};

/// How many requests that did not end well are remembered.
const LATEST: usize = 8;

/// Something of a request that could not be read, so that its figures lack something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// The server reported nothing of its time.
    Stages,
    /// The request's body was not read though its route is known.
    RequestBody,
    /// The answer's body was not read though its route is known.
    ResponseBody,
    /// The answer's body was not read because it is compressed.
    CompressedResponse,
    /// Its tokens are estimated from bytes.
    Tokens,
}

impl Unread {
    pub(crate) const COUNT: usize = 5;
    const ALL: [Self; Self::COUNT] =
        [Self::Stages, Self::RequestBody, Self::ResponseBody, Self::CompressedResponse, Self::Tokens];

    /// Whether an exchange that ended well has it.
    fn holds(self, exchange: &Exchange) -> bool {
        let ledger = &exchange.ledger;
        let has = |annotation| ledger.circumstances.annotations.has(annotation);
        match self {
            Self::Stages => exchange.account.stage_ns(Stage::Upstream) > 0,
            Self::RequestBody => has(Annotation::UnreadRequest),
            Self::ResponseBody => has(Annotation::UnreadResponse) && !has(Annotation::CompressedResponse),
            Self::CompressedResponse => has(Annotation::UnreadResponse) && has(Annotation::CompressedResponse),
            Self::Tokens => {
                let is_estimated = |unit| ledger.work.get(unit).is_some_and(|(_, basis)| basis == Basis::Estimated);
                is_estimated(Unit::InputToken) || is_estimated(Unit::OutputToken)
            }
        }
    }
}

/// The requests of one block of time. 104 bytes.
#[derive(Clone, Copy, Debug, Default)]
struct OutcomeBlock {
    index: u64,
    ended: u32,
    failed: [u32; FailureKind::COUNT],
    /// How long those took, in seconds.
    seconds: [f32; FailureKind::COUNT],
    unread: [u32; Unread::COUNT],
}

/// A request that did not end well.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FailedRequest {
    pub(crate) at: Stamp,
    pub(crate) kind: FailureKind,
    /// The status that the client got; zero if it got none.
    pub(crate) status: u16,
    pub(crate) trace: TraceId,
    /// Its route, where the series represents several.
    pub(crate) route: Option<Box<str>>,
}

/// How requests of a window ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutcomeSums {
    /// All that ended.
    pub(crate) ended: u64,
    pub(crate) failed: [u64; FailureKind::COUNT],
    pub(crate) seconds: [f64; FailureKind::COUNT],
    pub(crate) unread: [u64; Unread::COUNT],
    /// Requests that ended well, of which `unread` are.
    pub(crate) well: u64,
    /// The latest that did not end well, the newest first.
    pub(crate) latest: Vec<FailedRequest>,
}

/// How the requests of a series ended.
#[derive(Debug, Default)]
pub(crate) struct OutcomeTimeline {
    blocks: VecDeque<OutcomeBlock>,
    latest: VecDeque<FailedRequest>,
}

impl OutcomeTimeline {
    /// Counts an exchange of a client, which ended at `ended` in this block of time. A long-lived stream that its client ends has ended well.
    pub(crate) fn record(&mut self, exchange: &Exchange, index: u64, ended: Stamp) {
        let ledger = &exchange.ledger;
        let kind = FailureKind::of(ledger);
        if ledger.kind == ExchangeKind::Stream && kind.is_none_or(|kind| kind == FailureKind::ClientsLeaving) {
            return;
        }
        let Some(block) = self.place(index) else { return };
        block.ended = block.ended.saturating_add(1);
        let Some(kind) = kind else {
            for (count, unread) in block.unread.iter_mut().zip(Unread::ALL) {
                *count = count.saturating_add(u32::from(unread.holds(exchange)));
            }
            return;
        };
        let place = kind as usize;
        block.failed[place] = block.failed[place].saturating_add(1);
        block.seconds[place] += (ledger.total_ns as f64 / 1e9) as f32;
        if self.latest.len() == LATEST {
            self.latest.pop_front();
        }
        let route = ledger.new_names.as_ref().and_then(|names| names.route.clone());
        self.latest.push_back(FailedRequest { at: ended, kind, status: ledger.status, trace: ledger.trace, route });
    }

    fn place(&mut self, index: u64) -> Option<&mut OutcomeBlock> {
        if self.blocks.back().is_none_or(|latest| latest.index < index) {
            self.blocks.push_back(OutcomeBlock { index, ..OutcomeBlock::default() });
            if self.blocks.len() > BLOCKS {
                self.blocks.pop_front();
            }
        }
        // exchanges that waited for their spans end in an earlier block; where there is none they count in the one after it
        let place = self.blocks.partition_point(|block| block.index < index);
        self.blocks.get_mut(place)
    }

    /// Drops blocks before `oldest`.
    pub(crate) fn expire(&mut self, oldest: u64) {
        while self.blocks.front().is_some_and(|block| block.index < oldest) {
            self.blocks.pop_front();
        }
        if self.blocks.is_empty() {
            self.latest.clear();
        }
    }

    /// Whether nothing is left of it.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The sums from the block `from` on, which begins at `since`.
    pub(crate) fn sums(&self, from: u64, since: Stamp) -> OutcomeSums {
        let mut sums = OutcomeSums::default();
        for block in self.blocks.iter().filter(|block| block.index >= from) {
            sums.ended += u64::from(block.ended);
            sums.failed.iter_mut().zip(block.failed).for_each(|(sum, count)| *sum += u64::from(count));
            sums.seconds.iter_mut().zip(block.seconds).for_each(|(sum, seconds)| *sum += f64::from(seconds));
            sums.unread.iter_mut().zip(block.unread).for_each(|(sum, count)| *sum += u64::from(count));
        }
        sums.well = sums.ended.saturating_sub(sums.failed.iter().sum());
        sums.latest = self.latest.iter().rev().filter(|failed| failed.at >= since).cloned().collect();
        sums
    }
}
