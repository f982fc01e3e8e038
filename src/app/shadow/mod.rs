//! Shadow-serving as it runs: the targets' stacks, the thread that sends copies, and the thread that compares outputs.
//!
//! A copy walks through a stack of its own in front of its target, the same as clients' requests do in front of the upstream, so
//! both sides are measured alike. Its closed ledger goes to the same aggregator by a queue of its own.

mod breaker;
mod compare;
mod copy;
mod patience;
mod prepare;
mod runner;
mod target;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;

use crossbeam_queue::ArrayQueue;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) use self::compare::{
    AnswerSide, ComparePair, ComparedOutputs, Comparing, Worker as CompareWorker, channel as compare_channel,
};
pub(crate) use self::copy::reason;
pub(crate) use self::copy::{CopiedParts, Head};
use self::patience::{LONGEST, Patience};
pub(crate) use self::prepare::{CopyRequest, whole_body};
use self::runner::Runner;
pub(crate) use self::target::CopyTarget;
use super::data::Observing;
use super::hosted::{Hosted, Models};
use super::start_error::StartError;
use crate::config::Config;
use lapwing_admin::ShadowSurface;
use lapwing_compare::outputs::Comparer;
use lapwing_diagnosis::cost::TargetEngine;
use lapwing_ledger::{LabelId, Ledger, Stamp};
use lapwing_metrics::{Counters, Labels, Registry};
use lapwing_net::{LocalAddress, LocalListener, Target, Tasks};
use lapwing_proxy::{DataPlane, TapParts};
use lapwing_settings::{ConfigHandle, ShadowTarget, Upstream};
use lapwing_shadow::mapping::MappingTable;
use lapwing_shadow::{CopyOrder, OutputAccounts, PairTable, QuotaTable, Repeatable, TargetInfo, UPSTREAM_AGAIN};

/// Sampled requests that may wait for the shadow's thread, which reads the queue every millisecond.
const QUEUE: usize = 1024;
/// Closed ledgers of copies that may wait for the aggregator.
const LEDGERS: usize = 1024;
/// How much longer than the target's time limit and the wait for spans one side waits for the other, in nanoseconds.
const PATIENCE_NS: u64 = 5_000_000_000;

/// The parts of shadow-serving that the planes use.
#[derive(Clone)]
pub(crate) struct ShadowParts {
    /// For the tap.
    pub(crate) tap: Arc<TapParts>,
    /// Closed ledgers of copies.
    pub(crate) ledgers: Arc<ArrayQueue<Box<Ledger>>>,
    /// Results of comparisons.
    pub(crate) compared: Arc<ArrayQueue<ComparedOutputs>>,
    /// The series of copies, apart from those of clients.
    pub(crate) registry: Arc<Mutex<Registry>>,
    /// Both sides together.
    pub(crate) pairs: Arc<Mutex<PairTable>>,
    /// What outputs differ in.
    pub(crate) outputs: Arc<Mutex<OutputAccounts>>,
    /// Which routes may be repeated.
    pub(crate) repeatable: Arc<Repeatable>,
    /// In the order of their indices.
    pub(crate) targets: Arc<[TargetInfo]>,
}

