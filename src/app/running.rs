//! A running Lapwing: starts everything in order, and stops it in order without losing requests in flight.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_queue::ArrayQueue;

use super::access_log::AccessLog;
use super::control::{self, Control, Phases};
use super::data::{self, Observing};
use super::hosted::{self, Hosted};
use super::identities::{Identities, IdentityWatch};
use super::in_force::InForce;
use super::listening::bind;
use super::outbound;
use super::shadow::{self, RunningShadow};
pub use super::start_error::StartError;
use super::telemetry;
use super::threads::join;
use super::upstreams::RunningUpstreams;
use crate::config::{Config, Loaded, Reloaded, Sources};
use lapwing_cache::{Caching, SharedAnswers, SharedKeeper};
use lapwing_console::admin_token;
use lapwing_diagnosis::cost::ModelOptima;
use lapwing_dispatch::MAX_UPSTREAMS;
use lapwing_hydrate::Hydrator;
use lapwing_ledger::TraceMark;
use lapwing_metrics::{Counters, Labels};
use lapwing_net::{BoundListener, ServerIdentity, Speaks};
use lapwing_outbound::Downstreams;
use lapwing_protocol::Tokenizers;
use lapwing_protocol::trace_context::LearntContexts;
use lapwing_proxy::{DataPlane, Levers};
use lapwing_settings::{Bind, ConfigHandle, Fault, File, Switch};
use lapwing_shadow::recording::Recorder;

/// Closed ledgers that may wait for the aggregator, which reads them every 20 ms: enough for 200,000 requests per second.
const QUEUE: usize = 4096;
/// The labels of upstreams: of each, of none, and of shadow targets.
const UPSTREAM_LABELS: usize = 2 * MAX_UPSTREAMS;

/// The addresses on which a running Lapwing listens.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Requests.
    pub listen: SocketAddr,
    /// The admin surfaces.
    pub admin: SocketAddr,
    /// OTLP over gRPC, unless off.
    pub otlp_grpc: Option<SocketAddr>,
    /// OTLP over HTTP, unless off.
    pub otlp_http: Option<SocketAddr>,
    /// The engine's models, if there are any.
    pub engine: Option<SocketAddr>,
}

/// A running Lapwing. Dropping it stops nothing: call [`Running::stop`].
#[derive(Debug)]
pub struct Running {
    addresses: Addresses,
    phases: Phases,
    data: Vec<JoinHandle<io::Result<()>>>,
    control: Vec<JoinHandle<io::Result<()>>>,
    engine: Option<Hosted>,
    shadow: RunningShadow,
    in_force: InForce,
    watches: Vec<IdentityWatch>,
}

