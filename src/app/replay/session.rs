//! A replay from its recording to its report.

use std::io::{self, BufRead};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::accounts::{Accounts, PairsFile};
use super::args::ReplayArgs;
use super::baseline::{RECORDED, checked, labels, order};
use super::durations::Durations;
use super::error::ReplayError;
use super::play::{PlayedTarget, Player, PreparedRequest, Timing, pair_of};
use super::receiver::SpanReceiver;
use super::report::{BaselineReport, FromDueReport, ReplayReport, SendingReport, assumptions};
use super::schedule::{DueTimes, Pace};
use crate::app::data::Observing;
use crate::app::hosted::{Hosted, Models};
use crate::app::shadow::{
    AnswerSide, CompareWorker, ComparedOutputs, CopiedParts, CopyRequest, Head, NamedTarget, compare_channel, whole_body,
};
use crate::config::Config;
use lapwing_admin::{ShadowSurface, compared_targets};
use lapwing_attribution::Aggregator;
use lapwing_attribution::otlp::OwnTraces;
use lapwing_compare::outputs::Comparer;
use lapwing_ledger::{CopyCause, LabelId, Ledger, Stamp, TraceMark};
use lapwing_metrics::{Counters, Labels, Registry};
use lapwing_net::LocalListener;
use lapwing_proxy::{CaptureBudget, CaptureLimits, DataPlane};
use lapwing_settings::ConfigHandle;
use lapwing_shadow::recording::{FileLimits, PairsHeader, RecordedExchange, read_recording};
use lapwing_shadow::{OutputAccounts, PairTable, ShadowCounters, ShadowDrop, SideAccount, TargetInfo};

/// Closed ledgers that may wait.
const LEDGERS: usize = 65_536;
/// Pairs of outputs that may wait to be compared.
const COMPARISONS: usize = 4096;
/// How often ledgers are looked at.
const LOOK: Duration = Duration::from_millis(5);
/// How long the last ledgers are waited for.
const SETTLE_NS: u64 = 2_000_000_000;
/// How long a pair waits for its other side beyond the targets' time limit, in nanoseconds.
const PATIENCE_NS: u64 = 600_000_000_000;
/// How long models that the engine runs have to become ready.
const WARM_UP_NS: u64 = 120_000_000_000;

/// Replays the recording in `file`.
pub(crate) fn replay(
    args: &ReplayArgs,
    config: &Config,
    file: impl BufRead,
    limits: FileLimits,
) -> Result<ReplayReport, ReplayError> {
    let addresses = args.named().map_err(ReplayError::Usage)?;
    let recording = read_recording(file, limits).map_err(|error| ReplayError::File(args.file.display().to_string(), error))?;
    if recording.end.is_none() {
        eprintln!("lapwing replay: {}: the recording broke off; what is there is replayed", args.file.display());
    }
    let mut config = config.clone();
    config.shadow.timeout = args.timeout;
    config.shadow.concurrency = args.max_in_flight as usize;

    let (mut engines, mut named) = (Vec::new(), Vec::new());
    for (name, target) in addresses {
        named.push(NamedTarget::resolve(name, &target, &config, &mut engines).map_err(|error| failed(&error))?);
    }
    engines.iter().map(Hosted::models).try_for_each(|models| await_ready(&models))?;
    let session = Session::new(args, config, &named);
    let report = session.run(args, named, recording.exchanges)?;
    engines.into_iter().try_for_each(|engine| engine.stop().map_err(|error| failed(&error)))?;
    Ok(report)
}

fn failed(error: &dyn std::fmt::Display) -> ReplayError {
    ReplayError::Failed(error.to_string())
}

