//! The control plane: a thread for the aggregator and the poller, one for the admin server, and one for the OTLP receivers and the
//! forwarder, so that `/livez` answers and exchanges are merged whatever exporters send. Nothing here can slow a request; the data
//! plane only leaves closed ledgers in a queue.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::access_log::AccessLog;
use super::aggregate::{Aggregation, DiagnosisFeed, LeverFeeds};
use super::hosted::Models;
use super::receivers::Receivers;
use super::start_error::StartError;
use super::telemetry;
use super::threads::spawn;
use super::upstreams::RunningUpstreams;
use super::warming::Warming;
use crate::config::{Config, Loaded};
use lapwing_admin::{DiagnosisSurface, HostedModels, Probe, Surfaces};
use lapwing_attribution::otlp::OwnTraces;
use lapwing_attribution::{IncomingSpan, Rules};
use lapwing_cache::{Caching, SharedKeeper};
use lapwing_console::diagnose::words;
use lapwing_diagnosis::cost::{DebtAssessor, ModelOptima};
use lapwing_diagnosis::{CertificateValidity, ConnectionStates, Diagnostician, TelemetrySettings, TelemetrySources};
use lapwing_dispatch::{DispatchLearning, Dispatching};
use lapwing_ledger::{Ledger, Stamp, clock};
use lapwing_metrics::{Counters, Labels, Registry, Shown};
use lapwing_net::{BoundListener, ClientIdentity};
use lapwing_outbound::{Downstreams, OutboundListener};
use lapwing_protocol::Tokenizers;
use lapwing_protocol::trace_context::LearntContexts;
use lapwing_proxy::{Levers, TraceSampling};
use lapwing_settings::{AdminToken, ConfigHandle};
use lapwing_shadow::ShadowParts;
use lapwing_shadow::recording::Recorder;
use lapwing_shadow::split::LiveSplit;
use lapwing_shadow::switchback::LeverTrials;

/// How long `/readyz` waits for the upstream to accept a connection.
const PROBE: Duration = Duration::from_secs(1);

/// The phases of shutdown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phases {
    /// Cancelled when clients are to go elsewhere: requests are served on.
    pub(crate) leaving: CancellationToken,
    /// Cancelled first at the stop: no more connections, no more requests.
    pub(crate) accepting: CancellationToken,
    /// Cancelled when the last request has ended: the aggregator merges what waits, the forwarder sends what is queued, both end.
    pub(crate) profiling: CancellationToken,
}

/// The control plane's listeners.
pub(crate) struct Listeners {
    pub(crate) admin: BoundListener,
    pub(crate) otlp_grpc: Option<BoundListener>,
    pub(crate) otlp_http: Option<BoundListener>,
    /// Of `downstreams`, in their order.
    pub(crate) outbound: Vec<OutboundListener>,
    /// The certificates that are shown here and to upstreams.
    pub(crate) certificates: ConfigHandle<Vec<CertificateValidity>>,
}

/// The parts of the control plane.
pub(crate) struct Control {
    pub(crate) config: ConfigHandle<Loaded>,
    /// What is shown of it.
    pub(crate) shown_config: ConfigHandle<serde_json::Value>,
    /// Who shows it may read what users sent.
    pub(crate) admin_token: Option<AdminToken>,
    /// Gets a line for each exchange, if it is on.
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) listeners: Listeners,
    pub(crate) counters: Arc<Counters>,
    pub(crate) labels: Arc<Labels>,
    pub(crate) ours: Arc<OwnTraces>,
    /// Where the join notes which trace contexts the upstream continues.
    pub(crate) contexts: Arc<LearntContexts>,
    pub(crate) queue: Arc<ArrayQueue<Box<Ledger>>>,
    pub(crate) upstreams: RunningUpstreams,
    /// Whom collectors have to prove themselves to.
    pub(crate) collector: Arc<ClientIdentity>,
    /// The port that clients connect to.
    pub(crate) listen_port: u16,
    pub(crate) tokenizers: Tokenizers,
    /// What the models' forward is compared with.
    pub(crate) optima: Arc<ModelOptima>,
    /// The engine's models, if it serves any.
    pub(crate) models: Option<Models>,
    /// What shadow-serving shares, if there is a target.
    pub(crate) shadow: Option<ShadowParts>,
    pub(crate) recorder: Recorder,
    pub(crate) phases: Phases,
    /// What a trial turns.
    pub(crate) levers: Levers,
    /// Where requests wait.
    pub(crate) dispatching: Dispatching,
    /// What may answer requests again.
    pub(crate) caching: Caching,
    /// The background of the Redis that it shares, if it does.
    pub(crate) shared: Option<SharedKeeper>,
    /// What the model server calls through Lapwing, if it does.
    pub(crate) downstreams: Option<Downstreams>,
}

