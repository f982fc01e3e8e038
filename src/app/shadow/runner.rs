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

use super::compare::{AnswerSide, ComparePair, Comparing};
use super::copy::{CopiedParts, Head, reason};
use super::patience::Patience;
use super::target::CopyTarget;
use lapwing_ledger::{Stamp, TraceId};
use lapwing_net::Tasks;
use lapwing_proxy::{CapturedBody, Incomplete, PrimaryAnswer, ShadowJob, TapParts};
use lapwing_shadow::{AnsweredExchange, CopyOrder, JudgedRequest, Repeatable, ShadowDrop, Standing};

/// How often the queue is read while requests come.
const LOOK: Duration = Duration::from_millis(1);
/// How often it is read otherwise.
const IDLE_LOOK: Duration = Duration::from_millis(20);
/// After so many looks without a request nothing is expected soon.
const IDLE_AFTER: u32 = 200;
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
    pub(crate) patience: Patience,
    /// The share of sampled requests that go to the upstream again.
    pub(crate) noise: f64,
    pub(crate) comparing: Comparing,
    /// Notified at each look.
    pub(crate) looks: Notify,
    pub(crate) waiting: AtomicUsize,
}

impl Runner {
    /// Runs until `stop`; copies in flight are dropped then.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let tasks = Tasks::default();
        let mut quiet = 0_u32;
        loop {
            let is_idle = quiet > IDLE_AFTER && self.waiting.load(Relaxed) == 0;
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(if is_idle { IDLE_LOOK } else { LOOK }) => {}
            }
            quiet = quiet.saturating_add(1);
            self.parts.pause(self.is_useless(Stamp::now()));
            self.repeatable.log_refused_heads(&self.parts.counters);
            // those that wait first, so that their room is free for new ones
            self.looks.notify_waiters();
            while let Some(job) = self.parts.queue.pop() {
                quiet = 0;
                self.parts.counters.sampled.fetch_add(1, Relaxed);
                if self.waiting.load(Relaxed) >= self.max_waiting {
                    self.parts.counters.drop_sampled(ShadowDrop::Waiting);
                    continue;
                }
                let waiting = WaitingPlace::take(self.clone());
                tasks.spawn(async move { waiting.0.clone().carry(job).await });
            }
        }
    }

    /// Whether a copy would reach no target. The upstream asked again serves the others' comparison alone.
    fn is_useless(&self, now: Stamp) -> bool {
        self.targets.iter().filter(|target| !target.is_upstream).all(|target| target.is_left_alone(now))
    }

    /// Carries one sampled request to the targets, and counts it if it may not be, or cannot.
    async fn carry(self: Arc<Self>, job: ShadowJob) {
        if let Err(reason) = self.carry_whole(job).await {
            self.parts.counters.drop_sampled(reason);
        }
    }

    /// Carries one sampled request to the targets, if it may be repeated, and hands both answers to who compares them.
    async fn carry_whole(&self, job: ShadowJob) -> Result<(), ShadowDrop> {
        let head = Arc::new(Head::new(&job, &self.copied));
        let ShadowJob { method, path, headers, body, answer, arrived, .. } = job;
        let (tell_primary, primary_took) = watch::channel(None);
        let body = self.quietly(body).await.map_err(reason)?;
        let body = Arc::new(body.map_trailers(|trailers| self.copied.headers.of(trailers)));
        let (request, secret) = self.judge(method, path, headers, body.clone()).await?;
        let answered = async {
            let tell_primary = tell_primary; // dropped with the last word of the upstream
            let PrimaryAnswer { trace, status, headers, body } = self.quietly(answer).await.map_err(|_| ShadowDrop::Cut)?;
            let body = self.quietly(body).await.map(Arc::new);
            let took = Duration::from_nanos(arrived.elapsed());
            tell_primary.send_replace(Some(took));
            Ok::<Primary, ShadowDrop>((trace, status, headers, body))
        };
        let copies = async {
            let again = self.noise > 0.0 && rand::random::<f64>() < self.noise;
            let chosen = self.targets.iter().filter(|target| again || !target.is_upstream);
            let sent = chosen.map(|target| async {
                let patience = self.patience.runs_out(primary_took.clone());
                (target.index, target.send(&head, &body, &self.parts, patience).await)
            });
            join_all(sent).await
        };
        let (primary, copies) = match self.order {
            CopyOrder::After => {
                let primary = answered.await?;
                let standing = self.learn(&request, &primary).await?;
                secret?;
                self.await_learnt(&request, standing).await?;
                (primary, copies.await)
            }
            CopyOrder::Concurrent => {
                let may_send = self.repeatable.before_answer(&request).and(secret);
                let (primary, copies) = match may_send {
                    Ok(()) => tokio::join!(answered, copies),
                    Err(_) => (answered.await, Vec::new()),
                };
                let primary = primary?;
                // for the requests that come after it
                let _ = self.learn(&request, &primary).await;
                may_send?;
                (primary, copies)
            }
        };
        let (trace, status, headers, primary) = primary;
        let primary = AnswerSide::of_upstream(status, headers, primary.map_err(reason)?);
        for (target, copy) in copies {
            if let Some(copy) = copy {
                let (head, request) = (head.clone(), body.clone());
                let pair = ComparePair { head, request, target, trace, primary: primary.clone(), copy };
                if !self.comparing.compare(pair)
                    && let Some(counters) = self.parts.counters.target(target)
                {
                    counters.drop_copy(ShadowDrop::CompareFull);
                }
            }
        }
        Ok(())
    }

    /// Looks at a whole request: whether it is a call of a model, and whether its body has a secret, which no copy may have.
    async fn judge(
        &self,
        method: Method,
        path: PathAndQuery,
        headers: HeaderMap,
        body: Arc<CapturedBody>,
    ) -> Result<(JudgedRequest, Result<(), ShadowDrop>), ShadowDrop> {
        let (repeatable, secrets) = (self.repeatable.clone(), self.copied.secrets.clone());
        let takes_long = body.is_large() || headers.contains_key(CONTENT_ENCODING);
        aside(takes_long, move || {
            let request = repeatable.request(&method, path.path(), &headers, body.pieces());
            let has_secret = secrets.are_in(&headers, body.pieces()).unwrap_or(true);
            (request, if has_secret { Err(ShadowDrop::Secret) } else { Ok(()) })
        })
        .await
    }

    /// Learns from the upstream's answer. Returns whether the exchange may be repeated now, or once its route is learnt.
    async fn learn(&self, request: &JudgedRequest, primary: &Primary) -> Result<Standing, ShadowDrop> {
        let (_, status, headers, Ok(body)) = primary else {
            return self.repeatable.before_answer(request).map(|()| Standing::Repeatable);
        };
        let (repeatable, request) = (self.repeatable.clone(), request.clone());
        let (status, headers, body) = (*status, headers.clone(), body.clone());
        aside(body.is_large() || headers.contains_key(CONTENT_ENCODING), move || {
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
            let look = self.looks.notified();
            match self.repeatable.standing(request, restarts)? {
                Standing::Repeatable => return Ok(()),
                Standing::Learning(_) if since.elapsed() > LEARNING_NS => return Err(ShadowDrop::Learning),
                Standing::Learning(_) => look.await,
            }
        }
    }

    /// Awaits what the data plane completes without leaving it a waker: `future` is polled at each look.
    async fn quietly<F: Future + Unpin>(&self, mut future: F) -> F::Output {
        loop {
            let look = self.looks.notified();
            if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
                return output;
            }
            look.await;
        }
    }
}

/// The trace, status, headers and body of the upstream's answer.
type Primary = (TraceId, StatusCode, HeaderMap, Result<Arc<CapturedBody>, Incomplete>);

/// Does `work`, on a thread for long work if it takes long: what copies measure must not wait for it.
async fn aside<T: Send + 'static>(takes_long: bool, work: impl FnOnce() -> T + Send + 'static) -> Result<T, ShadowDrop> {
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
