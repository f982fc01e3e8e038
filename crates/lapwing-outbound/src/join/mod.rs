//! The join: which request a time belongs to in which the server waited for a store.
//!
//! - A call that names a trace belongs to the request of that trace, if its parent is Lapwing's span or it began while that request was
//!   in flight.
//! - A call that began while exactly one request was in flight belongs to that one.
//! - All others belong to none, and are counted.
//!
//! The times of one request and stage are united, so that calls at the same time count once, and cut to the upstream window. Whoever
//! takes closed ledgers calls this, on one thread.

use std::collections::BTreeMap;
use std::time::Duration;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tokio::time::sleep;

use crate::call::Asked;
use crate::figures::WaitJoin;
use crate::state::{Downstreams, JoinableWait};
use lapwing_ledger::{Ledger, ObservedEvent, Span, Stage, Stamp, TraceId};

/// Times that wait for their requests to end. The oldest gives way.
pub(crate) const MAX_WAITS: usize = 16_384;
/// Pieces of time that one request is given; what follows is counted with the ledgers' overflow.
pub(crate) const MAX_PIECES: usize = 256;
/// How long the thread that passes bytes is waited for, and how often that is looked at.
const SETTLE_TRIES: usize = 50;
const SETTLE: Duration = Duration::from_millis(1);

/// A time by when it began, and a number of its own.
type WaitKey = (Stamp, u64);

/// Times that wait for their requests.
#[derive(Debug)]
pub struct WaitJoiner {
    all: Downstreams,
    waits: BTreeMap<WaitKey, JoinableWait>,
    by_trace: FxHashMap<TraceId, SmallVec<[WaitKey; 2]>>,
    next: u64,
}

impl WaitJoiner {
    /// What joins the waits of `all`.
    #[must_use]
    pub fn new(all: Downstreams) -> Self {
        Self { all, waits: BTreeMap::new(), by_trace: FxHashMap::default(), next: 0 }
    }

    /// Waits until all that was handed to the server before is in the queue; a few milliseconds at most, nearly always nothing.
    pub async fn settle(&self) {
        let began = self.all.progress.number();
        for _ in 0..SETTLE_TRIES {
            if began.is_multiple_of(2) || self.all.progress.number() != began {
                return;
            }
            sleep(SETTLE).await;
        }
    }

    /// Takes the times that have come since.
    pub fn take(&mut self) {
        for _ in 0..self.all.waits.len() {
            let Some(wait) = self.all.waits.pop() else { break };
            let key = (wait.began(), self.next);
            self.next += 1;
            if let Asked::Trace(trace, _) = wait.wait.asked {
                self.by_trace.entry(trace).or_default().push(key);
            }
            self.waits.insert(key, wait);
            if self.waits.len() > MAX_WAITS
                && let Some(oldest) = self.waits.keys().next().copied()
                && let Some(wait) = self.remove(oldest)
            {
                wait.settle(WaitJoin::Unmatched);
            }
        }
    }

    fn remove(&mut self, key: WaitKey) -> Option<JoinableWait> {
        let wait = self.waits.remove(&key)?;
        if let Asked::Trace(trace, _) = wait.wait.asked
            && let Some(keys) = self.by_trace.get_mut(&trace)
        {
            keys.retain(|other| *other != key);
            if keys.is_empty() {
                self.by_trace.remove(&trace);
            }
        }
        Some(wait)
    }

    /// Notes in a closed ledger the times that belong to its request.
    pub fn attach(&mut self, ledger: &mut Ledger) {
        if self.waits.is_empty() || ledger.is_copy {
            return;
        }
        let (from, to) = (ledger.started, ledger.started.plus(ledger.total_ns));
        let is_own = |key: &WaitKey, wait: &JoinableWait| match wait.wait.asked {
            Asked::Trace(_, span) => span == ledger.span || (from..=to).contains(&key.0),
            _ => true,
        };
        let mut own: SmallVec<[WaitKey; 8]> = SmallVec::new();
        if let Some(keys) = self.by_trace.get(&ledger.trace) {
            own.extend(keys.iter().copied().filter(|key| self.waits.get(key).is_some_and(|wait| is_own(key, wait))));
        }
        let alone = self.waits.range((from, 0)..=(to, u64::MAX)).filter(|(_, wait)| wait.wait.asked == Asked::Alone);
        own.extend(alone.map(|(key, _)| *key));
        let mut pieces: SmallVec<[(Stage, u64, u64); 8]> = SmallVec::new();
        for wait in own.into_iter().filter_map(|key| self.remove(key)) {
            wait.settle(if wait.wait.asked == Asked::Alone { WaitJoin::Alone } else { WaitJoin::Trace });
            pieces.push((wait.of.stage, ledger.offset(wait.wait.began), ledger.offset(wait.wait.ended)));
        }
        observe(ledger, pieces);
    }

    /// How many times wait.
    #[must_use]
    pub fn fill(&self) -> usize {
        self.waits.len()
    }
}

/// Adds pieces of time to a ledger: united by stage, and inside its upstream window.
fn observe(ledger: &mut Ledger, mut pieces: SmallVec<[(Stage, u64, u64); 8]>) {
    let window = ledger.bounded_window();
    pieces.iter_mut().for_each(|(_, from, to)| (*from, *to) = ((*from).max(window.start_ns), (*to).min(window.end_ns)));
    pieces.retain(|(_, from, to)| from < to);
    pieces.sort_unstable_by_key(|(stage, from, _)| (stage.index(), *from));
    pieces.dedup_by(|(stage, from, to), (before, _, end)| {
        let joins = stage == before && *from <= *end;
        if joins {
            *end = (*end).max(*to);
        }
        joins
    });
    let beyond = pieces.len().saturating_sub(MAX_PIECES);
    ledger.overflowed = ledger.overflowed.saturating_add(u16::try_from(beyond).unwrap_or(u16::MAX));
    let span = |(stage, start_ns, end_ns)| Span { stage, event: ObservedEvent::OutboundCall, start_ns, end_ns };
    ledger.spans.extend(pieces.into_iter().take(MAX_PIECES).map(span));
}

#[cfg(test)]
mod tests;
