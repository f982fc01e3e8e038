//! A replay from its recording to its report.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::accounts::{Accounts, PairsFile};
use super::args::ReplayArgs;
use super::lateness::Lateness;
use super::play::{Player, PreparedRequest, Receiver, Timing, captured, pair_of};
use super::report::{BaselineReport, ReplayReport, SendingReport, assumptions};
use super::schedule::{DueTimes, Pace};
use super::{ReplayError, checked};
use crate::app::data::Observing;
use crate::app::shadow::{AnswerSide, CompareWorker, CopiedHeaders, CopyTarget, Head, NamedTarget, compare_channel};
use crate::attribution::Aggregator;
use crate::attribution::otlp::OwnTraces;
use crate::config::Config;
use crate::export::{ShadowSurface, compared_targets};
use crate::ledger::{LabelId, Stamp, TraceMark};
use crate::metrics::{Counters, Labels, Registry};
use crate::net;
use crate::proxy::{CaptureBudget, CaptureLimits, DataPlane};
use crate::settings::ConfigHandle;
use crate::shadow::compare::Comparer;
use crate::shadow::recording::{FileLimits, PairsHeader, RecordedExchange, Recording, read_recording};
use crate::shadow::{CopyOrder, OutputAccounts, PairTable, ShadowCounters};

/// What the targets are compared with if there is one: the recorded answers.
const RECORDED: &str = "recorded";
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

/// The tables of names.
pub(super) fn labels(config: &Config) -> Labels {
    Labels::new(config.metrics.max_routes, config.metrics.max_models, 64)
}

