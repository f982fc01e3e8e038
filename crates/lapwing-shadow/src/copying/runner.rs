//! Takes copied requests from the tap's queue, waits until they are complete, and sends them to the targets.
//!
//! It looks into the queue every millisecond while requests come, and every 20 ms otherwise. Nothing of the data plane wakes it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::join_all;
use http::header::CONTENT_ENCODING;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::compare::{AnswerSide, ComparePair, ComparisonSender};
use super::copy_request::CopyHead;
use super::target::CopyTarget;
use crate::config::CopyOrder;
use crate::counters::ShadowDrop;
use crate::kept::CopiedParts;
use crate::repeatable::{AnsweredExchange, JudgedRequest, Repeatable, Standing};
use crate::tap::{ShadowJob, TapParts};
use lapwing_ledger::{Stamp, TraceId};
use lapwing_net::Tasks;
use lapwing_proxy::{AnsweredBy, CapturedAnswer, CapturedBody, CapturedExchange, Incomplete};
use lapwing_settings::Period;

/// The limit of the stacks and clients that carry copies: longer than any copy may take.
pub(crate) const MAX_COPY_TIMEOUT: Period = Period::from_secs(7 * 24 * 3600);
/// How often the queue is read while requests come.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// How often it is read otherwise.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// After so many polls without a request nothing is expected soon.
const IDLE_AFTER_POLLS: u32 = 200;
/// How long a recognised exchange waits for its route to be learnt, in nanoseconds: less than its account waits for that of a copy.
const LEARNING_NS: u64 = 4_000_000_000;

/// What the tasks of the thread share.
pub(crate) struct Runner {
    pub(crate) parts: Arc<TapParts>,
    pub(crate) targets: Vec<CopyTarget>,
    pub(crate) copied: CopiedParts,
    pub(crate) repeatable: Arc<Repeatable>,
    pub(crate) order: CopyOrder,
    pub(crate) max_waiting: usize,
    /// How long copies may take.
    pub(crate) timeout: CopyTimeout,
    /// The share of sampled requests that go to the upstream again.
    pub(crate) noise: f64,
    pub(crate) comparing: ComparisonSender,
    /// Notified at each poll.
    pub(crate) polls: Notify,
    pub(crate) waiting: AtomicUsize,
}

