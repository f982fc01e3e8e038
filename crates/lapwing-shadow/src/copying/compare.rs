//! The thread that compares outputs: neither requests nor copies wait for it.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crossbeam_queue::ArrayQueue;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use super::copy_request::{AppliedMapping, CopyHead};
use crate::counters::{ShadowCounters, ShadowDrop};
use crate::mapping::{MappingTable, RequestMapping};
use crate::outputs::{OutputAccounts, OutputVerdict};
use crate::settings::ShadowSettings;
use lapwing_compare::outputs::{AnswerReading, Asked, Comparer, FieldScales, FinishedAnswer, may_be_drawn};
use lapwing_ledger::{CopyCause, Ledger, PairId, Stamp, TraceId};
use lapwing_net::error_text;
use lapwing_protocol::{DetectedProtocol, OutputKind, Protocols, fold_route};
use lapwing_proxy::CapturedBody;

/// One side's answer.
#[derive(Clone, Debug)]
pub(crate) struct AnswerSide {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Arc<CapturedBody>,
    /// By what the request was made of the copied one, if it was not that itself.
    pub(crate) mapping: Option<AppliedMapping>,
}

/// Two answers to the same request.
#[derive(Debug)]
pub(crate) struct ComparePair {
    pub(crate) head: Arc<CopyHead>,
    /// The request's body.
    pub(crate) request: Arc<CapturedBody>,
    pub(crate) target: usize,
    /// The key of the request, if the pair is of both sides of a live split.
    pub(crate) split_key: Option<NonZeroU32>,
    pub(crate) trace: TraceId,
    pub(crate) primary: AnswerSide,
    pub(crate) copy: AnswerSide,
}

/// The end that pairs are handed to.
#[derive(Clone, Debug)]
pub(crate) struct ComparisonSender(SyncSender<ComparePair>);

/// A channel in which so many pairs may wait to be compared.
pub(crate) fn comparisons(room: usize) -> (ComparisonSender, Receiver<ComparePair>) {
    let (sender, receiver) = sync_channel(room);
    (ComparisonSender(sender), receiver)
}

impl ComparisonSender {
    /// Hands a pair over. Returns whether there was room.
    pub(crate) fn compare(&self, pair: ComparePair) -> bool {
        self.0.try_send(pair).is_ok()
    }
}

/// What the comparison of a pair's outputs says.
#[derive(Clone, Copy, Debug)]
pub struct ComparedOutputs {
    /// Of which pair.
    pub pair: PairId,
    /// Of which target, by its index.
    pub target: usize,
    /// The key of the request, if the pair is of both sides of a live split.
    pub split_key: Option<NonZeroU32>,
    /// How its output compares.
    pub verdict: OutputVerdict,
}

/// The thread's own state.
pub(crate) struct CompareWorker {
    comparer: Comparer,
    protocols: Protocols,
    accounts: Arc<Mutex<OutputAccounts>>,
    results: Arc<ArrayQueue<ComparedOutputs>>,
    /// The mappings of each target that is a candidate, by its index; the upstream's second answers have the index behind them.
    candidates: Vec<Arc<MappingTable>>,
    counters: Arc<ShadowCounters>,
    /// The place of target 0 among the counters.
    first_target: usize,
    /// The largest request that is read for what it asks, in bytes.
    max_request: usize,
}

impl CompareWorker {
    /// The results of target 0 and those after it are counted from `first_target` on.
    pub(crate) fn new(
        settings: &ShadowSettings,
        accounts: Arc<Mutex<OutputAccounts>>,
        results: Arc<ArrayQueue<ComparedOutputs>>,
        candidates: Vec<Arc<MappingTable>>,
        counters: Arc<ShadowCounters>,
        first_target: usize,
    ) -> Self {
        let (comparer, protocols) = (Comparer::new(&settings.shadow.compare), Protocols::new(&settings.protocol));
        let max_request = usize::try_from(settings.shadow.compare.max_decoded.get()).unwrap_or(usize::MAX);
        Self { comparer, protocols, accounts, results, candidates, counters, first_target, max_request }
    }

