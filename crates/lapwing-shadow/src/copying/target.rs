//! One target: sends copies to it through a separate stack, so that they get ledgers like clients' requests; and leaves it alone for a
//! while when it fails repeatedly.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use http_body::Body;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::compare::AnswerSide;
use super::copy_request::{CopyHead, CopyRequest, RequestPreparer};
use crate::config::Config;
use crate::counters::{ShadowDrop, TargetCounters};
use crate::mapping::MappingTable;
use crate::tap::TapParts;
use lapwing_ledger::{LabelId, Stamp};
use lapwing_net::{Client, ClientLimits, LocalAddress, Target};
use lapwing_proxy::{AnsweredBy, CaptureBudget, CapturedBody, ERROR_FIELD, Incomplete, ReplayBody, capture_whole};

/// How long a copy waits for its turn at a target before it is dropped.
const MAX_TURN_WAIT: Duration = Duration::from_secs(1);
/// How many failures in a row open the circuit.
const MAX_FAILURES: u32 = 5;
/// How long it stays open; then one copy tries the target.
const OPEN_NS: u64 = 10_000_000_000;

/// Which copied requests a target gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopySource {
    /// Every one.
    All,
    /// A share of those that the target answered itself: it is asked a second time. It has this label if it is one of several upstreams.
    Repeat(Option<LabelId>),
    /// Those that a live split placed with its baseline; the target is the candidate, which has this label.
    OfBaseline {
        /// The candidate's label.
        candidate: LabelId,
    },
    /// Those that it placed with its candidate, which has this label; the target is the baseline.
    OfCandidate(LabelId),
}

impl CopySource {
    /// Whether the target is the upstream itself.
    pub(crate) const fn is_repeat(self) -> bool {
        matches!(self, Self::Repeat(_))
    }

    /// Whether the target is a side of a live split.
    pub(crate) const fn is_of_split(self) -> bool {
        matches!(self, Self::OfBaseline { .. } | Self::OfCandidate(_))
    }

    /// Whether a request that `upstream` answered, if it is known by now, goes to the target.
    pub(crate) fn takes(self, answered_by: Option<AnsweredBy>) -> bool {
        let of = |is_one: fn(LabelId, LabelId) -> bool, label| answered_by.is_some_and(|by| is_one(by.upstream, label));
        let is_placed = answered_by.is_some_and(|by| by.split_key.is_some());
        match self {
            Self::All => true,
            Self::Repeat(label) => label.is_none_or(|label| of(|by, label| by == label, label)),
            Self::OfCandidate(label) => is_placed && of(|by, label| by == label, label),
            Self::OfBaseline { candidate } => is_placed && of(|by, label| by != label, candidate),
        }
    }
}

/// What became of a request that was sent to a target.
pub(crate) enum SendOutcome {
    /// It was answered in full.
    Answered(AnswerSide),
    /// It was answered in full; the budget has no room to keep it.
    Unkept,
    /// The answer is larger than one may be, and was cut off.
    TooLarge,
    /// It got no answer, or none in time.
    Unanswered,
}

impl SendOutcome {
    /// Whether it was answered in full. A target that floods was not, so that the circuit breaker leaves it alone.
    const fn is_answered(&self) -> bool {
        matches!(self, Self::Answered(_) | Self::Unkept)
    }

    /// Counts what became of the request. Returns the answer, if there is one to compare.
    pub(crate) fn counted(self, counters: &TargetCounters) -> Option<AnswerSide> {
        if self.is_answered() { &counters.answered } else { &counters.failed }.fetch_add(1, Relaxed);
        let dropped = match self {
            Self::Answered(answer) => return Some(answer),
            Self::Unanswered => return None,
            Self::Unkept => ShadowDrop::BudgetSpent,
            Self::TooLarge => ShadowDrop::AnswerTooLarge,
        };
        counters.drop_copy(dropped);
        None
    }
}

/// A target of copies.
pub(crate) struct CopyTarget {
    pub(crate) name: String,
    /// Its place among the targets.
    pub(crate) index: usize,
    /// Which requests it gets copies of.
    pub(crate) source: CopySource,
    h1: Client<ReplayBody>,
    h2: Client<ReplayBody>,
    permits: Semaphore,
    /// Whether the last copy did not get its turn.
    is_overrun: AtomicBool,
    breaker: CircuitBreaker,
    preparer: Arc<RequestPreparer>,
}