/// Binds every address, then starts the control plane and the data plane.
///
/// # Errors
///
/// If an address cannot be listened on, or a thread cannot be started. Nothing is left running then.
pub fn start(loaded: &Loaded) -> Result<Running, StartError> {
    let counters = Arc::new(Counters::default());
    let in_force = InForce::new(loaded, counters.clone());
    let whole = in_force.handle();
    let config = &loaded.config;
    let (identities, watches) = Identities::load(config, counters.clone()).map_err(StartError::Tls)?;
    let unread = Hydrator::unread_files(&config.hydrate);
    if !unread.is_empty() {
        return Err(StartError::Hydrate(unread));
    }
    let (listen, listeners, listeners_of_control) = listeners(config, &identities, &counters)?;
    let admin_token = admin_token::of(&config.admin_token, &config.admin_token_file).map_err(StartError::AdminToken)?;
    let labels = Arc::new(Labels::bounded_by(&config.metrics, UPSTREAM_LABELS));
    let access_log = access_log(config, &labels, &counters)?;
    let engine = engine(config)?;
    let addresses = Addresses::new(listen, &listeners_of_control, engine.as_ref())?;

    let ours = Arc::new(telemetry::own_traces(&config.telemetry, TraceMark::random()));
    let contexts = Arc::<LearntContexts>::default();
    let queue = Arc::new(ArrayQueue::new(QUEUE));
    let (phases, levers) = (Phases::default(), Levers::default());
    let upstreams = RunningUpstreams::of(&whole, &labels, &identities.upstreams, &levers);
    let dispatching = upstreams.placed.dispatched_by(whole.map(|loaded| loaded.config.dispatch.clone()));
    let (caching, shared) = caching(&whole, &upstreams)?;
    let tokenizers = Tokenizers::load(&config.protocol)?;
    let optima = optima(config, engine.as_ref())?;

    let mut observing = Observing {
        queue: queue.clone(),
        counters: counters.clone(),
        labels: labels.clone(),
        upstream: upstreams.unplaced,
        ours: ours.clone(),
        contexts: contexts.clone(),
        receives_spans: addresses.receives_spans(),
        tap: None,
        recording: Arc::default(),
        numbers: Arc::default(),
    };
    let (shadow, shadow_runs) = shadow::start(config, (&upstreams, &identities.upstreams.shared), &observing.target_stacks())?;
    let optima = Arc::new(optima.with_engines(shadow_runs.optima(&config.shadow.targets)));
    observing.tap = shadow.as_ref().map(|parts| parts.tap.clone());

    let control = Control {
        config: whole.clone(),
        shown_config: in_force.shown(),
        admin_token,
        access_log,
        listeners: listeners_of_control,
        counters: counters.clone(),
        labels,
        ours,
        contexts,
        queue,
        upstreams: upstreams.clone(),
        collector: identities.collector.clone(),
        listen_port: addresses.listen.port(),
        tokenizers,
        optima,
        models: engine.as_ref().map(Hosted::models),
        shadow,
        recorder: recorder(&whole, &observing, &phases),
        phases: phases.clone(),
        levers: levers.clone(),
        dispatching: dispatching.clone(),
        caching: caching.clone(),
        shared,
        downstreams: Downstreams::of(&config.downstreams, &counters),
    }
    .spawn()?;

    let parts = DataPlane {
        settings: whole.map(move |loaded| observing.settings(&loaded.config)),
        upstreams: upstreams.placed,
        dispatch: Some(dispatching),
        cache: Some(caching),
        hydrate: config.hydrate.as_slice().into(),
        counters: counters.clone(),
        levers,
        leave: phases.leaving.clone(),
    };
    let drain = whole.map(|loaded| loaded.config.drain_timeout.get());
    let data = data::spawn(listeners, &parts, &phases.accepting, &drain).map_err(|error| phases.stop_for(error))?;
    Ok(Running { addresses, phases, data, control, engine, shadow: shadow_runs, in_force, watches })
}

/// Binds all addresses but the engine's: that of clients, for each worker, and those of the control plane.
fn listeners(
    config: &Config,
    identities: &Identities,
    counters: &Arc<Counters>,
) -> Result<(SocketAddr, Vec<BoundListener>, control::Listeners), StartError> {
    let over_tls = |listener: TcpListener, identity: &Option<Arc<ServerIdentity>>, speaks| {
        BoundListener::from(listener).over_tls(identity.as_ref(), speaks, counters)
    };
    let (listen, clients) = data::bind(config.listen.get(), config.proxy.worker_threads(), config.proxy.tcp_backlog)
        .map_err(|cause| StartError::Bind { key: "listen", address: config.listen.get(), cause, hint: "" })?;
    let admin = bind("admin", config.admin, "")?;
    let (grpc, http) = (receiver("otlp_grpc", &config.otlp_grpc)?, receiver("otlp_http", &config.otlp_http)?);
    let clients = clients.into_iter().map(|listener| over_tls(listener, &identities.listen, Speaks::Both)).collect();
    let of_control = control::Listeners {
        admin: over_tls(admin, &identities.admin, Speaks::Http1),
        otlp_grpc: grpc.map(|listener| over_tls(listener, &identities.otlp, Speaks::Both)),
        otlp_http: http.map(|listener| over_tls(listener, &identities.otlp, Speaks::Both)),
        outbound: outbound::listeners(config, identities, counters)?,
        certificates: identities.certificates(),
    };
    Ok((listen, clients, of_control))
}

/// What writes a line for each exchange, if it is on.
fn access_log(config: &Config, labels: &Arc<Labels>, counters: &Arc<Counters>) -> Result<Option<AccessLog>, StartError> {
    let open = |file: &File| AccessLog::open(file.path(), labels.clone(), counters.clone());
    config.access_log.on().map(open).transpose().map_err(StartError::AccessLog)
}

/// The engine's models, if it serves any.
fn engine(config: &Config) -> Result<Option<Hosted>, StartError> {
    let start = || Hosted::start(&config.engine, config.proxy.worker_threads(), config.drain_timeout);
    Ok(config.engine.is_on().then(start).transpose()?)
}

/// What the models' forward is compared with.
fn optima(config: &Config, engine: Option<&Hosted>) -> Result<ModelOptima, StartError> {
    let served = engine.map(Hosted::models);
    let hosted = Arc::new(move |model: &str| served.as_ref()?.optimum(model));
    Ok(ModelOptima::new(&config.cost, hosted::plan_demand, hosted)?)
}

