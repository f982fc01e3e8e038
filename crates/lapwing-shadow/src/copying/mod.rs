//! Shadow-serving as it runs: the targets' stacks, the thread that sends copies, and the thread that compares outputs.
//!
//! - `runner` takes copied requests from the tap's queue, `copy_request` makes of each what a target gets, `target` sends it; `target_stack` is
//!   what it passes;
//! - `compare` compares both answers.
//!
//! A copy passes a separate stack in front of its target, the same as clients' requests do in front of the upstream, so
//! both sides are measured alike. Its closed ledger goes to the same aggregator through a separate queue.

mod compare;
mod copy_request;
mod runner;
mod target;
mod target_stack;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;

use crossbeam_queue::ArrayQueue;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub use self::compare::ComparedOutputs;
pub(crate) use self::compare::{AnswerSide, ComparePair, CompareWorker, ComparisonSender, comparisons};
pub(crate) use self::copy_request::{CopyHead, CopyRequest, whole_body};
use self::runner::{CopyTimeout, MAX_COPY_TIMEOUT, Runner};
pub(crate) use self::target::CopyTarget;
pub use self::target_stack::{NamedTarget, TargetStacks};
use super::config::CopyOrder;
use super::kept::CopiedParts;
use super::outputs::OutputAccounts;
use super::pairs::PairTable;
use super::quota::QuotaTable;
use super::repeatable::Repeatable;
use super::settings::ShadowSettings;
use super::surface::{ShadowSurface, TargetInfo};
use super::tap::TapParts;
use lapwing_compare::outputs::Comparer;
use lapwing_ledger::{LabelId, Ledger, SeriesKey, Stamp};
use lapwing_metrics::{Counters, Labels, Registry};
use lapwing_net::{LocalListener, Tasks};
use lapwing_proxy::DataPlane;

/// Sampled requests that may wait for the shadow's thread, which reads the queue every millisecond.
const TAP_QUEUE: usize = 1024;
/// Closed ledgers of copies that may wait for the aggregator.
const LEDGERS: usize = 1024;
/// Pairs of outputs that may wait to be compared.
const COMPARISONS: usize = 256;
/// How much longer than the target's time limit and the wait for spans one side waits for the other, in nanoseconds.
const PAIR_WAIT_NS: u64 = 5_000_000_000;

/// The parts of shadow-serving that the planes use.
#[derive(Clone)]
pub struct ShadowParts {
    /// For the tap.
    pub tap: Arc<TapParts>,
    /// Closed ledgers of copies.
    pub ledgers: Arc<ArrayQueue<Box<Ledger>>>,
    /// Results of comparisons.
    pub compared: Arc<ArrayQueue<ComparedOutputs>>,
    /// The series of copies, apart from those of clients.
    pub registry: Arc<Mutex<Registry>>,
    /// Both sides together.
    pub pairs: Arc<Mutex<PairTable>>,
    /// What outputs differ in.
    pub(crate) outputs: Arc<Mutex<OutputAccounts>>,
    /// Which routes may be repeated.
    pub(crate) repeatable: Arc<Repeatable>,
    /// In the order of their indices.
    pub(crate) targets: Arc<[TargetInfo]>,
}

impl ShadowParts {
    fn new(
        settings: &ShadowSettings,
        targets: &[NamedTarget],
        tap: Arc<TapParts>,
        labels: &Arc<Labels>,
        counters: &Arc<Counters>,
    ) -> Self {
        let (config, started) = (&settings.shadow, Stamp::now());
        let pair_wait_ns =
            config.timeout.as_nanos().saturating_add(settings.attribution.grace.as_nanos()).saturating_add(PAIR_WAIT_NS);
        let of_targets: Vec<LabelId> = targets.iter().map(|target| labels.upstreams.intern(&target.label())).collect();
        let pairs = PairTable::new(of_targets, pair_wait_ns, started).with_patience_factor(config.timeout_factor);
        Self {
            tap,
            ledgers: Arc::new(ArrayQueue::new(LEDGERS)),
            compared: Arc::new(ArrayQueue::new(LEDGERS)),
            registry: Arc::new(Mutex::new(Registry::new(settings.metrics.clone(), labels.clone(), counters.clone()))),
            pairs: Arc::new(Mutex::new(pairs)),
            outputs: Arc::new(Mutex::new(OutputAccounts::new(Comparer::new(&config.compare), config.noise.get() > 0.0))),
            repeatable: Arc::new(Repeatable::new(config)),
            targets: targets.iter().map(NamedTarget::info).collect(),
        }
    }

