//! A replay from its recording to its report.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::accounts::{Accounts, PairsFile};
use super::play::{PlayedTarget, Player, PreparedRequest, Timing, pair_of};
use super::receiver::SpanReceiver;
use super::report::{
    BaselineReport, FromDueReport, RECORDED, ReplayError, ReplayNames, ReplayReport, SendingReport, replay_order,
};
use super::schedule::{DueTimes, Durations, Pace};
use super::settings::ReplaySettings;
use crate::copying::{
    AnswerSide, CompareWorker, ComparedOutputs, CopyHead, CopyRequest, NamedTarget, TargetStacks, comparisons, whole_body,
};
use crate::counters::{ShadowCounters, ShadowDrop};
use crate::kept::CopiedParts;
use crate::outputs::OutputAccounts;
use crate::pairs::{PairTable, SideAccount};
use crate::recording::{PairsHeader, RecordedExchange};
use crate::settings::ShadowSettings;
use crate::surface::{ShadowSurface, TargetInfo};
use lapwing_attribution::Aggregator;
use lapwing_compare::outputs::Comparer;
use lapwing_ledger::{CopyCause, LabelId, Ledger, Stamp, TraceMark};
use lapwing_metrics::{Counters, Labels, Registry};
use lapwing_net::LocalListener;
use lapwing_proxy::{CaptureBudget, CaptureLimits, DataPlane};

/// Closed ledgers that may wait.
const LEDGERS: usize = 65_536;
/// Pairs of outputs that may wait to be compared.
const COMPARISONS: usize = 4096;
/// How often ledgers are taken.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long the last ledgers are waited for.
const LAST_LEDGERS_NS: u64 = 2_000_000_000;
/// How long a pair waits for its other side beyond the targets' time limit, in nanoseconds.
const PAIR_WAIT_NS: u64 = 600_000_000_000;
/// Replays recorded requests to `targets`, which `compared` describes in the report.
///
/// # Errors
///
/// What could not be started, or written.
pub fn replay<T>(
    settings: ReplaySettings,
    targets: Vec<NamedTarget>,
    exchanges: Vec<RecordedExchange>,
    compared: impl FnOnce(&ShadowSurface) -> T,
) -> Result<ReplayReport<T>, ReplayError> {
    ReplaySession::new(settings, &targets).run(targets, exchanges, compared)
}