impl CopyTarget {
    /// Sends to the stack at `address`.
    pub(crate) fn new(
        name: String,
        index: usize,
        source: CopySource,
        address: &LocalAddress,
        config: &Config,
        mappings: Arc<MappingTable>,
    ) -> Self {
        let limits = ClientLimits {
            connect_timeout: Duration::from_secs(1),
            // the stack's own limits come first, because they tell what happened
            timeout: config.timeout.get() + Duration::from_secs(1),
            max_body: usize::try_from(config.max_body.get()).unwrap_or(usize::MAX).saturating_add(1),
            idle_timeout: Duration::from_secs(90),
            max_idle: config.concurrency,
            keep_alive: None,
        };
        let target = Target::Local(address.clone());
        Self {
            preparer: Arc::new(RequestPreparer::new(name.clone(), mappings)),
            name,
            index,
            source,
            h1: Client::new(target.clone(), limits),
            h2: Client::http2(target, limits),
            permits: Semaphore::new(config.concurrency),
            is_overrun: AtomicBool::new(false),
            breaker: CircuitBreaker::default(),
        }
    }

    /// Waits for the copy's turn: a burst may be longer than the target can take at once. `None` if it takes too long. Then further
    /// copies do not wait until there is room again, so that a slow target does not make all keep their memory for nothing.
    async fn acquire(&self) -> Option<SemaphorePermit<'_>> {
        let permit = match self.permits.try_acquire() {
            Ok(permit) => Some(permit),
            Err(_) if self.is_overrun.load(Relaxed) => None,
            Err(_) => tokio::time::timeout(MAX_TURN_WAIT, self.permits.acquire()).await.ok().and_then(Result::ok),
        };
        self.is_overrun.store(permit.is_none(), Relaxed);
        permit
    }

    /// Whether it is left alone `now`, so that no copy would be sent.
    pub(crate) fn is_left_alone(&self, now: Stamp) -> bool {
        self.breaker.is_open(now)
    }

    /// Sends a copy and reads the whole answer, until `timeout` is over. `None` if it was dropped, got no answer, or one that is too large
    /// to keep; each is counted.
    pub(crate) async fn send(
        &self,
        head: &Arc<CopyHead>,
        body: &Arc<CapturedBody>,
        parts: &TapParts,
        timeout: impl Future<Output = ()>,
    ) -> Option<AnswerSide> {
        let counters = parts.counters.target(self.index)?;
        let Some(_permit) = self.acquire().await else {
            counters.drop_copy(ShadowDrop::Busy);
            return None;
        };
        if !self.breaker.allows(Stamp::now()) {
            counters.drop_copy(ShadowDrop::CircuitOpen);
            return None;
        }
        let request = match self.preparer.prepare(head, body, &parts.budget).await {
            Ok(request) => request,
            Err(reason) => {
                counters.drop_copy(reason);
                return None;
            }
        };
        counters.sent.fetch_add(1, Relaxed);
        // a copy that is given up is cancelled for the stack; its account says `timed_out`
        let sent = tokio::select! {
            biased;
            sent = self.exchange(&request, &parts.budget) => sent,
            () = timeout => SendOutcome::Unanswered,
        };
        if let Some(pause) = self.breaker.on_result(sent.is_answered(), Stamp::now()) {
            tracing::warn!(target = self.name, ?pause, "the shadow target fails repeatedly and is left alone");
        }
        sent.counted(counters)
    }

    /// The request that this target gets of a copied one, made on this thread. Counts nothing.
    ///
    /// # Errors
    ///
    /// Why it gets none.
    pub(crate) fn prepare(
        &self,
        head: &Arc<CopyHead>,
        body: &Arc<CapturedBody>,
        budget: &Arc<CaptureBudget>,
    ) -> Result<CopyRequest, ShadowDrop> {
        self.preparer.prepare_here(head, body, budget)
    }

    /// Sends a request at once and reads the whole answer, within `budget`. Counts nothing.
    pub(crate) async fn exchange(&self, request: &CopyRequest, budget: &Arc<CaptureBudget>) -> SendOutcome {
        let client = if request.head.is_h2 { &self.h2 } else { &self.h1 };
        let response = match client.send(request.marked()).await {
            Ok(response) => response,
            Err(error) => {
                tracing::debug!(target = self.name, %error, "a copy got no answer");
                return SendOutcome::Unanswered;
            }
        };
        let (answer, body) = response.into_parts();
        // Lapwing's own response says that the target gave none
        if answer.headers.contains_key(ERROR_FIELD) {
            return SendOutcome::Unanswered;
        }
        let mut body = pin!(body);
        match capture_whole(body.as_mut(), budget).await {
            Ok(body) => SendOutcome::Answered(AnswerSide {
                status: answer.status,
                headers: answer.headers,
                body: Arc::new(body),
                mapping: request.mapping.clone(),
            }),
            Err(Incomplete::TooLarge) => SendOutcome::TooLarge,
            // no fault of the target: the rest is read and not kept, and its latency counts
            Err(Incomplete::BudgetSpent) if read_to_end(body).await => SendOutcome::Unkept,
            Err(Incomplete::BudgetSpent | Incomplete::Aborted) => SendOutcome::Unanswered,
        }
    }
}