/// Replays the recording in `file`.
pub(super) fn replay(
    args: &ReplayArgs,
    config: &Config,
    file: impl BufRead,
    limits: FileLimits,
) -> Result<ReplayReport, ReplayError> {
    let failed = |error: &dyn std::fmt::Display| ReplayError::Failed(error.to_string());
    let addresses = args.named().map_err(ReplayError::Usage)?;
    let recording = read_recording(file, limits).map_err(|error| ReplayError::File(args.file.display().to_string(), error))?;
    if recording.end.is_none() {
        eprintln!("lapwing replay: {}: the recording broke off; what is there is replayed", args.file.display());
    }
    let mut config = config.clone();
    config.shadow.timeout = args.timeout;
    config.shadow.concurrency = args.max_in_flight as usize;

    let mut engines = Vec::new();
    let named: Result<Vec<_>, _> =
        addresses.into_iter().map(|(name, target)| NamedTarget::resolve(name, &target, &config, &mut engines)).collect();
    let named = named.map_err(|error| failed(&error))?;
    let until = Stamp::now().plus(WARM_UP_NS);
    for engine in &engines {
        while let Err(reason) = engine.models().readiness() {
            if Stamp::now() > until {
                return Err(ReplayError::Failed(reason));
            }
            std::thread::sleep(LOOK);
        }
    }
    let is_baseline_recorded = named.len() == 1;
    let baseline = if is_baseline_recorded { RECORDED.to_owned() } else { named[0].name().to_owned() };
    let candidates: Vec<String> =
        named.iter().map(|target| target.name().to_owned()).skip(usize::from(!is_baseline_recorded)).collect();

    let labels = Arc::new(labels(&config));
    let counters = Arc::new(Counters::default());
    let observing = Observing {
        queue: Arc::new(ArrayQueue::new(1)),
        counters: counters.clone(),
        labels: labels.clone(),
        ours: Arc::new(OwnTraces::new(TraceMark::random())),
        receives_spans: false,
        tap: None,
        recording: Arc::default(),
        numbers: Arc::default(),
    };
    let ledgers = Arc::new(ArrayQueue::new(LEDGERS));
    let target_labels: Vec<LabelId> = named.iter().map(|target| labels.upstreams.intern(&target.label())).collect();
    let mut infos: Vec<_> = named.iter().map(NamedTarget::info).collect();
    let (mut stacks, mut receivers) = (Vec::new(), Vec::new());
    for (index, target) in named.into_iter().enumerate() {
        let (address, listener) = net::local();
        let (label, is_h2) = (target.label(), target.is_h2());
        let settings = observing.settings_of_copies(&config, &label, is_h2, &ledgers, &counters);
        let name = target.name().to_owned();
        let plane =
            DataPlane { settings: ConfigHandle::fixed(settings), target: target.into_target(), counters: counters.clone() };
        stacks.push((listener, plane));
        let target = CopyTarget::new(name, index, false, &address, &config.shadow);
        receivers.push(Receiver { target, permits: Semaphore::new(config.shadow.concurrency) });
    }

    let budget = CaptureBudget::new(CaptureLimits {
        total: usize::MAX / 2,
        body: usize::try_from(config.shadow.max_body.get()).unwrap_or(usize::MAX / 2).max(64 << 20),
        read_buffer: 0,
    });
    let skipped = usize::from(!is_baseline_recorded);
    let outputs =
        Arc::new(Mutex::new(OutputAccounts::new(Comparer::new(&config.shadow.compare), (0..candidates.len()).collect())));
    let compared = Arc::new(ArrayQueue::new(LEDGERS));
    let (comparing, to_compare) = compare_channel(COMPARISONS);
    let worker = CompareWorker::new(&config, outputs.clone(), compared.clone());
    let counts = Arc::new(ShadowCounters::new(receivers.len()));
    let lateness = Arc::new(Lateness::new().map_err(|error| failed(&error))?);
    let Recording { exchanges, .. } = recording;
    let arrivals: Vec<u64> = exchanges.iter().map(|exchange| exchange.at_ns).collect();
    let due = DueTimes::new(exchanges.len());
    let headers = CopiedHeaders::new(&config.shadow);
    let mut recorded = Vec::new();
    let mut requests = Vec::new();
    for (at, mut exchange) in exchanges.into_iter().enumerate() {
        recorded.push(exchange.account.take().filter(|_| is_baseline_recorded));
        let prepared = prepare(at, exchange, is_baseline_recorded, &headers, &budget);
        requests.push(prepared.ok_or_else(|| failed(&"a body of the recording is larger than 64 MiB and shadow.max_body"))?);
    }

    let started = Stamp::now();
    let patience_ns = args.timeout.as_nanos().saturating_add(PATIENCE_NS);
    let header = PairsHeader::new(baseline.clone(), candidates);
    let pairs_file = args.pairs.as_ref().map(|path| PairsFile::create(path, &header)).transpose();
    let pairs_file = pairs_file.map_err(|error| failed(&format!("--pairs: {error}")))?;
    let mut accounts = Accounts {
        aggregator: Aggregator::new(config.attribution.join(), counters.clone()),
        registry: Arc::new(Mutex::new(Registry::new(config.metrics, labels.clone(), counters))),
        pairs: Arc::new(Mutex::new(PairTable::new(target_labels[skipped..].to_vec(), patience_ns, started))),
        labels: labels.clone(),
        started,
        due: due.clone(),
        baseline: (!is_baseline_recorded).then(|| target_labels[0]),
        targets: target_labels[skipped..].to_vec(),
        recorded,
        ledgers,
        compared,
        file: pairs_file,
        taken: 0,
    };
    let pace = args.pace();
    let timing = match (pace, pace.due_ns(&arrivals)) {
        (Pace::Closed(clients), _) => Timing::Closed(clients),
        (_, due_ns) => Timing::Open(due_ns.unwrap_or_default()),
    };
    let (count, late, sent_counts) = (requests.len(), lateness.clone(), counts.clone());
    eprintln!("lapwing replay: sending {count} requests {pace}");
    let player =
        Player { requests, receivers, is_baseline_recorded, budget: budget.clone(), counters: counts, comparing, lateness, due };
    let playing = std::thread::Builder::new().name("lapwing-replay".to_owned());
    let playing = playing.spawn(move || player.run(stacks, timing)).map_err(|error| failed(&error))?;
    let comparing = std::thread::Builder::new().name("lapwing-compare".to_owned());
    let comparing = comparing.spawn(move || worker.run(&to_compare)).map_err(|error| failed(&error))?;
    while !(playing.is_finished() && comparing.is_finished()) {
        accounts.look().map_err(|error| failed(&format!("--pairs: {error}")))?;
        std::thread::sleep(LOOK);
    }
    let duration_ns = started.elapsed();
    let played = playing.join().unwrap_or_else(|_| Err(std::io::Error::other("the sending thread panicked")));
    played.map_err(|error| failed(&error))?;
    drop(comparing.join());
    let sent: u64 = (0..infos.len()).filter_map(|index| sent_counts.target(index)).map(|of| of.sent.load(Relaxed)).sum();
    let until = Stamp::now().plus(SETTLE_NS);
    while accounts.taken < sent && Stamp::now() < until {
        accounts.look().map_err(|error| failed(&format!("--pairs: {error}")))?;
        std::thread::sleep(LOOK);
    }
    accounts.finish().map_err(|error| failed(&format!("--pairs: {error}")))?;
    for engine in engines {
        engine.stop().map_err(|error| failed(&error))?;
    }

    let first = (!is_baseline_recorded).then(|| infos.remove(0));
    let baseline_report = first.and_then(|info| {
        let of = sent_counts.target(0)?;
        let (sent, answered, failed) = (of.sent.load(Relaxed), of.answered.load(Relaxed), of.failed.load(Relaxed));
        Some(BaselineReport { address: info.address, sent, answered, failed })
    });
    let surface = ShadowSurface {
        registry: accounts.registry,
        pairs: accounts.pairs,
        outputs,
        counters: Arc::new(candidates_only(&sent_counts, skipped, infos.len())),
        budget: Arc::new(move || budget.fill()),
        targets: infos.into(),
        order: CopyOrder::Concurrent,
        labels,
    };
    let lateness = late.snapshot();
    Ok(ReplayReport {
        file: args.file.display().to_string(),
        sending: Some(SendingReport {
            requests: count,
            pace: pace.to_string(),
            duration_ns,
            lateness,
            baseline: baseline_report,
        }),
        baseline,
        gates: checked(&args.gates, &surface, Some(lateness.p99_ns)),
        targets: compared_targets(&surface),
        assumptions: assumptions(),
    })
}

