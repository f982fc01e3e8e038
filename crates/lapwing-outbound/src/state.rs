//! The downstreams of a process: what is counted of each, and the times that wait to be joined to requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crossbeam_queue::ArrayQueue;
use parking_lot::Mutex;

use crate::cache::StoreCache;
use crate::call::{Asked, CallSink, EndedCall, Wait};
use crate::config::Downstream;
use crate::figures::{Figures, WaitJoin};
use crate::kind::DownstreamKind;
use lapwing_ledger::{Stage, Stamp};
use lapwing_metrics::{Counter, Counters};

/// Times that may wait to be taken by what joins them.
const QUEUE: usize = 8192;

/// One downstream.
#[derive(Debug)]
pub struct DownstreamState {
    pub(crate) name: Arc<str>,
    pub(crate) address: String,
    pub(crate) kind: DownstreamKind,
    pub(crate) stage: Stage,
    /// Answers that are kept; `None` if none are.
    pub(crate) cache: Option<StoreCache>,
    pub(crate) figures: Mutex<Figures>,
}

/// A time that may belong to a request.
#[derive(Clone, Debug)]
pub(crate) struct JoinableWait {
    pub(crate) of: Arc<DownstreamState>,
    pub(crate) wait: Wait,
}

/// All downstreams. Clones are the same.
#[derive(Clone, Debug)]
pub struct Downstreams {
    pub(crate) list: Arc<[Arc<DownstreamState>]>,
    pub(crate) waits: Arc<ArrayQueue<JoinableWait>>,
    pub(crate) progress: Arc<Progress>,
    counters: Arc<Counters>,
}

/// Whether the thread that passes bytes is between handing on an answer and noting that it did. Only one thread writes.
#[derive(Debug, Default)]
pub(crate) struct Progress(AtomicU64);

impl Progress {
    pub(crate) fn enter(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    pub(crate) fn leave(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    /// A number that is odd in between, and never comes again.
    pub(crate) fn number(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

impl Downstreams {
    /// Those of the configuration; `None` if there are none. `counters` has the requests in flight.
    #[must_use]
    pub fn of(config: &[Downstream], counters: &Arc<Counters>) -> Option<Self> {
        let state = |one: &Downstream| {
            Arc::new(DownstreamState {
                name: one.label().into(),
                address: one.to.to_string(),
                kind: one.kind,
                stage: one.stage.stage(),
                cache: one.cache.as_ref().and_then(|cache| StoreCache::of(one.kind, cache)),
                figures: Mutex::default(),
            })
        };
        let list: Arc<[_]> = config.iter().map(state).collect();
        let (waits, progress, counters) = (Arc::new(ArrayQueue::new(QUEUE)), Arc::default(), counters.clone());
        (!list.is_empty()).then_some(Self { list, waits, progress, counters })
    }

    /// The requests in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.counters.get(Counter::InFlight)
    }

    pub(crate) const fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}

/// Notes what a reader shows of one downstream.
pub(crate) struct Recording<'f> {
    pub(crate) figures: &'f mut Figures,
    pub(crate) of: &'f Arc<DownstreamState>,
    pub(crate) waits: &'f ArrayQueue<JoinableWait>,
}

impl CallSink for Recording<'_> {
    fn ended(&mut self, call: EndedCall) {
        self.figures.count(&call);
    }

    fn waited(&mut self, wait: Wait) {
        let ns = wait.ended.since(wait.began);
        match wait.asked {
            Asked::Among => self.figures.count_wait(WaitJoin::Among, ns),
            Asked::Outside => self.figures.count_wait(WaitJoin::Outside, ns),
            Asked::Alone | Asked::Trace(..) => {
                if self.waits.push(JoinableWait { of: self.of.clone(), wait }).is_err() {
                    self.figures.count_wait(WaitJoin::Shed, ns);
                }
            }
        }
    }
}

impl JoinableWait {
    /// Counts what became of it.
    pub(crate) fn settle(&self, join: WaitJoin) {
        self.of.figures.lock().count_wait(join, self.wait.ended.since(self.wait.began));
    }

    pub(crate) const fn began(&self) -> Stamp {
        self.wait.began
    }
}