/// What may answer requests again, and the background of the Redis that it shares, if it does.
fn caching(whole: &ConfigHandle<Loaded>, upstreams: &RunningUpstreams) -> Result<(Caching, Option<SharedKeeper>), StartError> {
    let config = &whole.load().config.cache;
    let secret = SharedAnswers::secret("cache.redis", &config.redis).map_err(StartError::Cache)?;
    let secret = secret.unwrap_or_else(rand::random);
    let caching = upstreams.placed.cached_by(secret, whole.map(|loaded| loaded.config.cache.clone()));
    let shared = caching.shared_by(config).map_err(StartError::Cache)?;
    Ok((caching, shared))
}

/// What writes recordings, while a client asks for one.
fn recorder(whole: &ConfigHandle<Loaded>, observing: &Observing, phases: &Phases) -> Recorder {
    Recorder {
        settings: whole.map(|loaded| shadow::settings(&loaded.config)),
        switch: observing.recording.clone(),
        accounts: Arc::default(),
        labels: observing.labels.clone(),
        counters: Arc::default(),
        stop: phases.accepting.clone(),
    }
}

impl Addresses {
    fn new(listen: SocketAddr, control: &control::Listeners, engine: Option<&Hosted>) -> Result<Self, StartError> {
        let local = |listener: &BoundListener| listener.local_addr().map_err(StartError::Thread);
        Ok(Self {
            listen,
            admin: local(&control.admin)?,
            otlp_grpc: control.otlp_grpc.as_ref().map(local).transpose()?,
            otlp_http: control.otlp_http.as_ref().map(local).transpose()?,
            engine: engine.map(Hosted::address),
        })
    }

    const fn receives_spans(&self) -> bool {
        self.otlp_grpc.is_some() || self.otlp_http.is_some()
    }
}

impl Running {
    /// The addresses on which it listens.
    #[must_use]
    pub const fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Loads the sources again, and puts in force what is not fixed at the start. New connections use it; requests in flight end by what
    /// they began with.
    ///
    /// # Errors
    ///
    /// All faults; then nothing changes.
    pub fn reload(&self, sources: &Sources) -> Result<Reloaded, Vec<Fault>> {
        self.in_force.reload(sources)
    }

    /// Takes what looks whether certificates and keys have changed.
    pub(crate) fn take_watches(&mut self) -> Vec<IdentityWatch> {
        std::mem::take(&mut self.watches)
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<Loaded> {
        self.in_force.load()
    }

    /// What it does, in a line.
    pub(crate) fn summary(&self) -> String {
        let (at, loaded) = (self.addresses, self.config());
        format!("requests to {} go to {}; figures are on {}", at.listen, upstreams(&loaded.config), at.admin)
    }

    /// Stops accepting, drains requests in flight for up to `drain_timeout`, merges waiting exchanges, forwards queued telemetry,
    /// and ends. Blocks the calling thread until then.
    ///
    /// # Errors
    ///
    /// The error with which a thread ended.
    pub fn stop(self) -> io::Result<()> {
        self.phases.accepting.cancel();
        // wait for every thread, also after one has failed
        let data = self.data.into_iter().map(join).fold(Ok(()), io::Result::and);
        let data = self.shadow.stop().and(data);
        // drained requests may have used it
        let data = self.engine.map_or(Ok(()), Hosted::stop).and(data);
        self.phases.profiling.cancel();
        self.control.into_iter().map(join).fold(data, |before, ended| ended.and(before))
    }

    /// Whether a thread has ended unexpectedly.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.control.iter().any(JoinHandle::is_finished)
            || self.engine.as_ref().is_some_and(Hosted::has_failed)
            || self.data.iter().any(JoinHandle::is_finished)
    }
}

/// Where requests go: the upstream, or each of several by name.
pub(crate) fn upstreams(config: &Config) -> String {
    if config.upstreams.is_empty() {
        return config.upstream.to_string();
    }
    config.upstreams.iter().map(|(name, one)| format!("{name}={}", one.url)).collect::<Vec<_>>().join(" ")
}

fn receiver(key: &'static str, to: &Switch<Bind>) -> Result<Option<TcpListener>, StartError> {
    to.on().map(|to| bind(key, *to, " (choose another address, or off; the upstream's exporter must send to it)")).transpose()
}

impl Phases {
    /// A thread could not be started: the others end.
    fn stop_for(&self, error: io::Error) -> StartError {
        self.accepting.cancel();
        self.profiling.cancel();
        StartError::Thread(error)
    }
}
