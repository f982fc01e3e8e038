//! The thread that sends: each recorded request to every target, when it is due.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::schedule::{DueTimes, Durations, send_when_due};
use crate::copying::{AnswerSide, ComparePair, ComparisonSender, CopyHead, CopyRequest, CopyTarget};
use crate::counters::{ShadowCounters, ShadowDrop};
use lapwing_ledger::{PairId, Stamp, TraceId};
use lapwing_net::{LocalListener, Tasks};
use lapwing_proxy::{CaptureBudget, CapturedBody, DataPlane};

/// Before the first request is due: time for the threads to start.
const LEAD_NS: u64 = 50_000_000;
/// How long ledgers have to close after the last answer.
const CLOSING: Duration = Duration::from_millis(100);

/// A request that is ready to be sent.
pub(crate) struct PreparedRequest {
    pub(crate) head: Arc<CopyHead>,
    /// As it was recorded.
    pub(crate) body: Arc<CapturedBody>,
    /// As each target gets it; `None` where it gets none.
    pub(crate) copies: Vec<Option<CopyRequest>>,
    /// What was recorded, if it is compared with.
    pub(crate) recorded: Option<AnswerSide>,
}

/// A target and how many requests it may have in flight.
pub(crate) struct PlayedTarget {
    pub(crate) target: CopyTarget,
    pub(crate) permits: Semaphore,
}

/// What the tasks of the thread share.
pub(crate) struct Player {
    pub(crate) requests: Vec<PreparedRequest>,
    /// The baseline first, unless the recorded answers are the baseline.
    pub(crate) targets: Vec<PlayedTarget>,
    pub(crate) is_baseline_recorded: bool,
    pub(crate) budget: Arc<CaptureBudget>,
    /// By target.
    pub(crate) counters: Arc<ShadowCounters>,
    pub(crate) comparing: ComparisonSender,
    pub(crate) lateness: Arc<Durations>,
    pub(crate) due: DueTimes,
}

/// When requests are sent.
pub(crate) enum Timing {
    /// When they are due, from the start, in nanoseconds.
    Open(Vec<u64>),
    /// By so many clients.
    Closed(usize),
}

impl Player {
    /// Sends everything and waits for every answer.
    ///
    /// # Errors
    ///
    /// If a thread or its runtime cannot be started.
    pub(crate) fn run(self, stacks: Vec<(LocalListener, DataPlane)>, timing: Timing) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, serving) = (CancellationToken::new(), Tasks::default());
        runtime.block_on(async {
            for (listener, plane) in stacks {
                let until = stop.clone();
                serving.spawn(lapwing_proxy::serve_local(listener, plane, until));
            }
            let player = Arc::new(self);
            match timing {
                Timing::Open(due_ns) => player.clone().open(due_ns).await?,
                Timing::Closed(clients) => player.clone().closed(clients).await,
            }
            tokio::time::sleep(CLOSING).await;
            stop.cancel();
            Ok(())
        })
    }

    async fn open(self: Arc<Self>, due_ns: Vec<u64>) -> io::Result<()> {
        let (sender, mut places) = mpsc::unbounded_channel();
        let (due, start) = (self.due.clone(), Stamp::now().plus(LEAD_NS));
        let keeping = std::thread::Builder::new().name("lapwing-pace".to_owned());
        let keeping = keeping.spawn(move || send_when_due(&due_ns, start, &due, &sender))?;
        let tasks = Tasks::default();
        while let Some(at) = places.recv().await {
            let player = self.clone();
            tasks.spawn(async move { player.play(at).await });
        }
        tasks.finished().await;
        keeping.join().map_err(|_| io::Error::other("the thread that keeps time panicked"))
    }

    async fn closed(self: Arc<Self>, clients: usize) {
        let (tasks, next) = (Tasks::default(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..clients.min(self.requests.len()) {
            let (player, next) = (self.clone(), next.clone());
            tasks.spawn(async move {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    if at >= player.requests.len() {
                        return;
                    }
                    player.due.set(at, Stamp::now());
                    player.play(at).await;
                }
            });
        }
        tasks.finished().await;
    }

    /// Sends one request to every target, and hands the answers to the comparing thread.
    async fn play(&self, at: usize) {
        let (Some(request), Some(due)) = (self.requests.get(at), self.due.get(at)) else { return };
        let count = self.targets.len();
        // each target is the first as often as the others
        let order = (0..count).map(|place| (at + place) % count);
        let answers = join_all(order.map(|index| async move { (index, self.send(index, request, due).await) })).await;
        let mut answers = answers.into_iter().filter_map(|(index, answer)| Some((index, answer?))).collect::<Vec<_>>();
        let primary = match &request.recorded {
            Some(recorded) => recorded.clone(),
            None if self.is_baseline_recorded => return,
            None => match answers.iter().position(|(index, _)| *index == 0) {
                Some(first) => answers.swap_remove(first).1,
                None => return,
            },
        };
        for (index, copy) in answers {
            let target = index - usize::from(!self.is_baseline_recorded);
            let (head, primary) = (request.head.clone(), primary.clone());
            let request = request.body.clone();
            let pair = ComparePair { head, request, target, split_key: None, trace: TraceId::default(), primary, copy };
            if !self.comparing.compare(pair)
                && let Some(counters) = self.counters.target(index)
            {
                counters.drop_copy(ShadowDrop::CompareFull);
            }
        }
    }

    async fn send(&self, index: usize, request: &PreparedRequest, due: Stamp) -> Option<AnswerSide> {
        let (played, counters) = (self.targets.get(index)?, self.counters.target(index)?);
        let copy = request.copies.get(index)?.as_ref()?;
        let _permit = played.permits.acquire().await.ok()?;
        self.lateness.record(Stamp::now().since(due));
        counters.sent.fetch_add(1, Relaxed);
        played.target.exchange(copy, &self.budget).await.counted(counters)
    }
}

/// The number of the pair of the request at this place.
pub(crate) fn pair_of(at: usize) -> Option<PairId> {
    PairId::new(at as u64 + 1)
}