/// The counts of the targets that are compared.
fn candidates_only(all: &ShadowCounters, skipped: usize, count: usize) -> ShadowCounters {
    use crate::shadow::ShadowDrop;
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

/// A recorded request as it is sent. `None` if the budget has no room for a body.
fn prepare(
    at: usize,
    exchange: RecordedExchange,
    is_baseline_recorded: bool,
    headers: &CopiedHeaders,
    budget: &Arc<CaptureBudget>,
) -> Option<PreparedRequest> {
    let RecordedExchange { method, path, http2, headers: recorded_headers, body, answer, .. } = exchange;
    let mut headers = headers.of(&recorded_headers);
    headers.remove(http::header::CONTENT_LENGTH);
    let head = Arc::new(Head { pair: pair_of(at)?, method, path, is_h2: http2, headers });
    let recorded = match answer.filter(|_| is_baseline_recorded) {
        Some(answer) => {
            let trailers = answer.grpc_status.map(|status| HeaderMap::from_iter([(GRPC_STATUS, status.into())]));
            let body = captured(answer.body, trailers, budget)?;
            Some(AnswerSide { status: http::StatusCode::from_u16(answer.status).ok()?, headers: answer.headers, body })
        }
        None => None,
    };
    Some(PreparedRequest { head, body: captured(body, None, budget)?, recorded })
}

const GRPC_STATUS: http::HeaderName = http::HeaderName::from_static("grpc-status");