impl Runner {
    /// Runs until `stop`; copies in flight are dropped then.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let tasks = Tasks::default();
        let mut quiet = 0_u32;
        loop {
            let is_idle = quiet > IDLE_AFTER_POLLS && self.waiting.load(Relaxed) == 0;
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(if is_idle { IDLE_POLL_INTERVAL } else { POLL_INTERVAL }) => {}
            }
            quiet = quiet.saturating_add(1);
            self.parts.pause(self.is_useless(Stamp::now()));
            self.repeatable.log_refused_heads(&self.parts.counters);
            // those that wait first, so that their room is free for new ones
            self.polls.notify_waiters();
            while let Some(job) = self.parts.queue.pop() {
                quiet = 0;
                self.parts.counters.sampled.fetch_add(1, Relaxed);
                if self.waiting.load(Relaxed) >= self.max_waiting {
                    self.parts.counters.drop_sampled(ShadowDrop::Waiting);
                    continue;
                }
                let waiting = WaitingPlace::take(self.clone());
                tasks.spawn(async move { waiting.0.clone().send_copies(job).await });
            }
        }
    }

    /// Whether a copy would reach no target. The upstream asked again serves the others' comparison alone.
    fn is_useless(&self, now: Stamp) -> bool {
        self.targets.iter().filter(|target| !target.source.is_repeat()).all(|target| target.is_left_alone(now))
    }

    /// Carries one sampled request to the targets, and counts it if it may not be, or cannot.
    async fn send_copies(self: Arc<Self>, job: ShadowJob) {
        if let Err(reason) = self.try_send_copies(job).await {
            self.parts.counters.drop_sampled(reason);
        }
    }

    /// Carries one sampled request to the targets, if it may be repeated, and hands both answers to the comparing thread.
    async fn try_send_copies(&self, job: ShadowJob) -> Result<(), ShadowDrop> {
        let head = Arc::new(CopyHead::new(&job, &self.copied));
        let CapturedExchange { method, path, headers, body, answer, arrived, .. } = job.exchange;
        let (tell_primary, primary_took) = watch::channel(None);
        let body = self.without_waker(body).await.map_err(ShadowDrop::from)?;
        let body = Arc::new(body.map_trailers(|trailers| self.copied.headers.of(trailers)));
        let (request, secret) = self.judge(method, path, headers, body.clone()).await?;
        let answered = async {
            let tell_primary = tell_primary; // dropped with the last word of the upstream
            let CapturedAnswer { trace, answered_by, status, headers, body } =
                self.without_waker(answer).await.map_err(|_| ShadowDrop::Cut)?;
            let body = self.without_waker(body).await.map(Arc::new);
            let took = Duration::from_nanos(arrived.elapsed());
            tell_primary.send_replace(Some(took));
            Ok::<Primary, ShadowDrop>(Primary { trace, answered_by, status, headers, body })
        };
        let (primary, copies) = match self.order {
            CopyOrder::After => {
                let primary = answered.await?;
                let standing = self.learn(&request, &primary).await?;
                secret?;
                self.await_learnt(&request, standing).await?;
                let answered_by = primary.answered_by;
                (primary, self.send_to_targets(&head, &body, answered_by, &primary_took).await?)
            }
            CopyOrder::Concurrent => {
                let may_send = self.repeatable.before_answer(&request).and(secret);
                let (primary, copies) = match may_send {
                    Ok(()) => tokio::join!(answered, self.send_to_targets(&head, &body, None, &primary_took)),
                    Err(_) => (answered.await, Ok(Vec::new())),
                };
                let (primary, copies) = (primary?, copies?);
                // for the requests that come after it
                let _ = self.learn(&request, &primary).await;
                may_send?;
                (primary, copies)
            }
        };
        let Primary { trace, answered_by, status, headers, body: answer } = primary;
        let primary = AnswerSide::of_upstream(status, headers, answer.map_err(ShadowDrop::from)?);
        for (target, copy) in copies {
            if let Some(copy) = copy {
                let (head, request, primary) = (head.clone(), body.clone(), primary.clone());
                let split_key = answered_by.and_then(|by| by.split_key).filter(|_| target.source.is_of_split());
                let pair = ComparePair { head, request, target: target.index, split_key, trace, primary, copy };
                if !self.comparing.compare(pair)
                    && let Some(counters) = self.parts.counters.target(target.index)
                {
                    counters.drop_copy(ShadowDrop::CompareFull);
                }
            }
        }
        Ok(())
    }

    /// Sends a copy to each target that gets copies of what `answered_by` answered, if that is known by now.
    async fn send_to_targets<'r>(
        &'r self,
        head: &Arc<CopyHead>,
        body: &Arc<CapturedBody>,
        answered_by: Option<AnsweredBy>,
        primary_took: &watch::Receiver<Option<Duration>>,
    ) -> Result<Vec<(&'r CopyTarget, Option<AnswerSide>)>, ShadowDrop> {
        let again = self.noise > 0.0 && rand::random::<f64>() < self.noise;
        let is_chosen = |target: &&CopyTarget| (again || !target.source.is_repeat()) && target.source.takes(answered_by);
        let chosen: Vec<_> = self.targets.iter().filter(is_chosen).collect();
        if chosen.is_empty() {
            return Err(ShadowDrop::NoTarget);
        }
        let sent = chosen.into_iter().map(async |target: &'r CopyTarget| {
            let timeout = self.timeout.elapsed(primary_took.clone());
            (target, target.send(head, body, &self.parts, timeout).await)
        });
        Ok(join_all(sent).await)
    }

    /// Judges a whole request: whether it is a call of a model, and whether its body has a secret, which no copy may have.
    async fn judge(
        &self,
        method: Method,
        path: PathAndQuery,
        headers: HeaderMap,
        body: Arc<CapturedBody>,
    ) -> Result<(JudgedRequest, Result<(), ShadowDrop>), ShadowDrop> {
        let (repeatable, secrets) = (self.repeatable.clone(), self.copied.secrets.clone());
        let takes_long = body.is_large() || headers.contains_key(CONTENT_ENCODING);
        run_aside(takes_long, move || {
            let request = repeatable.request(&method, path.path(), &headers, body.pieces());
            let has_secret = secrets.are_in(&headers, body.pieces()).unwrap_or(true);
            (request, if has_secret { Err(ShadowDrop::Secret) } else { Ok(()) })
        })
        .await
    }

    /// Learns from the upstream's answer. Returns whether the exchange may be repeated now, or once its route is learnt.
    async fn learn(&self, request: &JudgedRequest, primary: &Primary) -> Result<Standing, ShadowDrop> {
        let Primary { status, headers, body: Ok(body), .. } = primary else {
            return self.repeatable.before_answer(request).map(|()| Standing::Repeatable);
        };
        let (repeatable, request) = (self.repeatable.clone(), request.clone());
        let (status, headers, body) = (*status, headers.clone(), body.clone());
        run_aside(body.is_large() || headers.contains_key(CONTENT_ENCODING), move || {
            let answer = AnsweredExchange { status, headers: &headers, trailers: body.trailers(), body: body.pieces() };
            repeatable.answered(&request, &answer)
        })
        .await?
    }

    /// Waits until the route of an exchange is learnt.
    async fn await_learnt(&self, request: &JudgedRequest, standing: Standing) -> Result<(), ShadowDrop> {
        let Standing::Learning(restarts) = standing else { return Ok(()) };
        let since = Stamp::now();
        loop {
            let poll = self.polls.notified();
            match self.repeatable.standing(request, restarts)? {
                Standing::Repeatable => return Ok(()),
                Standing::Learning(_) if since.elapsed() > LEARNING_NS => return Err(ShadowDrop::Learning),
                Standing::Learning(_) => poll.await,
            }
        }
    }

    /// Awaits what the data plane completes without leaving it a waker: `future` is polled when the queue is.
    async fn without_waker<F: Future + Unpin>(&self, mut future: F) -> F::Output {
        loop {
            let poll = self.polls.notified();
            if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
                return output;
            }
            poll.await;
        }
    }
}