    /// Compares pairs until the senders are gone.
    pub(crate) fn run(self, pairs: &Receiver<ComparePair>) {
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
        let CopyHead { method, path, headers, pair: number, cause, .. } = &*pair.head;
        let route = fold_route(method.as_str(), path.path()).name;
        let is_grpc = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        let spoken = self.protocols.detect(method, path.path());
        let kind = spoken.output_kind(is_grpc);
        let primary = pair.primary.finished();
        let is_proven = primary.proves_names();
        // clients must not fill the accounts with arbitrary paths and models
        let account = if is_proven || self.accounts.lock().has(&route) { &*route } else { "other" };
        let model = if is_proven { self.model(&spoken, pair) } else { String::new() };
        let is_drawn = kind == OutputKind::GeneratedText && may_be_drawn(headers, pair.request.pieces(), self.max_request);
        let of =
            RouteOfPair { route: &route, account, kind, cause: *cause, asked: Asked { model: &model, may_be_drawn: is_drawn } };
        let verdict = if let Some(mappings) = self.candidates.get(pair.target) {
            let of_copy = match pair.copy.reading(&pair.primary, kind) {
                AnswerReading::Protocol(kind) if mappings.is_of_engine() => AnswerReading::SameModel(kind),
                reading => reading,
            };
            let readings = [pair.primary.reading(&pair.copy, kind), of_copy];
            let scales = self.accounts.lock().scales(pair.target, account, *cause, &model);
            let comparison = self.comparer.compare_as(&route, readings, &scales, &primary, &pair.copy.finished());
            self.accounts.lock().record(pair.target, account, *cause, &comparison, pair.trace, of.asked)
        } else {
            self.compare_repeat(&of, pair)
        };
        let ComparePair { target, split_key, .. } = *pair;
        if let Some(lost) = self.results.force_push(ComparedOutputs { pair: *number, target, split_key, verdict })
            && let Some(counters) = self.counters.target(lost.target + self.first_target)
        {
            counters.drop_copy(ShadowDrop::ResultLost);
        }
    }

    /// The model that the request names; empty if it is not known.
    fn model(&self, spoken: &DetectedProtocol, pair: &ComparePair) -> String {
        let Some(mut reader) = self.protocols.open(spoken, &pair.head.headers) else { return String::new() };
        for piece in pair.request.pieces() {
            if !reader.wants_request() {
                break;
            }
            reader.request(piece);
        }
        let mut ledger = Ledger::open(Stamp::default(), 0);
        reader.close(&mut ledger).unwrap_or_default().to_owned()
    }

    /// Compares the upstream's second answer with its first, for each candidate in the way in which that candidate is compared: so
    /// that the noise has the names of the same fields. Returns how the answers compare as they are.
    fn compare_repeat(&self, of: &RouteOfPair<'_>, pair: &ComparePair) -> OutputVerdict {
        let RouteOfPair { route, account, kind, cause, asked } = *of;
        let (first, second) = (pair.primary.finished(), pair.copy.finished());
        let scales = |candidate| self.accounts.lock().scales(candidate, account, cause, asked.model);
        let compared = |reading: AnswerReading<'_>, scales: &FieldScales| {
            self.comparer.compare_as(route, [reading; 2], scales, &first, &second)
        };
        let plain = compared(AnswerReading::Protocol(kind), &scales(0));
        for (candidate, mappings) in self.candidates.iter().enumerate() {
            let mapped = |mapping: &Arc<RequestMapping>| compared(AnswerReading::Mapped(mapping.outputs()), &scales(candidate));
            let mapped = mappings.of(route).map(mapped);
            let comparison = mapped.as_ref().unwrap_or(&plain);
            self.accounts.lock().record_repeat(candidate, account, cause, comparison, pair.trace, asked);
        }
        OutputVerdict::of_repeat(&plain)
    }
}

/// What a pair is compared by.
#[derive(Clone, Copy)]
struct RouteOfPair<'p> {
    route: &'p str,
    /// The name of its account.
    account: &'p str,
    kind: OutputKind,
    cause: CopyCause,
    asked: Asked<'p>,
}

impl AnswerSide {
    /// The answer to a request as it was copied.
    pub(crate) const fn of_upstream(status: StatusCode, headers: HeaderMap, body: Arc<CapturedBody>) -> Self {
        Self { status, headers, body, mapping: None }
    }

    /// How it is decoded where it is compared with `other`. A request that was mapped is a call of the Open Inference Protocol, of whose
    /// tensors the values are made that the other side has where the mapping says.
    fn reading<'a>(&'a self, other: &'a Self, kind: OutputKind) -> AnswerReading<'a> {
        match (&self.mapping, &other.mapping) {
            (Some(own), _) => AnswerReading::Model(own.mapping.outputs(), &own.token_counts),
            (None, Some(other)) => AnswerReading::Mapped(other.mapping.outputs()),
            (None, None) => AnswerReading::Protocol(kind),
        }
    }

    fn finished(&self) -> FinishedAnswer<'_> {
        FinishedAnswer {
            status: self.status.as_u16(),
            headers: &self.headers,
            grpc_status: self.body.grpc_status(&self.headers),
            body: self.body.pieces(),
            is_complete: true,
        }
    }
}