impl Control {
    /// Starts the threads.
    pub(crate) fn spawn(self) -> Result<Vec<JoinHandle<io::Result<()>>>, StartError> {
        let (whole, counters, labels, phases) = (self.config, self.counters, self.labels, self.phases);
        let (upstreams, downstreams, listeners) = (self.upstreams, self.downstreams, self.listeners);
        let (ours, collector, optima, models) = (self.ours, self.collector, self.optima, self.models);
        let recorder = self.recorder;
        let (loaded, stop) = (whole.load(), phases.profiling.clone());
        let config = &loaded.config;
        let rules = whole.map(|loaded| loaded.config.attribution.rules());
        let (queue_capacity, statistics) = (self.queue.capacity(), upstreams.statistics());
        let polling =
            join_all(upstreams.pollers(&whole, &labels, &rules, &counters).map(|one| one.run(phases.accepting.clone())));
        let assessor = DebtAssessor::new(optima.clone(), labels.clone());
        let registry = Arc::new(Mutex::new(Registry::new(config.metrics.clone(), labels.clone(), counters.clone())));
        let (sender, spans) = mpsc::channel(config.attribution.otlp_queue);
        // the admin server and the receiver outlive the last request: a scrape or a span may still arrive while requests drain
        let receivers = receivers((listeners.otlp_grpc, listeners.otlp_http), (&ours, rules), &counters, sender, &stop);
        let sources = telemetry_sources(&whole, &receivers, listeners.certificates);
        let (feed, diagnosis) = diagnosis(config, &labels, sources, (self.listen_port, upstreams.ports())).unzip();
        let levers = lever_feeds(&whole, (&upstreams, &labels), self.levers, self.dispatching);
        let (ready, warming) = (upstream_readiness(upstreams.clone(), models.clone()), Warming::of(config, self.listen_port));
        let join = whole.map(|loaded| loaded.config.attribution.clone());
        let aggregation = Aggregation::new(join, assessor, self.queue, registry.clone(), counters.clone(), statistics);
        let aggregation =
            aggregation.tokenizing(self.tokenizers).shadowing(self.shadow.clone()).recording(recorder.accounts.clone());
        let aggregation =
            aggregation.logging(self.access_log).diagnosing(feed).learning_contexts(self.contexts).moving(levers.clone());
        let surfaces = Surfaces {
            upstreams: upstreams.shown(),
            engine: hosted_models(models.clone()),
            split: levers.split,
            trials: levers.trials,
            dispatch: levers.dispatch,
            cache: Some(self.caching),
            downstreams: downstreams.clone(),
            shadow: self.shadow.map(|parts| parts.surface(config.shadow.order, &labels)),
            recording: recorder.counters.clone(),
            diagnosis,
            registry,
            counters,
            optima,
            config: self.shown_config,
            config_schema: Arc::new(Loaded::<Config>::json_schema()),
            admin_token: self.admin_token,
            admin_token_for: config.admin_token_for,
            record: Arc::new(move |options| recorder.start(options)),
            ready: readiness(ready.clone(), warming.clone()),
            draining: phases.accepting.clone(),
            leaving: phases.leaving.clone(),
            limits: limits(&whole, queue_capacity),
            started_unix_ns: clock::unix_ns(),
            started: Stamp::now(),
        };
        // cancelled when everything is merged
        let merged = CancellationToken::new();
        let merging = merged.clone().drop_guard();
        let outbound = outbound(downstreams.clone(), listeners.outbound, &stop)?;
        let mut threads: Vec<_> = receivers.spawn(config, &collector)?.into_iter().chain(outbound).collect();
        if let Some(shared) = self.shared {
            threads.push(spawn_shared(shared, &stop)?);
        }
        let telemetry = telemetry::spawn((&config.telemetry, &collector), &surfaces, ours, merged)?;
        threads.extend(telemetry.thread);
        threads.extend(warming.map(|warming| warming.spawn(&surfaces, ready, &phases.accepting)).transpose()?);
        let aggregation = aggregation.sampling(telemetry.sampler).joining(downstreams);
        threads.push(spawn("lapwing-admin", async move || lapwing_admin::serve(listeners.admin, surfaces, stop).await)?);
        let aggregating = async move || {
            aggregation.run(spans, phases.profiling).await;
            drop(merging);
        };
        threads.push(spawn_control(aggregating, async move || drop(polling.await))?);
        Ok(threads)
    }
}

