//! The tap: decides by a request's head whether it is copied, for shadow targets or for a recording (`branch`), and
//! hands the copy over through a bounded queue. What a quota may take is captured too (`candidate`). In the stack that sends the copies
//! it recognises them.
//!
//! It allocates what a head needs, never more for a larger body. Nothing here wakes the thread that takes the copies: a wake
//! would cost the request a system call, so that thread looks into the queue by itself, and polls the bodies' copies without
//! leaving a waker. The request is never delayed, changed or failed: a copy that has no room is dropped and counted.

mod branch;
mod candidate;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use self::candidate::Candidate;
use super::counters::ShadowDrop;
use super::header_names::PAIR_FIELD;
use lapwing_ledger::{CopyCause, Ledger, PairId};
use lapwing_protocol::Protocols;
use lapwing_proxy::{AwaitedAnswer, ExchangeTap, PassingRequest, StackTap};

pub use self::branch::{RecordingSwitch, RunningRecording, ShadowJob, TapBranch, TapParts};

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

impl From<ShadowTap> for StackTap {
    fn from(tap: ShadowTap) -> Self {
        let shadow = tap.shadow.as_ref();
        Self {
            share: shadow.map(|branch| branch.sampler.share().clone()),
            // what the share does not draw, a quota may want
            sees_all: shadow.is_some_and(|branch| !branch.parts.quotas.is_empty()),
            sees_all_now: tap.recording.flag(),
            tap: Arc::new(tap),
        }
    }
}

impl ExchangeTap for ShadowTap {
    /// Copies the request for each purpose that wants it and has room.
    fn on_request(&self, request: &mut PassingRequest<'_>, is_drawn: bool) {
        let wanted = |branch: &TapBranch, is_drawn| branch.selects(&self.protocols, request, is_drawn);
        let shadow = self.shadow.as_ref().and_then(|branch| Some((branch, wanted(branch, is_drawn)?)));
        let is_recorded = |branch: &TapBranch| wanted(branch, branch.sampler.share().draws(request.headers())).is_some();
        let recording = self.recording.load().filter(|branch| is_recorded(branch));
        if shadow.is_none() && recording.is_none() {
            return;
        }
        let candidate = request.with_ledger(|request, ledger| {
            let mut candidate = None;
            match shadow {
                Some((branch, CopyCause::Share)) => {
                    if let Some(answer) = self.hand_over(&branch.parts, request, ledger) {
                        ledger.copied = Some(CopyCause::Share);
                        request.await_answer(answer);
                    }
                }
                Some((branch, CopyCause::Quota)) => {
                    if let Some((captured, answer)) = self.capture_candidate(branch, request, ledger) {
                        candidate = Some(captured);
                        request.await_answer(answer);
                    }
                }
                None => {}
            }
            if let Some(answer) = recording.and_then(|branch| self.hand_over(&branch.parts, request, ledger)) {
                ledger.is_recorded = true;
                request.await_answer(answer);
            }
            candidate
        });
        if let Some(candidate) = candidate.flatten() {
            request.add_on_close(candidate);
        }
    }
}

impl ShadowTap {
    /// Hands a copy of the request over.
    fn hand_over(&self, parts: &TapParts, request: &mut PassingRequest<'_>, ledger: &mut Ledger) -> Option<AwaitedAnswer> {
        let pair = ledger.pair.or_else(|| self.numbers.next())?;
        let (exchange, answer) = request.capture(ledger.started, &parts.budget);
        if parts.queue.push(ShadowJob { pair, cause: CopyCause::Share, exchange }).is_err() {
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
        request: &mut PassingRequest<'_>,
        ledger: &Ledger,
    ) -> Option<(Box<Candidate>, AwaitedAnswer)> {
        let quota = branch.quota(&self.protocols, request, ledger.series.route)?;
        let pair = ledger.pair.or_else(|| self.numbers.next())?;
        let parts = branch.parts.clone();
        let (exchange, answer) = request.capture(ledger.started, &parts.candidates);
        let job = ShadowJob { pair, cause: CopyCause::Quota, exchange };
        Some((Box::new(Candidate { job, quota, parts }), answer))
    }
}

/// Recognises copies in the stack that sends them, and writes the pair's number into their ledgers.
#[derive(Clone, Copy, Debug)]
pub struct CopyRecognition;

impl From<CopyRecognition> for StackTap {
    fn from(tap: CopyRecognition) -> Self {
        Self { tap: Arc::new(tap), share: None, sees_all: true, sees_all_now: Arc::default() }
    }
}

impl ExchangeTap for CopyRecognition {
    fn on_request(&self, request: &mut PassingRequest<'_>, _: bool) {
        let number = request.headers_mut().remove(&PAIR_FIELD);
        let number = number.and_then(|value| value.to_str().ok()?.parse().ok()).and_then(PairId::new);
        request.with_ledger(|_, ledger| (ledger.is_copy, ledger.pair) = (true, number));
    }
}
