//! The thread that compares outputs: neither requests nor copies wait for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use crossbeam_queue::ArrayQueue;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use super::ShadowParts;
use super::copy::Head;

use crate::config::Config;
use crate::ledger::{PairId, TraceId};
use crate::protocol::{Protocols, fold_route};
use crate::proxy::CapturedBody;
use crate::shadow::compare::{Comparer, FinishedAnswer};
use crate::shadow::{OutputAccounts, ShadowCounters, ShadowDrop};

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
    pub(super) head: Arc<Head>,
    pub(super) target: usize,
    pub(super) trace: TraceId,
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
    comparer: Comparer,
    protocols: Protocols,
    accounts: Arc<Mutex<OutputAccounts>>,
    results: Arc<ArrayQueue<ComparedOutputs>>,
}

impl Worker {
    pub(super) fn new(config: &Config, parts: &ShadowParts) -> Self {
        Self {
            comparer: Comparer::new(&config.shadow.compare),
            protocols: Protocols::new(&config.protocol),
            accounts: parts.outputs.clone(),
            results: parts.compared.clone(),
        }
    }

    /// Compares what comes until nobody sends any more.
    pub(super) fn run(self, pairs: &Receiver<ComparePair>) {
        while let Ok(pair) = pairs.recv() {
            // a comparison that panics costs its result, and neither the thread nor any request
            if catch_unwind(AssertUnwindSafe(|| self.compare(&pair))).is_err() {
                tracing::error!(path = pair.head.path.path(), "comparing two outputs panicked; this is a fault of Lapwing");
            }
        }
    }

    fn compare(&self, pair: &ComparePair) {
        let Head { method, path, headers, pair: number, .. } = &*pair.head;
        let route = fold_route(method.as_str(), path.path()).name;
        let is_grpc = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        let kind = self.protocols.detect(method, path.path()).output_kind(is_grpc);
        let comparison = self.comparer.compare(&route, kind, &pair.primary.finished(), &pair.copy.finished());
        let differ = self.accounts.lock().record(pair.target, &route, &comparison, pair.trace);
        if let Some(differ) = differ {
            // if nobody took the oldest result, it is late anyway
            let _ = self.results.force_push(ComparedOutputs { pair: *number, target: pair.target, differ });
        }
    }
}

impl AnswerSide {
    fn finished(&self) -> FinishedAnswer<'_> {
        let told = |fields: &HeaderMap| fields.get("grpc-status")?.to_str().ok()?.parse().ok();
        FinishedAnswer {
            status: self.status.as_u16(),
            headers: &self.headers,
            grpc_status: self.body.trailers().and_then(told).or_else(|| told(&self.headers)),
            body: self.body.pieces(),
            is_complete: true,
        }
    }
}
