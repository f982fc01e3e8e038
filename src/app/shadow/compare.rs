//! The thread that compares outputs: neither requests nor copies wait for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crossbeam_queue::ArrayQueue;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use super::copy::Head;

use crate::config::Config;
use crate::ledger::{PairId, TraceId};
use crate::protocol::{Protocols, fold_route};
use crate::proxy::CapturedBody;
use crate::shadow::OutputAccounts;
use crate::shadow::compare::{Comparer, FinishedAnswer};

/// One side's answer.
#[derive(Clone, Debug)]
pub(in crate::app) struct AnswerSide {
    pub(in crate::app) status: StatusCode,
    pub(in crate::app) headers: HeaderMap,
    pub(in crate::app) body: Arc<CapturedBody>,
}

/// Two answers to the same request.
#[derive(Debug)]
pub(in crate::app) struct ComparePair {
    pub(in crate::app) head: Arc<Head>,
    pub(in crate::app) target: usize,
    pub(in crate::app) trace: TraceId,
    pub(in crate::app) primary: AnswerSide,
    pub(in crate::app) copy: AnswerSide,
}

/// The end that pairs are handed to.
#[derive(Clone, Debug)]
pub(in crate::app) struct Comparing(SyncSender<ComparePair>);

/// A channel in which so many pairs may wait to be compared.
pub(in crate::app) fn channel(room: usize) -> (Comparing, Receiver<ComparePair>) {
    let (sender, receiver) = sync_channel(room);
    (Comparing(sender), receiver)
}

impl Comparing {
    /// Hands a pair over. Returns whether there was room.
    pub(in crate::app) fn compare(&self, pair: ComparePair) -> bool {
        self.0.try_send(pair).is_ok()
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
pub(in crate::app) struct Worker {
    comparer: Comparer,
    protocols: Protocols,
    accounts: Arc<Mutex<OutputAccounts>>,
    results: Arc<ArrayQueue<ComparedOutputs>>,
}

impl Worker {
    pub(in crate::app) fn new(
        config: &Config,
        accounts: Arc<Mutex<OutputAccounts>>,
        results: Arc<ArrayQueue<ComparedOutputs>>,
    ) -> Self {
        let (comparer, protocols) = (Comparer::new(&config.shadow.compare), Protocols::new(&config.protocol));
        Self { comparer, protocols, accounts, results }
    }

    /// Compares what comes until nobody sends any more.
    pub(in crate::app) fn run(self, pairs: &Receiver<ComparePair>) {
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
        let primary = pair.primary.finished();
        let comparison = self.comparer.compare(&route, kind, &primary, &pair.copy.finished());
        let mut accounts = self.accounts.lock();
        // clients must not fill the accounts with arbitrary paths
        let route = if primary.proves_names() || accounts.has(&route) { &route } else { "other" };
        let differ = accounts.record(pair.target, route, &comparison, pair.trace);
        drop(accounts);
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
