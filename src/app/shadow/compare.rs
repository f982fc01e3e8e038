//! The thread that compares outputs: neither requests nor copies wait for it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use crossbeam_queue::ArrayQueue;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};

use crate::config::Config;
use crate::ledger::PairId;
use crate::proxy::CapturedBody;
use crate::shadow::{ShadowCounters, ShadowDrop};

/// How many pairs may wait to be compared.
const ROOM: usize = 256;

/// One side's answer.
#[derive(Clone, Debug)]
pub(super) struct AnswerSide {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Arc<CapturedBody>,
}

/// Two answers to the same request.
#[derive(Debug)]
pub(super) struct ComparePair {
    pub(super) pair: PairId,
    pub(super) target: usize,
    pub(super) method: Method,
    pub(super) path: PathAndQuery,
    pub(super) primary: AnswerSide,
    pub(super) copy: AnswerSide,
}

/// The end that pairs are handed to.
#[derive(Clone, Debug)]
pub(super) struct Comparing(SyncSender<ComparePair>);

/// A bounded channel of pairs.
pub(super) fn channel() -> (Comparing, Receiver<ComparePair>) {
    let (sender, receiver) = sync_channel(ROOM);
    (Comparing(sender), receiver)
}

impl Comparing {
    /// Hands a pair over, or drops and counts it.
    pub(super) fn compare(&self, pair: ComparePair, counters: &ShadowCounters) {
        if let Err(TrySendError::Full(pair) | TrySendError::Disconnected(pair)) = self.0.try_send(pair)
            && let Some(counters) = counters.target(pair.target)
        {
            counters.drop_copy(ShadowDrop::CompareFull);
        }
    }
}

/// Whether the outputs of a pair differ.
#[derive(Clone, Copy, Debug)]
pub(in crate::app) struct ComparedOutputs {
    pub(in crate::app) pair: PairId,
    pub(in crate::app) target: usize,
    pub(in crate::app) differ: bool,
}

/// The thread's own state.
pub(super) struct Worker {
    results: Arc<ArrayQueue<ComparedOutputs>>,
}

impl Worker {
    pub(super) fn new(_config: &Config, results: Arc<ArrayQueue<ComparedOutputs>>) -> Self {
        Self { results }
    }

    /// Compares what comes until nobody sends any more.
    pub(super) fn run(self, pairs: &Receiver<ComparePair>) {
        while let Ok(pair) = pairs.recv() {
            let differ = pair.primary.status != pair.copy.status || !pair.primary.body.has_same_bytes(&pair.copy.body);
            drop(self.results.force_push(ComparedOutputs { pair: pair.pair, target: pair.target, differ }));
        }
    }
}