impl ShadowParts {
    /// What the admin server reads.
    pub(crate) fn surface(self, order: CopyOrder, labels: &Arc<Labels>) -> ShadowSurface {
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
pub(crate) struct ShadowThreads {
    stop: CancellationToken,
    copying: JoinHandle<io::Result<()>>,
    comparing: JoinHandle<()>,
    engines: Vec<Hosted>,
}

/// Pairs of outputs that may wait to be compared.
const COMPARISONS: usize = 256;

/// A target before its stack runs.
pub(crate) struct NamedTarget {
    name: String,
    address: String,
    target: Target,
    is_h2: bool,
    is_upstream: bool,
    /// Routes whose requests are not sent as they are.
    mappings: Arc<MappingTable>,
}

impl NamedTarget {
    /// A target by its address. A model that the engine runs is loaded, and its engine added to `engines`.
    ///
    /// # Errors
    ///
    /// If a model cannot be loaded, or a mapping does not fit it.
    pub(crate) fn resolve(
        name: String,
        target: &ShadowTarget,
        whole: &Config,
        engines: &mut Vec<Hosted>,
    ) -> Result<Self, StartError> {
        let address = target.to_string();
        let mut mappings = MappingTable::default();
        let (target, is_h2) = match target {
            ShadowTarget::Server(upstream) => (Target::from(upstream), matches!(upstream, Upstream::Http { h2: true, .. })),
            ShadowTarget::Engine(path) => {
                let engine = Hosted::start_one(&whole.engine, &name, path, whole.proxy.worker_threads(), whole.drain_timeout)?;
                mappings = MappingTable::new(&whole.shadow.mappings, whole.shadow.max_body, &name, &engine.ports())?;
                let address = Target::Tcp(engine.address().to_string());
                engines.push(engine);
                (address, false)
            }
        };
        Ok(Self { name, address, target, is_h2, is_upstream: false, mappings: Arc::new(mappings) })
    }

    /// The upstream, which is asked a second time.
    fn upstream_again(upstream: &Upstream) -> Self {
        Self {
            name: UPSTREAM_AGAIN.to_owned(),
            address: upstream.to_string(),
            target: Target::from(upstream),
            is_h2: matches!(upstream, Upstream::Http { h2: true, .. }),
            is_upstream: true,
            mappings: Arc::default(),
        }
    }

    /// A sender of copies to it at this place among the targets, through the stack at `stack`.
    pub(crate) fn sender(&self, index: usize, stack: &LocalAddress, config: &lapwing_shadow::Config) -> CopyTarget {
        CopyTarget::new(self.name.clone(), index, self.is_upstream, stack, config, self.mappings.clone())
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its mappings.
    pub(crate) fn mappings(&self) -> Arc<MappingTable> {
        self.mappings.clone()
    }

    /// Its label among the upstreams.
    pub(crate) fn label(&self) -> String {
        label(&self.name)
    }

    /// Whether it speaks HTTP/2 only.
    pub(crate) const fn is_h2(&self) -> bool {
        self.is_h2
    }

    /// The server that it is.
    pub(crate) fn into_target(self) -> Target {
        self.target
    }

    /// As surfaces name it.
    pub(crate) fn info(&self) -> TargetInfo {
        TargetInfo {
            name: self.name.clone(),
            address: self.address.clone(),
            label: label(&self.name),
            is_upstream: self.is_upstream,
        }
    }
}

/// Starts shadow-serving; `None` if no target is configured.
///
/// # Errors
///
/// If a model cannot be loaded, or a thread not be started.
pub(crate) fn start(
    whole: &Config,
    observing: &Observing,
    labels: &Arc<Labels>,
) -> Result<Option<(ShadowParts, ShadowThreads)>, StartError> {
    let config = &whole.shadow;
    if !config.is_on() {
        return Ok(None);
    }
    let mut engines = Vec::new();
    let mut named = Vec::new();
    for (name, target) in &config.targets {
        named.push(NamedTarget::resolve(name.clone(), target, whole, &mut engines)?);
    }
    if config.noise.get() > 0.0 {
        named.push(NamedTarget::upstream_again(&whole.upstream));
    }

    let quotas = Arc::new(QuotaTable::new(&config.quotas, &labels.routes));
    let tap = TapParts::new(QUEUE, TapParts::limits(config, &whole.proxy), named.len(), quotas);
    let copy_labels: Vec<LabelId> = named.iter().map(|target| labels.upstreams.intern(&label(&target.name))).collect();
    let patience_ns = config.timeout.as_nanos().saturating_add(whole.attribution.grace.as_nanos()).saturating_add(PATIENCE_NS);
    let started = Stamp::now();
    // its own counters: what copies cost is not what clients' requests cost
    let counters = Arc::new(Counters::default());
    let candidates: Vec<_> = named.iter().filter(|target| !target.is_upstream).map(NamedTarget::mappings).collect();
    let parts = ShadowParts {
        tap: tap.clone(),
        ledgers: Arc::new(ArrayQueue::new(LEDGERS)),
        compared: Arc::new(ArrayQueue::new(LEDGERS)),
        registry: Arc::new(Mutex::new(Registry::new(whole.metrics.clone(), labels.clone(), counters.clone()))),
        pairs: Arc::new(Mutex::new(
            PairTable::new(copy_labels, patience_ns, started).with_patience_factor(config.timeout_factor),
        )),
        outputs: Arc::new(Mutex::new(OutputAccounts::new(Comparer::new(&config.compare), config.noise.get() > 0.0))),
        repeatable: Arc::new(Repeatable::new(config)),
        targets: named.iter().map(NamedTarget::info).collect(),
    };

    // each copy has a limit of its own, by what the upstream took
    let mut unlimited = whole.clone();
    unlimited.shadow.timeout = LONGEST;
    let (comparing, pairs) = compare::channel(COMPARISONS);
    let mut stacks = Vec::new();
    let mut targets = Vec::new();
    for (index, target) in named.into_iter().enumerate() {
        let (address, listener) = lapwing_net::local();
        let settings = observing.settings_of_copies(&unlimited, &label(&target.name), target.is_h2, &parts.ledgers, &counters);
        targets.push(target.sender(index, &address, &unlimited.shadow));
        let (target, health) = (target.target, Arc::default());
        let plane = DataPlane { settings: ConfigHandle::fixed(settings), target, health, counters: counters.clone() };
        stacks.push((listener, plane));
    }
    let runner = Runner {
        parts: tap,
        targets,
        copied: CopiedParts::new(whole),
        repeatable: parts.repeatable.clone(),
        order: config.order,
        max_waiting: config.max_waiting,
        patience: Patience { floor: config.timeout.get(), factor: config.timeout_factor },
        noise: config.noise.get(),
        comparing,
        looks: Notify::new(),
        waiting: AtomicUsize::new(0),
    };
    let stop = CancellationToken::new();
    let until = stop.clone();
    let copying = std::thread::Builder::new().name("lapwing-shadow".to_owned());
    let copying = copying.spawn(move || copy_requests(runner, stacks, until)).map_err(StartError::Thread)?;
    let comparing = std::thread::Builder::new().name("lapwing-compare".to_owned());
    let worker =
        compare::Worker::new(whole, parts.outputs.clone(), parts.compared.clone(), candidates, parts.tap.counters.clone(), 0);
    let comparing = comparing.spawn(move || worker.run(&pairs)).map_err(StartError::Thread)?;
    Ok(Some((parts, ShadowThreads { stop, copying, comparing, engines })))
}

/// The upstream's label in series of copies: no client's series has it.
fn label(name: &str) -> String {
    format!("shadow:{name}")
}

/// The optimum of the target at `index`, whose engine runs `models`.
fn target_engine(index: usize, name: String, models: Models) -> TargetEngine {
    TargetEngine::new(index, Box::new(move || models.optimum_of_target(&name)))
}

/// The thread that sends copies, until `stop`.
fn copy_requests(runner: Runner, stacks: Vec<(LocalListener, DataPlane)>, stop: CancellationToken) -> io::Result<()> {
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
    /// The optima of the models that the engine runs as these targets.
    pub(crate) fn optima(&self, targets: &BTreeMap<String, ShadowTarget>) -> Vec<TargetEngine> {
        let is_engine = |(_, (_, target)): &(usize, (&String, &ShadowTarget))| matches!(target, ShadowTarget::Engine(_));
        // engines are in the order of their targets
        let engines = targets.iter().enumerate().filter(is_engine).zip(&self.engines);
        engines.map(|((index, (name, _)), engine)| target_engine(index, name.clone(), engine.models())).collect()
    }

    /// Drops the copies in flight, and ends.
    ///
    /// # Errors
    ///
    /// The error with which a thread ended.
    pub(crate) fn stop(self) -> io::Result<()> {
        self.stop.cancel();
        let copied = self.copying.join().unwrap_or_else(|_| Err(io::Error::other("the shadow's thread panicked")));
        // its sender is gone with the runner
        let compared = self.comparing.join().map_err(|_| io::Error::other("the comparing thread panicked"));
        let engines = self.engines.into_iter().map(Hosted::stop).fold(Ok(()), io::Result::and);
        copied.and(compared).and(engines)
    }
}
