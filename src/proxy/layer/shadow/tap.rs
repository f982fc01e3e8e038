//! The tap: decides by a request's head whether it is copied, and hands the copy over through a bounded queue.
//!
//! It allocates what a head needs, never more for a larger body. Nothing here wakes the thread that takes the copies: a wake
//! would cost the request a system call, so that thread looks into the queue by itself, and polls the bodies' copies without
//! leaving a waker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_queue::ArrayQueue;
use http::Response;
use http::uri::PathAndQuery;
use tokio::sync::oneshot;

use super::job::{PrimaryAnswer, ShadowJob};
use super::recording::RecordingSwitch;
use crate::ledger::PairId;
use crate::protocol::Protocols;
use crate::proxy;
use crate::proxy::body::ResponseBody;
use crate::proxy::body::capture::{CaptureBudget, CaptureLimits};
use crate::proxy::exchange::{InFlight, TrackedRequest};
use crate::settings::Size;
use crate::shadow::{Config, Sampler, ShadowCounters, ShadowDrop};

/// Where copies of one purpose go, and what became of them.
#[derive(Debug)]
pub(crate) struct TapParts {
    pub(crate) queue: ArrayQueue<ShadowJob>,
    pub(crate) budget: Arc<CaptureBudget>,
    pub(crate) counters: Arc<ShadowCounters>,
}

impl TapParts {
    /// The parts for so many targets, with the budget of `config`. Up to `waiting` copies (at least 1) wait to be taken.
    pub(crate) fn new(config: &Config, proxy: &proxy::Config, targets: usize, waiting: usize) -> Arc<Self> {
        let bytes = |size: Size| usize::try_from(size.get()).unwrap_or(usize::MAX);
        let limits =
            CaptureLimits { total: bytes(config.budget), body: bytes(config.max_body), read_buffer: proxy.max_read_buffer() };
        Arc::new(Self {
            queue: ArrayQueue::new(waiting.max(1)),
            budget: CaptureBudget::new(limits),
            counters: Arc::new(ShadowCounters::new(targets)),
        })
    }
}

/// One purpose of copies: which requests it wants, and where they go.
#[derive(Debug)]
pub(crate) struct TapBranch {
    pub(crate) parts: Arc<TapParts>,
    pub(crate) sampler: Sampler,
}

/// The numbers of copied requests, for all taps of a process.
#[derive(Debug, Default)]
pub(crate) struct PairNumbers(AtomicU64);

impl PairNumbers {
    fn next(&self) -> Option<PairId> {
        PairId::new(self.0.fetch_add(1, Relaxed).wrapping_add(1))
    }
}

/// Copies sampled requests: for shadow targets, and for a recording while one runs.
pub struct ShadowTap {
    pub(crate) shadow: Option<TapBranch>,
    pub(crate) recording: Arc<RecordingSwitch>,
    pub(crate) numbers: Arc<PairNumbers>,
    pub(crate) protocols: Arc<Protocols>,
}

impl std::fmt::Debug for ShadowTap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShadowTap").finish_non_exhaustive()
    }
}

impl ShadowTap {
    /// A tap for measuring the request path alone: up to `waiting` copies (at least 1) are handed over, and nothing takes them but
    /// [`Self::discard_one`].
    #[must_use]
    pub fn detached(config: &Config, protocols: Arc<Protocols>, waiting: usize) -> Self {
        let parts = TapParts::new(config, &proxy::Config::default(), 0, waiting);
        let shadow = Some(TapBranch { parts, sampler: Sampler::new(config) });
        Self { shadow, recording: Arc::default(), numbers: Arc::default(), protocols }
    }

    /// Takes the oldest copy that was handed over, and drops it. Returns whether there was one.
    #[must_use]
    pub fn discard_one(&self) -> bool {
        self.shadow.as_ref().is_some_and(|tapping| tapping.parts.queue.pop().is_some())
    }

    /// Copies the request for each purpose that samples it and has room. Returns where its answer is awaited.
    pub(super) fn copy(&self, tracked: &mut TrackedRequest) -> Option<AwaitedAnswers> {
        let shadow = self.shadow.as_ref().and_then(|branch| self.copy_for(branch, tracked));
        let recording = self.recording.load().and_then(|branch| self.copy_for(&branch, tracked));
        if shadow.is_none() && recording.is_none() {
            return None;
        }
        tracked.in_flight.with(|ledger| {
            ledger.has_copies |= shadow.is_some();
            ledger.is_recorded |= recording.is_some();
        });
        Some(AwaitedAnswers { shadow, recording })
    }

    fn copy_for(&self, branch: &TapBranch, tracked: &mut TrackedRequest) -> Option<AwaitedAnswer> {
        let TrackedRequest { request, in_flight } = tracked;
        if !branch.sampler.takes(&self.protocols, request.method(), request.uri().path(), request.headers()) {
            return None;
        }
        let parts = &*branch.parts;
        if parts.queue.is_full() {
            parts.counters.drop_sampled(ShadowDrop::QueueFull);
            return None;
        }
        let (known, arrived) = in_flight.with(|ledger| (ledger.pair, ledger.started));
        let pair = known.or_else(|| self.numbers.next())?;
        let (sender, answer) = oneshot::channel();
        let job = ShadowJob {
            pair,
            arrived,
            method: request.method().clone(),
            path: request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")),
            version: request.version(),
            headers: request.headers().clone(),
            body: request.body_mut().capture(&parts.budget),
            answer,
        };
        if parts.queue.push(job).is_err() {
            parts.counters.drop_sampled(ShadowDrop::QueueFull);
            return None;
        }
        in_flight.with(|ledger| ledger.pair = Some(pair));
        Some(AwaitedAnswer { sender, budget: parts.budget.clone(), in_flight: in_flight.clone() })
    }
}

/// The answer to a request that was copied.
#[derive(Debug)]
pub(super) struct AwaitedAnswers {
    shadow: Option<AwaitedAnswer>,
    recording: Option<AwaitedAnswer>,
}

impl AwaitedAnswers {
    /// Copies the body of `response` while it passes, for each purpose.
    pub(super) fn attach(self, response: Response<ResponseBody>) -> Response<ResponseBody> {
        [self.shadow, self.recording].into_iter().flatten().fold(response, |response, awaited| awaited.attach(response))
    }
}

/// An answer that is on its way to who compares.
#[derive(Debug)]
struct AwaitedAnswer {
    sender: oneshot::Sender<PrimaryAnswer>,
    budget: Arc<CaptureBudget>,
    in_flight: Arc<InFlight>,
}

impl AwaitedAnswer {
    fn attach(self, mut response: Response<ResponseBody>) -> Response<ResponseBody> {
        let body = response.body_mut().capture(&self.budget);
        let trace = self.in_flight.with(|ledger| ledger.trace);
        let answer = PrimaryAnswer { trace, status: response.status(), headers: response.headers().clone(), body };
        drop(self.sender.send(answer)); // the copy may have been given up
        response
    }
}
