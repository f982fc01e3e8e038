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
use crate::ledger::{CopyCause, PairId, TraceId};
use crate::net::error_text;
use crate::protocol::{OutputKind, Protocols, fold_route};
use crate::proxy::CapturedBody;
use crate::shadow::compare::{AnswerReading, Comparer, FinishedAnswer};
use crate::shadow::mapping::{MappingTable, RequestMapping};
use crate::shadow::{OutputAccounts, OutputVerdict, ShadowCounters, ShadowDrop};

/// One side's answer.
#[derive(Clone, Debug)]
pub(in crate::app) struct AnswerSide {
    pub(in crate::app) status: StatusCode,
    pub(in crate::app) headers: HeaderMap,
    pub(in crate::app) body: Arc<CapturedBody>,
    /// By what the request was made of the copied one, if it was not that itself.
    pub(in crate::app) mapping: Option<Arc<RequestMapping>>,
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

/// What the comparison of a pair's outputs says.
#[derive(Clone, Copy, Debug)]
pub(in crate::app) struct ComparedOutputs {
    pub(in crate::app) pair: PairId,
    pub(in crate::app) target: usize,
    pub(in crate::app) verdict: OutputVerdict,
}

/// The thread's own state.
pub(in crate::app) struct Worker {
    comparer: Comparer,
    protocols: Protocols,
    accounts: Arc<Mutex<OutputAccounts>>,
    results: Arc<ArrayQueue<ComparedOutputs>>,
    /// The mappings of each target that is a candidate, by its index; the upstream's second answers have the index behind them.
    candidates: Vec<Arc<MappingTable>>,
    counters: Arc<ShadowCounters>,
    /// The place of target 0 among the counters.
    first_target: usize,
}

impl Worker {
    /// The results of target 0 and those after it are counted from `first_target` on.
    pub(in crate::app) fn new(
        config: &Config,
        accounts: Arc<Mutex<OutputAccounts>>,
        results: Arc<ArrayQueue<ComparedOutputs>>,
        candidates: Vec<Arc<MappingTable>>,
        counters: Arc<ShadowCounters>,
        first_target: usize,
    ) -> Self {
        let (comparer, protocols) = (Comparer::new(&config.shadow.compare), Protocols::new(&config.protocol));
        Self { comparer, protocols, accounts, results, candidates, counters, first_target }
    }

    /// Compares what comes until nobody sends any more.
    pub(in crate::app) fn run(self, pairs: &Receiver<ComparePair>) {
        while let Ok(pair) = pairs.recv() {
            // a comparison that panics costs its result, and neither the thread nor any request
            if catch_unwind(AssertUnwindSafe(|| self.compare(&pair))).is_err() {
                tracing::error!(
                    path = error_text(pair.head.path.path()),
                    "comparing two outputs panicked; this is a fault of Lapwing"
                );
            }
        }
    }

    fn compare(&self, pair: &ComparePair) {
        let Head { method, path, headers, pair: number, cause, .. } = &*pair.head;
        let route = fold_route(method.as_str(), path.path()).name;
        let is_grpc = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        let kind = self.protocols.detect(method, path.path()).output_kind(is_grpc);
        let verdict = if pair.target < self.candidates.len() {
            let readings = [pair.primary.reading(&pair.copy, kind), pair.copy.reading(&pair.primary, kind)];
            let primary = pair.primary.finished();
            let comparison = self.comparer.compare_as(&route, readings, &primary, &pair.copy.finished());
            let mut accounts = self.accounts.lock();
            // clients must not fill the accounts with arbitrary paths
            let route = if primary.proves_names() || accounts.has(&route) { &route } else { "other" };
            accounts.record(pair.target, route, *cause, &comparison, pair.trace)
        } else {
            self.compare_repeat(&route, kind, *cause, pair)
        };
        if let Some(verdict) = verdict
            && let Some(lost) = self.results.force_push(ComparedOutputs { pair: *number, target: pair.target, verdict })
            && let Some(counters) = self.counters.target(lost.target + self.first_target)
        {
            counters.drop_copy(ShadowDrop::ResultLost);
        }
    }

    /// Compares the upstream's second answer with its first, for each candidate in the way in which that candidate is compared: so
    /// that the noise has the names of the same fields. Returns how the answers compare as they are.
    fn compare_repeat(&self, route: &str, kind: OutputKind, cause: CopyCause, pair: &ComparePair) -> Option<OutputVerdict> {
        let (first, second) = (pair.primary.finished(), pair.copy.finished());
        let compared = |reading| self.comparer.compare_as(route, [reading; 2], &first, &second);
        let plain = compared(AnswerReading::Protocol(kind));
        let is_proven = first.proves_names() || self.accounts.lock().has(route);
        let account = if is_proven { route } else { "other" };
        for (candidate, mappings) in self.candidates.iter().enumerate() {
            let mapped = mappings.of(route).map(|mapping| compared(AnswerReading::Mapped(mapping.outputs())));
            self.accounts.lock().record_repeat(candidate, account, cause, mapped.as_ref().unwrap_or(&plain), pair.trace);
        }
        OutputVerdict::of_repeat(&plain)
    }
}

impl AnswerSide {
    /// The answer to a request as it was copied.
    pub(in crate::app) const fn of_upstream(status: StatusCode, headers: HeaderMap, body: Arc<CapturedBody>) -> Self {
        Self { status, headers, body, mapping: None }
    }

    /// How it is decoded where it is compared with `other`. A request that was mapped is a call of the Open Inference Protocol; the
    /// other side has the same tensors where the mapping says.
    fn reading<'a>(&self, other: &'a Self, kind: OutputKind) -> AnswerReading<'a> {
        match (&self.mapping, &other.mapping) {
            (Some(_), _) => AnswerReading::Protocol(OutputKind::Tensors),
            (None, Some(mapping)) => AnswerReading::Mapped(mapping.outputs()),
            (None, None) => AnswerReading::Protocol(kind),
        }
    }

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