/// The upstream's answer.
struct Primary {
    trace: TraceId,
    answered_by: Option<AnsweredBy>,
    status: StatusCode,
    headers: HeaderMap,
    body: Result<Arc<CapturedBody>, Incomplete>,
}

/// Does `work`, on a thread for long work if it takes long: what copies measure must not wait for it.
async fn run_aside<T: Send + 'static>(takes_long: bool, work: impl FnOnce() -> T + Send + 'static) -> Result<T, ShadowDrop> {
    if !takes_long {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "looking at a copied request panicked; this is a fault of Lapwing");
        ShadowDrop::NotRecognised
    })
}

/// The place of a sampled request among those that wait.
struct WaitingPlace(Arc<Runner>);

impl WaitingPlace {
    fn take(runner: Arc<Runner>) -> Self {
        runner.waiting.fetch_add(1, Relaxed);
        Self(runner)
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

/// How long a copy may take: a fixed time, or a multiple of what the upstream took for the same request, whichever is longer. So a target
/// that is as slow as the upstream has not failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyTimeout {
    /// At least.
    pub(crate) floor: Duration,
    /// So many times the upstream's time, if that is longer.
    pub(crate) factor: u32,
}

impl CopyTimeout {
    /// How long a copy may take of a request for which the upstream took `primary`.
    fn limit(self, primary: Duration) -> Duration {
        self.floor.max(primary.saturating_mul(self.factor))
    }

    /// Waits until a copy that is sent now has taken too long. `primary` says how long the upstream took, as soon as it is known; while it is
    /// not, there is no limit. An upstream that gave no answer sets none.
    pub(crate) async fn elapsed(self, mut primary: watch::Receiver<Option<Duration>>) {
        let began = Stamp::now();
        let took = primary.wait_for(Option::is_some).await.ok().and_then(|took| *took).unwrap_or_default();
        let gone = Duration::from_nanos(began.elapsed());
        tokio::time::sleep(self.limit(took).saturating_sub(gone)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: CopyTimeout = CopyTimeout { floor: Duration::from_millis(20), factor: 3 };

    #[test]
    fn the_upstreams_own_time_lengthens_the_limit_and_never_shortens_it() {
        for (primary_ms, limit_ms) in [(0, 20), (6, 20), (7, 21), (40_000, 120_000)] {
            assert_eq!(TIMEOUT.limit(Duration::from_millis(primary_ms)), Duration::from_millis(limit_ms));
        }
        assert_eq!(TIMEOUT.limit(Duration::MAX), Duration::MAX);
    }

    #[tokio::test]
    async fn a_copy_waits_at_least_as_long_as_the_upstream_takes() {
        let (tell, primary) = watch::channel(None);
        let began = Stamp::now();
        let upstream = async {
            tokio::time::sleep(Duration::from_millis(60)).await;
            tell.send(Some(Duration::from_millis(60))).unwrap();
        };
        tokio::join!(upstream, TIMEOUT.elapsed(primary));
        assert!(began.elapsed() >= 170_000_000, "{} ns", began.elapsed());
        let (tell, primary) = watch::channel(None);
        drop(tell);
        TIMEOUT.elapsed(primary).await; // the upstream gave no answer
    }
}