/// The tables and queues of one replay.
struct ReplaySession {
    settings: ReplaySettings,
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

impl ReplaySession {
    fn new(settings: ReplaySettings, named: &[NamedTarget]) -> Self {
        let ShadowSettings { shadow, metrics, .. } = &settings.sections;
        let is_baseline_recorded = named.len() == 1;
        let skipped = usize::from(!is_baseline_recorded);
        let (labels, counters, started) = (Arc::new(replay_labels(metrics)), Arc::new(Counters::default()), Stamp::now());
        let target_labels: Vec<LabelId> = named.iter().map(|target| labels.upstreams.intern(&target.label())).collect();
        let pair_wait_ns = shadow.timeout.as_nanos().saturating_add(PAIR_WAIT_NS);
        // the recording is in memory as it is: its size has been bounded
        let limits = CaptureLimits { total: usize::MAX / 2, body: usize::MAX / 4, read_buffer: 0 };
        Self {
            is_baseline_recorded,
            baseline: if is_baseline_recorded { RECORDED.to_owned() } else { named[0].name().to_owned() },
            infos: named.iter().map(NamedTarget::info).collect(),
            ledgers: Arc::new(ArrayQueue::new(LEDGERS)),
            compared: Arc::new(ArrayQueue::new(LEDGERS)),
            outputs: Arc::new(Mutex::new(OutputAccounts::new(Comparer::new(&shadow.compare), false))),
            budget: CaptureBudget::new(limits),
            registry: Arc::new(Mutex::new(Registry::new(metrics.clone(), labels.clone(), counters.clone()))),
            pairs: Arc::new(Mutex::new(PairTable::new(target_labels[skipped..].to_vec(), pair_wait_ns, started))),
            counts: Arc::new(ShadowCounters::new(named.len())),
            settings,
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

    fn run<T>(
        self,
        named: Vec<NamedTarget>,
        exchanges: Vec<RecordedExchange>,
        compared: impl FnOnce(&ShadowSurface) -> T,
    ) -> Result<ReplayReport<T>, ReplayError> {
        let receiver = SpanReceiver::start(&self.settings, &self.counters).map_err(ReplayError)?;
        let candidates = named.iter().skip(self.skipped()).map(NamedTarget::mappings).collect();
        let (stacks, targets) = self.stacks(named, receiver.is_some());
        let arrivals: Vec<u64> = exchanges.iter().map(|exchange| exchange.at_ns).collect();
        let (count, due) = (exchanges.len(), DueTimes::new(exchanges.len()));
        let (requests, recorded) = self.prepared(exchanges, &targets)?;
        let mut accounts = self.accounts(due.clone(), recorded, receiver)?;
        let pace = self.settings.pace;
        let timing = match (pace, pace.due_ns(&arrivals)) {
            (Pace::Closed(clients), _) => Timing::Closed(clients),
            (_, due_ns) => Timing::Open(due_ns.unwrap_or_default()),
        };
        let lateness = Arc::new(Durations::new().map_err(ReplayError::new)?);
        let (comparing, to_compare) = comparisons(COMPARISONS);
        let worker = CompareWorker::new(
            &self.settings.sections,
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
        let playing = thread("lapwing-replay").spawn(move || player.run(stacks, timing)).map_err(ReplayError::new)?;
        let comparing = thread("lapwing-compare").spawn(move || worker.run(&to_compare)).map_err(ReplayError::new)?;
        while !(playing.is_finished() && comparing.is_finished()) {
            accounts.poll().map_err(of_pairs)?;
            std::thread::sleep(POLL_INTERVAL);
        }
        let duration_ns = began.elapsed();
        let played = playing.join().unwrap_or_else(|_| Err(io::Error::other("the sending thread panicked")));
        played.map_err(ReplayError::new)?;
        comparing.join().map_err(|_| ReplayError::new("the comparing thread panicked"))?;
        self.await_last_ledgers(&mut accounts).map_err(of_pairs)?;
        let from_due = self.due_reports(&accounts);
        if let Some(receiver) = accounts.receiver {
            receiver.stop().map_err(ReplayError::new)?;
        }
        let lateness = lateness.snapshot();
        let baseline = self.baseline_report();
        let sending = SendingReport { requests: count, pace: pace.to_string(), duration_ns, lateness, from_due, baseline };
        Ok(self.report(sending, compared))
    }

    /// A stack in front of each target, and its client.
    fn stacks(&self, named: Vec<NamedTarget>, receives_spans: bool) -> (Vec<(LocalListener, DataPlane)>, Vec<PlayedTarget>) {
        let stacks =
            TargetStacks { labels: self.labels.clone(), mark: TraceMark::random(), contexts: Arc::default(), receives_spans };
        let sections = &self.settings.sections;
        let stack = |(index, target): (usize, NamedTarget)| {
            let (plane, target) = stacks.before(target, index, sections, &self.ledgers, &self.counters);
            (plane, PlayedTarget { target, permits: Semaphore::new(sections.shadow.concurrency) })
        };
        named.into_iter().enumerate().map(stack).unzip()
    }

    /// The requests as they are sent, and the recorded accounts that they are compared with.
    fn prepared(
        &self,
        exchanges: Vec<RecordedExchange>,
        targets: &[PlayedTarget],
    ) -> Result<(Vec<PreparedRequest>, Vec<Option<SideAccount>>), ReplayError> {
        let copied = CopiedParts::new(&self.settings.sections.shadow, &self.settings.sections.protocol);
        let (mut requests, mut recorded) = (Vec::with_capacity(exchanges.len()), Vec::with_capacity(exchanges.len()));
        for (at, mut exchange) in exchanges.into_iter().enumerate() {
            recorded.push(exchange.account.take().filter(|_| self.is_baseline_recorded));
            let prepared = prepare(at, exchange, self.is_baseline_recorded, &copied, &self.budget);
            let (request, recorded) = prepared.ok_or_else(|| ReplayError::new("a recorded body does not fit into memory"))?;
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
        due: DueTimes,
        recorded: Vec<Option<SideAccount>>,
        receiver: Option<SpanReceiver>,
    ) -> Result<Accounts, ReplayError> {
        let durations = |label: &LabelId| Ok((*label, Durations::new().map_err(ReplayError::new)?));
        let candidates = self.infos[self.skipped()..].iter().map(|info| info.name.clone()).collect();
        let header = PairsHeader::new(self.baseline.clone(), candidates, Some(recorded.len() as u64));
        let file = self.settings.pairs.as_ref().map(|path| PairsFile::create(path, &header)).transpose();
        Ok(Accounts {
            aggregator: Aggregator::new(self.settings.sections.attribution.join(), self.counters.clone()),
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
            file: file.map_err(of_pairs)?,
            taken: 0,
        })
    }

    /// Waits for the last ledgers, and ends the accounts.
    fn await_last_ledgers(&self, accounts: &mut Accounts) -> io::Result<()> {
        let all = (0..self.infos.len()).filter_map(|index| self.counts.target(index));
        let sent: u64 = all.map(|of| of.sent.load(Relaxed)).sum();
        let grace_ns = if accounts.receiver.is_some() { self.settings.sections.attribution.grace.as_nanos() } else { 0 };
        let until = Stamp::now().plus(LAST_LEDGERS_NS.saturating_add(grace_ns));
        while accounts.taken < sent && Stamp::now() < until {
            accounts.poll()?;
            std::thread::sleep(POLL_INTERVAL);
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

    fn report<T>(self, sending: SendingReport, compared: impl FnOnce(&ShadowSurface) -> T) -> ReplayReport<T> {
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
            order: replay_order(self.is_baseline_recorded),
            labels: self.labels,
        };
        let names = ReplayNames { file: self.settings.file, baseline: self.baseline };
        let requests = Some(sending.requests as u64);
        ReplayReport::of(names, &surface, &self.settings.gates, Some(sending), requests, compared)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "as map_err calls it")]
fn of_pairs(error: io::Error) -> ReplayError {
    ReplayError(format!("--pairs: {error}"))
}

/// The tables of names of a replay.
pub(crate) fn replay_labels(metrics: &lapwing_metrics::Config) -> Labels {
    Labels::new(metrics.max_routes, metrics.max_models, 64)
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
    let head = Arc::new(CopyHead { pair: pair_of(at)?, cause: CopyCause::Share, method, path, is_h2: http2, headers });
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