/// Starts the thread that passes the model server's own calls on; `None` if it makes none through Lapwing.
fn outbound(
    downstreams: Option<Downstreams>,
    listeners: Vec<OutboundListener>,
    stop: &CancellationToken,
) -> Result<Option<JoinHandle<io::Result<()>>>, StartError> {
    let (Some(all), stop) = (downstreams, stop.clone()) else { return Ok(None) };
    spawn("lapwing-outbound", async move || lapwing_outbound::serve(listeners, all, stop).await).map(Some)
}

/// Starts the thread that has the connection to the Redis in which answers are shared.
fn spawn_shared(shared: SharedKeeper, stop: &CancellationToken) -> Result<JoinHandle<io::Result<()>>, StartError> {
    let stop = stop.clone();
    spawn("lapwing-redis", async move || {
        tokio::select! {
            () = shared.run() => {}
            () = stop.cancelled() => {}
        }
        Ok(())
    })
}

/// What takes spans and sends them as `spans`, until `stop`.
fn receivers(
    (grpc, http): (Option<BoundListener>, Option<BoundListener>),
    (ours, rules): (&Arc<OwnTraces>, ConfigHandle<Rules>),
    counters: &Arc<Counters>,
    spans: mpsc::Sender<Vec<IncomingSpan>>,
    stop: &CancellationToken,
) -> Receivers {
    Receivers {
        grpc,
        http,
        own_traces: ours.clone(),
        rules,
        counters: counters.clone(),
        spans,
        refusals: Arc::default(),
        stop: stop.clone(),
    }
}

/// What judges and moves the levers of the data plane.
fn lever_feeds(
    whole: &ConfigHandle<Loaded>,
    (upstreams, labels): (&RunningUpstreams, &Arc<Labels>),
    levers: Levers,
    dispatching: Dispatching,
) -> LeverFeeds {
    let places = upstreams.statistics().into_iter().map(|(label, _)| label);
    let dispatch = DispatchLearning::new(dispatching, places, (levers.dispatch.clone(), levers.hedge.clone()), Stamp::now());
    LeverFeeds {
        split: live_split(whole, upstreams, labels),
        trials: Some(lever_trials(whole, levers)),
        dispatch: Some(Arc::new(Mutex::new(dispatch))),
    }
}

/// What judges the live split between `upstreams`, if there is one.
fn live_split(whole: &ConfigHandle<Loaded>, upstreams: &RunningUpstreams, labels: &Arc<Labels>) -> Option<Arc<Mutex<LiveSplit>>> {
    let (traffic, candidate) = upstreams.split.clone()?;
    let config = whole.map(|loaded| loaded.config.split.clone());
    Some(Arc::new(Mutex::new(LiveSplit::new(traffic, config, candidate, labels.clone(), Stamp::now()))))
}