    /// Whether the target of this name answers requests of a route and model as the upstream does, so that it may answer them in its place.
    #[must_use]
    pub fn answers_alike(&self, name: &str, series: &SeriesKey) -> bool {
        let target = self.targets.iter().position(|target| target.name == name);
        target.is_some_and(|target| self.pairs.lock().answers_alike(target, series))
    }

    /// What the report is made of.
    #[must_use]
    pub fn surface(self, order: CopyOrder, labels: &Arc<Labels>) -> ShadowSurface {
        let Self { tap, registry, pairs, outputs, repeatable, targets, .. } = self;
        ShadowSurface {
            registry,
            pairs,
            outputs,
            counters: tap.counters.clone(),
            quotas: tap.quotas.clone(),
            routes: Arc::new(move || repeatable.routes()),
            budget: Arc::new(move || tap.budget.fill()),
            targets,
            order: order.into(),
            labels: labels.clone(),
        }
    }
}

/// Running threads. One that ends early costs copies, and never a request: the process goes on without it.
#[derive(Debug)]
pub struct ShadowThreads {
    stop: CancellationToken,
    copying: JoinHandle<io::Result<()>>,
    comparing: JoinHandle<()>,
}

/// Starts shadow-serving with these targets, and the `repeated` upstream again if its noise is measured; `None` if there is no target.
///
/// # Errors
///
/// If a thread cannot be started.
pub fn start_shadow(
    settings: &ShadowSettings,
    repeated: Option<NamedTarget>,
    mut targets: Vec<NamedTarget>,
    stacks: &TargetStacks,
) -> io::Result<Option<(ShadowParts, ShadowThreads)>> {
    if targets.is_empty() {
        return Ok(None);
    }
    let config = &settings.shadow;
    if config.noise.get() > 0.0 {
        targets.extend(repeated);
    }
    let tap = TapParts::new(
        TAP_QUEUE,
        TapParts::limits(config, &settings.proxy),
        targets.len(),
        Arc::new(QuotaTable::new(&config.quotas, &stacks.labels.routes)),
    );
    // its own counters: what copies cost is not what clients' requests cost
    let counters = Arc::new(Counters::default());
    let parts = ShadowParts::new(settings, &targets, tap, &stacks.labels, &counters);
    let candidates: Vec<_> = targets.iter().filter(|target| !target.source().is_repeat()).map(NamedTarget::mappings).collect();

    // each copy has its own limit, by what the upstream took
    let mut unlimited = settings.clone();
    unlimited.shadow.timeout = MAX_COPY_TIMEOUT;
    let before = |(index, target)| stacks.before(target, index, &unlimited, &parts.ledgers, &counters);
    let (planes, targets) = targets.into_iter().enumerate().map(before).unzip();
    let (comparing, pairs) = comparisons(COMPARISONS);
    let runner = Runner {
        parts: parts.tap.clone(),
        targets,
        copied: CopiedParts::new(config, &settings.protocol),
        repeatable: parts.repeatable.clone(),
        order: config.order,
        max_waiting: config.max_waiting,
        timeout: CopyTimeout { floor: config.timeout.get(), factor: config.timeout_factor },
        noise: config.noise.get(),
        comparing,
        polls: Notify::new(),
        waiting: AtomicUsize::new(0),
    };
    let stop = CancellationToken::new();
    let until = stop.clone();
    let copying = std::thread::Builder::new().name("lapwing-shadow".to_owned());
    let copying = copying.spawn(move || run_copying(runner, planes, until))?;
    let comparing = std::thread::Builder::new().name("lapwing-compare".to_owned());
    let worker =
        CompareWorker::new(settings, parts.outputs.clone(), parts.compared.clone(), candidates, parts.tap.counters.clone(), 0);
    let comparing = comparing.spawn(move || worker.run(&pairs))?;
    Ok(Some((parts, ShadowThreads { stop, copying, comparing })))
}

/// The thread that sends copies, until `stop`.
fn run_copying(runner: Runner, stacks: Vec<(LocalListener, DataPlane)>, stop: CancellationToken) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let tasks = Tasks::default();
        for (listener, plane) in stacks {
            tasks.spawn(lapwing_proxy::serve_local(listener, plane, stop.clone()));
        }
        Arc::new(runner).run(stop).await;
    });
    Ok(())
}

impl ShadowThreads {
    /// Drops the copies in flight, and ends.
    ///
    /// # Errors
    ///
    /// The error with which a thread ended.
    pub fn stop(self) -> io::Result<()> {
        self.stop.cancel();
        let copied = self.copying.join().unwrap_or_else(|_| Err(io::Error::other("the shadow's thread panicked")));
        // its sender is gone with the runner
        let compared = self.comparing.join().map_err(|_| io::Error::other("the comparing thread panicked"));
        copied.and(compared)
    }
}