/// Waits until `models` are warm.
fn await_ready(models: &Models) -> Result<(), ReplayError> {
    let until = Stamp::now().plus(WARM_UP_NS);
    while let Err(reason) = models.readiness() {
        if Stamp::now() > until {
            return Err(ReplayError::Failed(reason));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// The tables and queues of one replay.
struct Session {
    config: Config,
    /// Whether the recorded answers are the baseline; else the first target is.
    is_baseline_recorded: bool,
    baseline: String,
    /// In order, the baseline first.
    infos: Vec<TargetInfo>,
    target_labels: Vec<LabelId>,
    labels: Arc<Labels>,
    /// Of the stacks.
    counters: Arc<Counters>,
    ledgers: Arc<ArrayQueue<Box<Ledger>>>,
    compared: Arc<ArrayQueue<ComparedOutputs>>,
    outputs: Arc<Mutex<OutputAccounts>>,
    budget: Arc<CaptureBudget>,
    registry: Arc<Mutex<Registry>>,
    pairs: Arc<Mutex<PairTable>>,
    /// By target, the baseline first.
    counts: Arc<ShadowCounters>,
    started: Stamp,
}

impl Session {
    fn new(args: &ReplayArgs, config: Config, named: &[NamedTarget]) -> Self {
        let is_baseline_recorded = named.len() == 1;
        let skipped = usize::from(!is_baseline_recorded);
        let (labels, counters, started) = (Arc::new(labels(&config)), Arc::new(Counters::default()), Stamp::now());
        let target_labels: Vec<LabelId> = named.iter().map(|target| labels.upstreams.intern(&target.label())).collect();
        let patience_ns = args.timeout.as_nanos().saturating_add(PATIENCE_NS);
        // the recording is in memory as it is: its size has been bounded
        let limits = CaptureLimits { total: usize::MAX / 2, body: usize::MAX / 4, read_buffer: 0 };
        Self {
            is_baseline_recorded,
            baseline: if is_baseline_recorded { RECORDED.to_owned() } else { named[0].name().to_owned() },
            infos: named.iter().map(NamedTarget::info).collect(),
            ledgers: Arc::new(ArrayQueue::new(LEDGERS)),
            compared: Arc::new(ArrayQueue::new(LEDGERS)),
            outputs: Arc::new(Mutex::new(OutputAccounts::new(Comparer::new(&config.shadow.compare), false))),
            budget: CaptureBudget::new(limits),
            registry: Arc::new(Mutex::new(Registry::new(config.metrics.clone(), labels.clone(), counters.clone()))),
            pairs: Arc::new(Mutex::new(PairTable::new(target_labels[skipped..].to_vec(), patience_ns, started))),
            counts: Arc::new(ShadowCounters::new(named.len())),
            config,
            target_labels,
            labels,
            counters,
            started,
        }
    }

    /// How many targets stand before those that are compared.
    fn skipped(&self) -> usize {
        usize::from(!self.is_baseline_recorded)
    }

    fn run(
        self,
        args: &ReplayArgs,
        named: Vec<NamedTarget>,
        exchanges: Vec<RecordedExchange>,
    ) -> Result<ReplayReport, ReplayError> {
        let receiver = SpanReceiver::start(args, &self.config, &self.counters).map_err(ReplayError::Failed)?;
        let candidates = named.iter().skip(self.skipped()).map(NamedTarget::mappings).collect();
        let (stacks, targets) = self.stacks(named, receiver.is_some());
        let arrivals: Vec<u64> = exchanges.iter().map(|exchange| exchange.at_ns).collect();
        let (count, due) = (exchanges.len(), DueTimes::new(exchanges.len()));
        let (requests, recorded) = self.prepared(exchanges, &targets)?;
        let mut accounts = self.accounts(args, due.clone(), recorded, receiver)?;
        let pace = args.pace();
        let timing = match (pace, pace.due_ns(&arrivals)) {
            (Pace::Closed(clients), _) => Timing::Closed(clients),
            (_, due_ns) => Timing::Open(due_ns.unwrap_or_default()),
        };
        let lateness = Arc::new(Durations::new().map_err(|error| failed(&error))?);
        let (comparing, to_compare) = compare_channel(COMPARISONS);
        let worker = CompareWorker::new(
            &self.config,
            self.outputs.clone(),
            self.compared.clone(),
            candidates,
            self.counts.clone(),
            self.skipped(),
        );
        let player = Player {
            requests,
            targets,
            is_baseline_recorded: self.is_baseline_recorded,
            budget: self.budget.clone(),
            counters: self.counts.clone(),
            comparing,
            lateness: lateness.clone(),
            due,
        };
        eprintln!("lapwing replay: sending {count} requests {pace}");
        let began = Stamp::now();
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let playing = thread("lapwing-replay").spawn(move || player.run(stacks, timing)).map_err(|error| failed(&error))?;
        let comparing = thread("lapwing-compare").spawn(move || worker.run(&to_compare)).map_err(|error| failed(&error))?;
        while !(playing.is_finished() && comparing.is_finished()) {
            accounts.look().map_err(|error| of_pairs(&error))?;
            std::thread::sleep(LOOK);
        }
        let duration_ns = began.elapsed();
        let played = playing.join().unwrap_or_else(|_| Err(io::Error::other("the sending thread panicked")));
        played.map_err(|error| failed(&error))?;
        comparing.join().map_err(|_| failed(&"the comparing thread panicked"))?;
        self.settle(&mut accounts).map_err(|error| of_pairs(&error))?;
        let from_due = self.due_reports(&accounts);
        if let Some(receiver) = accounts.receiver {
            receiver.stop().map_err(|error| failed(&error))?;
        }
        let lateness = lateness.snapshot();
        let baseline = self.baseline_report();
        let sending = SendingReport { requests: count, pace: pace.to_string(), duration_ns, lateness, from_due, baseline };
        Ok(self.report(args, sending))
    }

    /// A stack in front of each target, and its client.
    fn stacks(&self, named: Vec<NamedTarget>, receives_spans: bool) -> (Vec<(LocalListener, DataPlane)>, Vec<PlayedTarget>) {
        let observing = Observing {
            queue: self.ledgers.clone(),
            counters: self.counters.clone(),
            labels: self.labels.clone(),
            ours: Arc::new(OwnTraces::new(TraceMark::random())),
            contexts: Arc::default(),
            receives_spans,
            tap: None,
            recording: Arc::default(),
            numbers: Arc::default(),
        };
        let stack = |(index, target): (usize, NamedTarget)| {
            let (address, listener) = lapwing_net::local();
            let settings =
                observing.settings_of_copies(&self.config, &target.label(), target.is_h2(), &self.ledgers, &self.counters);
            let shadow = &self.config.shadow;
            let played =
                PlayedTarget { target: target.sender(index, &address, shadow), permits: Semaphore::new(shadow.concurrency) };
            let settings = ConfigHandle::fixed(settings);
            let plane =
                DataPlane { settings, target: target.into_target(), health: Arc::default(), counters: self.counters.clone() };
            ((listener, plane), played)
        };
        named.into_iter().enumerate().map(stack).unzip()
    }

    /// The requests as they are sent, and the recorded accounts that they are compared with.
    fn prepared(
        &self,
        exchanges: Vec<RecordedExchange>,
        targets: &[PlayedTarget],
    ) -> Result<(Vec<PreparedRequest>, Vec<Option<SideAccount>>), ReplayError> {
        let copied = CopiedParts::new(&self.config);
        let (mut requests, mut recorded) = (Vec::with_capacity(exchanges.len()), Vec::with_capacity(exchanges.len()));
        for (at, mut exchange) in exchanges.into_iter().enumerate() {
            recorded.push(exchange.account.take().filter(|_| self.is_baseline_recorded));
            let prepared = prepare(at, exchange, self.is_baseline_recorded, &copied, &self.budget);
            let (request, recorded) = prepared.ok_or_else(|| failed(&"a recorded body does not fit into memory"))?;
            let copies = self.copies(&request, targets);
            requests.push(PreparedRequest { copies, head: request.head, body: request.body, recorded });
        }
        Ok((requests, recorded))
    }

    /// The request as each target gets it. One that a target cannot get is counted there.
    fn copies(&self, request: &CopyRequest, targets: &[PlayedTarget]) -> Vec<Option<CopyRequest>> {
        let copy = |(index, played): (usize, &PlayedTarget)| {
            let copy = played.target.prepare(&request.head, &request.body, &self.budget);
            let drop = |reason| self.counts.target(index).into_iter().for_each(|counters| counters.drop_copy(reason));
            copy.map_err(drop).ok()
        };
        targets.iter().enumerate().map(copy).collect()
    }

    fn accounts(
        &self,
        args: &ReplayArgs,
        due: DueTimes,
        recorded: Vec<Option<SideAccount>>,
        receiver: Option<SpanReceiver>,
    ) -> Result<Accounts, ReplayError> {
        let durations = |label: &LabelId| Ok((*label, Durations::new().map_err(|error| failed(&error))?));
        let candidates = self.infos[self.skipped()..].iter().map(|info| info.name.clone()).collect();
        let header = PairsHeader::new(self.baseline.clone(), candidates, Some(recorded.len() as u64));
        let file = args.pairs.as_ref().map(|path| PairsFile::create(path, &header)).transpose();
        Ok(Accounts {
            aggregator: Aggregator::new(self.config.attribution.join(), self.counters.clone()),
            receiver,
            registry: self.registry.clone(),
            pairs: self.pairs.clone(),
            labels: self.labels.clone(),
            started: self.started,
            due,
            from_due: self.target_labels.iter().map(durations).collect::<Result<_, ReplayError>>()?,
            baseline: (!self.is_baseline_recorded).then(|| self.target_labels[0]),
            targets: self.target_labels[self.skipped()..].to_vec(),
            recorded,
            ledgers: self.ledgers.clone(),
            compared: self.compared.clone(),
            file: file.map_err(|error| of_pairs(&error))?,
            taken: 0,
        })
    }

    /// Waits for the last ledgers, and ends the accounts.
    fn settle(&self, accounts: &mut Accounts) -> io::Result<()> {
        let all = (0..self.infos.len()).filter_map(|index| self.counts.target(index));
        let sent: u64 = all.map(|of| of.sent.load(Relaxed)).sum();
        let grace_ns = if accounts.receiver.is_some() { self.config.attribution.grace.as_nanos() } else { 0 };
        let until = Stamp::now().plus(SETTLE_NS.saturating_add(grace_ns));
        while accounts.taken < sent && Stamp::now() < until {
            accounts.look()?;
            std::thread::sleep(LOOK);
        }
        accounts.finish()
    }

    fn due_reports(&self, accounts: &Accounts) -> Vec<FromDueReport> {
        let infos = self.infos.iter().zip(&accounts.from_due);
        infos.map(|(info, (_, durations))| FromDueReport { target: info.name.clone(), durations: durations.snapshot() }).collect()
    }

    fn baseline_report(&self) -> Option<BaselineReport> {
        let of = self.counts.target(0).filter(|_| !self.is_baseline_recorded)?;
        let (sent, answered, failed) = (of.sent.load(Relaxed), of.answered.load(Relaxed), of.failed.load(Relaxed));
        Some(BaselineReport { address: self.infos[0].address.clone(), sent, answered, failed })
    }

    fn report(self, args: &ReplayArgs, sending: SendingReport) -> ReplayReport {
        let (skipped, budget) = (self.skipped(), self.budget);
        let infos: Arc<[TargetInfo]> = self.infos.into_iter().skip(skipped).collect();
        let surface = ShadowSurface {
            registry: self.registry,
            pairs: self.pairs,
            outputs: self.outputs,
            counters: Arc::new(candidates_only(&self.counts, skipped, infos.len())),
            quotas: Arc::default(),
            routes: Arc::new(Vec::new),
            budget: Arc::new(move || budget.fill()),
            targets: infos,
            order: order(self.is_baseline_recorded),
            labels: self.labels,
        };
        ReplayReport {
            file: args.file.display().to_string(),
            baseline: self.baseline,
            gates: checked(&args.gates, &surface, Some(sending.lateness.p99_ns), Some(sending.requests as u64)),
            sending: Some(sending),
            targets: compared_targets(&surface, Ok(())),
            assumptions: assumptions(),
        }
    }
}

fn of_pairs(error: &io::Error) -> ReplayError {
    ReplayError::Failed(format!("--pairs: {error}"))
}

/// The counts of the targets that are compared.
fn candidates_only(all: &ShadowCounters, skipped: usize, count: usize) -> ShadowCounters {
    let counters = ShadowCounters::new(count);
    for (from, to) in (0..count).filter_map(|index| Some((all.target(index + skipped)?, counters.target(index)?))) {
        for (from, to) in [(&from.sent, &to.sent), (&from.answered, &to.answered), (&from.failed, &to.failed)] {
            to.store(from.load(Relaxed), Relaxed);
        }
        for reason in ShadowDrop::ALL {
            (0..from.dropped(*reason)).for_each(|_| to.drop_copy(*reason));
        }
    }
    counters
}

/// A recorded request, and its answer if that is compared with. `None` if the budget has no room for a body.
fn prepare(
    at: usize,
    exchange: RecordedExchange,
    is_baseline_recorded: bool,
    copied: &CopiedParts,
    budget: &Arc<CaptureBudget>,
) -> Option<(CopyRequest, Option<AnswerSide>)> {
    let RecordedExchange { method, path, http2, headers: recorded_headers, body, answer, .. } = exchange;
    let (mut headers, path) = (copied.headers(&recorded_headers), copied.path(&path));
    headers.remove(http::header::CONTENT_LENGTH);
    let head = Arc::new(Head { pair: pair_of(at)?, cause: CopyCause::Share, method, path, is_h2: http2, headers });
    let recorded = match answer.filter(|_| is_baseline_recorded) {
        Some(answer) => {
            let trailers = answer.grpc_status.map(|status| HeaderMap::from_iter([(GRPC_STATUS, status.into())]));
            let body = whole_body(answer.body, trailers, budget).ok()?;
            Some(AnswerSide::of_upstream(http::StatusCode::from_u16(answer.status).ok()?, answer.headers, body))
        }
        None => None,
    };
    Some((CopyRequest { head, body: whole_body(body, None, budget).ok()?, mapping: None }, recorded))
}

const GRPC_STATUS: http::HeaderName = http::HeaderName::from_static("grpc-status");