/// What tries a lever once the configuration names one, which may be at any time.
fn lever_trials(whole: &ConfigHandle<Loaded>, levers: Levers) -> Arc<Mutex<LeverTrials>> {
    let config = whole.map(|loaded| loaded.config.trial.clone());
    Arc::new(Mutex::new(LeverTrials::new(config, levers, rand::random(), Stamp::now())))
}

/// Where it shows that something of the telemetry is missing.
fn telemetry_sources(
    whole: &ConfigHandle<Loaded>,
    receivers: &Receivers,
    certificates: ConfigHandle<Vec<CertificateValidity>>,
) -> TelemetrySources {
    let receives_spans = receivers.grpc.is_some() || receivers.http.is_some();
    let settings = whole.map(move |loaded| TelemetrySettings {
        receives_spans,
        samples_traces: loaded.config.trace_sampling != TraceSampling::Off,
        reads_bodies: loaded.config.protocol.read_bodies,
    });
    TelemetrySources { counters: receivers.counters.clone(), settings, certificates, refusals: receivers.refusals.clone() }
}

/// Starts the thread that aggregates and polls.
fn spawn_control(
    aggregate: impl AsyncFnOnce() + Send + 'static,
    poll: impl AsyncFnOnce() + Send + 'static,
) -> Result<JoinHandle<io::Result<()>>, StartError> {
    spawn("lapwing-control", async move || {
        tokio::join!(aggregate(), Box::pin(poll()));
        Ok(())
    })
}

/// Where exchanges go to be diagnosed, and where the diagnosis is read; `None` where configuration turned it off. `ports` are the one that
/// clients connect to and the upstreams'.
fn diagnosis(
    config: &Config,
    labels: &Arc<Labels>,
    sources: TelemetrySources,
    ports: (u16, Vec<u16>),
) -> Option<(DiagnosisFeed, DiagnosisSurface)> {
    if config.diagnosis.enabled == Shown::Off {
        return None;
    }
    let diagnostician = Diagnostician::new(config.metrics.budgets.clone(), labels.clone()).watching(sources);
    let diagnostician = Arc::new(Mutex::new(diagnostician));
    let surface = DiagnosisSurface::of(&diagnostician, words, config.diagnosis.window);
    let (listen_port, upstream_ports) = ports;
    let connections = Arc::new(move || ConnectionStates::read(listen_port, &upstream_ports));
    Some((DiagnosisFeed::new(diagnostician), surface.with_connections(connections)))
}

/// The bounds of what waits to be joined and merged.
fn limits(whole: &ConfigHandle<Loaded>, queue: usize) -> ConfigHandle<lapwing_metrics::views::ProfilerLimits> {
    whole.map(move |loaded| lapwing_metrics::views::ProfilerLimits {
        queue,
        pending: loaded.config.attribution.max_pending,
        orphan_spans: loaded.config.attribution.max_orphan_spans,
    })
}

/// What the admin server shows of the engine's models.
fn hosted_models(models: Option<Models>) -> HostedModels {
    Arc::new(move || models.as_ref().map(Models::list).unwrap_or_default())
}

/// Whether the engine's models are warm and can run, and an upstream accepts.
fn upstream_readiness(upstreams: RunningUpstreams, models: Option<Models>) -> Probe {
    Arc::new(move || {
        let (upstreams, models) = (upstreams.clone(), models.clone());
        Box::pin(async move {
            if let Some(models) = models {
                models.readiness()?;
            }
            upstreams.readiness(PROBE).await
        })
    })
}

/// Whether requests can be answered, and the cache is warm, if it has to be.
fn readiness(upstream: Probe, warming: Option<Warming>) -> Probe {
    let Some(warming) = warming else { return upstream };
    Arc::new(move || {
        let (upstream, warming) = (upstream(), warming.clone());
        Box::pin(async move { upstream.await.and_then(|()| warming.readiness()) })
    })
}
