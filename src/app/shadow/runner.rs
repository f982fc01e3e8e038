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
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::compare::{AnswerSide, ComparePair, Comparing};
use super::copy::{CopiedHeaders, Head};
use super::target::CopyTarget;
use crate::ledger::Stamp;
use crate::net::Tasks;
use crate::proxy::{Incomplete, PrimaryAnswer, ShadowJob, TapParts};
use crate::shadow::{CopyOrder, ShadowDrop};

/// How often the queue is read while requests come.
const LOOK: Duration = Duration::from_millis(1);
/// How often it is read otherwise.
const IDLE_LOOK: Duration = Duration::from_millis(20);
/// After so many looks without a request nothing is expected soon.
const IDLE_AFTER: u32 = 200;

/// What the tasks of the thread share.
pub(super) struct Runner {
    pub(super) parts: Arc<TapParts>,
    pub(super) targets: Vec<CopyTarget>,
    pub(super) headers: CopiedHeaders,
    pub(super) order: CopyOrder,
    pub(super) max_waiting: usize,
    /// The share of sampled requests that go to the upstream again.
    pub(super) noise: f64,
    pub(super) comparing: Comparing,
    /// Notified at each look.
    pub(super) looks: Notify,
    pub(super) waiting: AtomicUsize,
}

impl Runner {
    /// Runs until `stop`; copies in flight are dropped then.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
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

    /// Carries one sampled request to the targets, and hands both answers to who compares them.
    async fn carry(self: Arc<Self>, job: ShadowJob) {
        let head = Arc::new(Head::new(&job, &self.headers));
        let ShadowJob { body, answer, .. } = job;
        let body = match self.quietly(body).await {
            Ok(body) => Arc::new(body),
            Err(incomplete) => return self.parts.counters.drop_sampled(reason(incomplete)),
        };
        let answered = async {
            let PrimaryAnswer { trace, status, headers, body } = self.quietly(answer).await.map_err(|_| ShadowDrop::Cut)?;
            let body = self.quietly(body).await;
            Ok((trace, status, headers, body))
        };
        let copies = async {
            let again = self.noise > 0.0 && rand::random::<f64>() < self.noise;
            let chosen = self.targets.iter().filter(|target| again || !target.is_upstream);
            join_all(chosen.map(|target| async { (target.index, target.send(&head, &body, &self.parts).await) })).await
        };
        let (primary, copies) = match self.order {
            CopyOrder::After => match answered.await {
                Ok(primary) => (Ok(primary), copies.await),
                Err(reason) => (Err(reason), Vec::new()),
            },
            CopyOrder::Concurrent => tokio::join!(answered, copies),
        };
        let (trace, primary) = match primary {
            Ok((trace, status, headers, Ok(body))) => (trace, AnswerSide::of_upstream(status, headers, Arc::new(body))),
            Ok((_, _, _, Err(incomplete))) => return self.parts.counters.drop_sampled(reason(incomplete)),
            Err(reason) => return self.parts.counters.drop_sampled(reason),
        };
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

/// Why there is no copy of a client's body, as it is counted.
pub(in crate::app) const fn reason(incomplete: Incomplete) -> ShadowDrop {
    match incomplete {
        Incomplete::TooLarge => ShadowDrop::TooLarge,
        Incomplete::BudgetSpent => ShadowDrop::BudgetSpent,
        Incomplete::Aborted => ShadowDrop::Cut,
    }
}
