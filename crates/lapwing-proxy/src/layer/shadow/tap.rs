//! The tap: decides by a request's head whether it is copied, and hands the copy over through a bounded queue.
//!
//! It allocates what a head needs, never more for a larger body. Nothing here wakes the thread that takes the copies: a wake
//! would cost the request a system call, so that thread looks into the queue by itself, and polls the bodies' copies without
//! leaving a waker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::uri::PathAndQuery;
use http::{Request, Response};
use tokio::sync::oneshot;

use super::candidate::Candidate;
use super::job::{PrimaryAnswer, ShadowJob};
use super::parts::{TapBranch, TapParts};
use super::recording::RecordingSwitch;
use crate::body::capture::CaptureBudget;
use crate::body::{RequestBody, ResponseBody, TrackedRequest};
use crate::in_flight::InFlight;
use lapwing_ledger::{CopyCause, Ledger, PairId, Stamp};
use lapwing_protocol::Protocols;
use lapwing_shadow::ShadowDrop;

/// The numbers of copied requests, for all taps of a process.
#[derive(Debug, Default)]
pub struct PairNumbers(AtomicU64);

impl PairNumbers {
    fn next(&self) -> Option<PairId> {
        PairId::new(self.0.fetch_add(1, Relaxed).wrapping_add(1))
    }
}

/// Copies sampled requests: for shadow targets, and for a recording while one runs.
pub struct ShadowTap {
    /// The copies for shadow targets, if there are any.
    pub shadow: Option<TapBranch>,
    /// The copies for a recording, while one runs.
    pub recording: Arc<RecordingSwitch>,
    /// What a request and its copies are numbered by.
    pub numbers: Arc<PairNumbers>,
    /// The routes, which say what is a request of inference.
    pub protocols: Arc<Protocols>,
}

impl std::fmt::Debug for ShadowTap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShadowTap").finish_non_exhaustive()
    }
}

impl ShadowTap {
    /// Copies the request for each purpose that wants it and has room. Returns where its answer is awaited.
    pub(crate) fn copy(&self, tracked: &mut TrackedRequest) -> Option<AwaitedAnswers> {
        let TrackedRequest { request, in_flight } = tracked;
        let shadow = self.shadow.as_ref().and_then(|branch| Some((branch, branch.selects(&self.protocols, request)?)));
        let recording = self.recording.load().filter(|branch| branch.selects(&self.protocols, request).is_some());
        if shadow.is_none() && recording.is_none() {
            return None;
        }
        let mut candidate = None;
        let answers = in_flight.write_ledger(|ledger| {
            let shadow = match shadow {
                Some((branch, CopyCause::Share)) => self.hand_over(&branch.parts, request, in_flight, ledger).inspect(|_| {
                    ledger.copied = Some(CopyCause::Share);
                }),
                Some((branch, CopyCause::Quota)) => {
                    self.capture_candidate(branch, request, in_flight, ledger).map(|(job, answer)| {
                        candidate = Some(job);
                        answer
                    })
                }
                None => None,
            };
            let recording = recording.and_then(|branch| self.hand_over(&branch.parts, request, in_flight, ledger));
            ledger.is_recorded |= recording.is_some();
            AwaitedAnswers { shadow, recording }
        })?;
        if let Some(candidate) = candidate {
            in_flight.set_on_close(candidate);
        }
        (answers.shadow.is_some() || answers.recording.is_some()).then_some(answers)
    }

    /// Hands a copy of the request over.
    fn hand_over(
        &self,
        parts: &TapParts,
        request: &mut Request<RequestBody>,
        in_flight: &Arc<InFlight>,
        ledger: &mut Ledger,
    ) -> Option<AwaitedAnswer> {
        let pair = ledger.pair.or_else(|| self.numbers.next())?;
        let (job, answer) = captured(request, in_flight, (pair, ledger.started), CopyCause::Share, &parts.budget);
        if parts.queue.push(job).is_err() {
            parts.counters.drop_sampled(ShadowDrop::QueueFull);
            return None;
        }
        ledger.pair = Some(pair);
        Some(answer)
    }

    /// Captures the request if its route has a quota.
    fn capture_candidate(
        &self,
        branch: &TapBranch,
        request: &mut Request<RequestBody>,
        in_flight: &Arc<InFlight>,
        ledger: &Ledger,
    ) -> Option<(Box<Candidate>, AwaitedAnswer)> {
        let quota = branch.quota(&self.protocols, request, ledger.series.route)?;
        let pair = ledger.pair.or_else(|| self.numbers.next())?;
        let parts = branch.parts.clone();
        let (job, answer) = captured(request, in_flight, (pair, ledger.started), CopyCause::Quota, &parts.candidates);
        Some((Box::new(Candidate { job, quota, parts }), answer))
    }
}

/// Captures a request that began at `arrived` and has the number `pair`, within `budget`; and where its answer is captured.
fn captured(
    request: &mut Request<RequestBody>,
    in_flight: &Arc<InFlight>,
    (pair, arrived): (PairId, Stamp),
    cause: CopyCause,
    budget: &Arc<CaptureBudget>,
) -> (ShadowJob, AwaitedAnswer) {
    let (sender, answer) = oneshot::channel();
    let job = ShadowJob {
        pair,
        cause,
        arrived,
        method: request.method().clone(),
        path: request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")),
        version: request.version(),
        headers: request.headers().clone(),
        body: request.body_mut().capture(budget),
        answer,
    };
    (job, AwaitedAnswer { sender, budget: budget.clone(), in_flight: in_flight.clone() })
}

/// The answer to a request that was copied.
#[derive(Debug)]
pub(crate) struct AwaitedAnswers {
    shadow: Option<AwaitedAnswer>,
    recording: Option<AwaitedAnswer>,
}

impl AwaitedAnswers {
    /// Copies the body of `response` while it passes, for each purpose.
    pub(crate) fn attach(self, response: Response<ResponseBody>) -> Response<ResponseBody> {
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
        let trace = self.in_flight.read_ledger(|ledger| ledger.trace).unwrap_or_default();
        let answer = PrimaryAnswer { trace, status: response.status(), headers: response.headers().clone(), body };
        drop(self.sender.send(answer)); // the copy may have been given up
        response
    }
}