/// Reads a body and keeps nothing. Returns whether it came to its end; the client bounds its length and its time.
async fn read_to_end<B: Body>(mut body: Pin<&mut B>) -> bool {
    while let Some(frame) = body.frame().await {
        if frame.is_err() {
            return false;
        }
    }
    true
}

/// A circuit breaker.
#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker(Mutex<BreakerState>);

#[derive(Debug, Default)]
struct BreakerState {
    /// In a row.
    failures: u32,
    /// Until when nothing is sent.
    open_until: Option<Stamp>,
}

impl CircuitBreaker {
    /// Whether a copy may be sent `now`. After a pause the first caller may, and the others wait for what becomes of it.
    pub(crate) fn allows(&self, now: Stamp) -> bool {
        let state = &mut *self.0.lock();
        match state.open_until {
            Some(until) if now < until => false,
            Some(_) => {
                state.open_until = Some(now.plus(OPEN_NS));
                true
            }
            None => true,
        }
    }

    /// Whether nothing would be sent `now`.
    pub(crate) fn is_open(&self, now: Stamp) -> bool {
        self.0.lock().open_until.is_some_and(|until| now < until)
    }

    /// A copy was answered, or was not. Returns for how long nothing is sent if the circuit opens now.
    pub(crate) fn on_result(&self, is_answered: bool, now: Stamp) -> Option<Duration> {
        let state = &mut *self.0.lock();
        if is_answered {
            *state = BreakerState::default();
            return None;
        }
        state.failures = state.failures.saturating_add(1);
        if state.failures < MAX_FAILURES {
            return None;
        }
        let opens = state.failures == MAX_FAILURES;
        state.open_until = Some(now.plus(OPEN_NS));
        opens.then_some(Duration::from_nanos(OPEN_NS))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use lapwing_ledger::LabelTable;

    #[test]
    fn each_target_gets_copies_of_what_it_did_not_answer_itself_but_the_upstream_again() {
        let labels = LabelTable::new(8);
        let [candidate, baseline] = ["c", "b"].map(|name| labels.intern(name));
        let by = |upstream, key| Some(AnsweredBy { upstream, split_key: NonZeroU32::new(key) });
        let cases = [None, by(baseline, 0), by(baseline, 7), by(candidate, 0), by(candidate, 7)];
        let takes = |source: CopySource| cases.map(|by| source.takes(by));
        for (source, expected) in [
            (CopySource::All, [true; 5]),
            (CopySource::Repeat(None), [true; 5]),
            (CopySource::Repeat(Some(baseline)), [false, true, true, false, false]),
            (CopySource::OfBaseline { candidate }, [false, false, true, false, false]),
            (CopySource::OfCandidate(candidate), [false, false, false, false, true]),
        ] {
            assert_eq!(takes(source), expected, "{source:?}");
        }
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_one_copy_tries_again() {
        let (breaker, now) = (CircuitBreaker::default(), Stamp::now());
        for n in 1..MAX_FAILURES {
            assert!(breaker.allows(now) && breaker.on_result(false, now).is_none(), "{n}");
        }
        breaker.on_result(true, now);
        for n in 1..=MAX_FAILURES {
            assert_eq!(breaker.on_result(false, now).is_some(), n == MAX_FAILURES);
        }
        assert!(!breaker.allows(now.plus(OPEN_NS - 1)) && breaker.is_open(now.plus(OPEN_NS - 1)));
        let later = now.plus(OPEN_NS);
        assert!(!breaker.is_open(later), "one may try");
        assert!(breaker.allows(later) && !breaker.allows(later), "one copy only");
        breaker.on_result(true, later);
        assert!(breaker.allows(later) && !breaker.is_open(later));
    }
}
