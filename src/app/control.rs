//! The control plane: one thread that owns the aggregator, the admin server, the OTLP receiver and the forwarder.
//! Nothing here can slow a request; the data plane only leaves closed ledgers in a queue.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::aggregate::Aggregation;
use super::data;
use super::hosted::Models;
use super::record::Recorder;
use super::running::StartError;
use super::shadow::ShadowParts;
use crate::attribution::otlp::{self, ExportHandler, ForwardQueue, OwnTraces};
use crate::attribution::{Poller, Statistics};
use crate::config::Loaded;
use crate::cost::{DebtAssessor, ModelOptima};
use crate::export::{self, Surfaces};
use crate::ledger::{Ledger, Stamp, clock};
use crate::metrics::{Counters, Labels, Registry};
use crate::net::Target;
use crate::protocol::Tokenizers;
use crate::settings::{AdminToken, ConfigHandle};

/// How long forwarding the last telemetry may take at shutdown.
const FORWARD_DRAIN: Duration = Duration::from_secs(5);
/// How long `/readyz` waits for the upstream to accept a connection.
const PROBE: Duration = Duration::from_secs(1);

/// The phases of shutdown.
#[derive(Clone, Debug, Default)]
pub(super) struct Phases {
    /// Cancelled first: no more connections, no more requests.
    pub(super) accepting: CancellationToken,
    /// Cancelled when the last request has ended: the aggregator merges what waits, the forwarder sends what is queued, both end.
    pub(super) profiling: CancellationToken,
}

/// The control plane's listeners.
pub(super) struct Listeners {
    pub(super) admin: TcpListener,
    pub(super) otlp_grpc: Option<TcpListener>,
    pub(super) otlp_http: Option<TcpListener>,
}

/// The parts of the control plane.
pub(super) struct Control {
    pub(super) config: ConfigHandle<Loaded>,
    /// Who shows it may read what users sent.
    pub(super) admin_token: Option<AdminToken>,
    pub(super) listeners: Listeners,
    pub(super) counters: Arc<Counters>,
    pub(super) labels: Arc<Labels>,
    pub(super) ours: Arc<OwnTraces>,
    pub(super) queue: Arc<ArrayQueue<Ledger>>,
    pub(super) target: Target,
    pub(super) tokenizers: Tokenizers,
    /// What the models' forward is compared with.
    pub(super) optima: Arc<ModelOptima>,
    /// The engine's models, if it serves any.
    pub(super) models: Option<Models>,
    /// What shadow-serving shares, if there is a target.
    pub(super) shadow: Option<ShadowParts>,
    pub(super) recorder: Recorder,
    pub(super) phases: Phases,
}

impl Control {
    /// Starts the thread.
    pub(super) fn spawn(self) -> Result<JoinHandle<io::Result<()>>, StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let loaded = self.config.load();
        let config = &loaded.config;
        let guard = runtime.enter();
        let forward = match config.otlp_forward.on() {
            Some(to) => {
                let (headers, sampler) = (config.otlp_forward_headers.clone(), config.otlp_forward_sampler);
                let (own, counters) = (self.ours.clone(), self.counters.clone());
                Some(otlp::forwarder(to, headers, &config.attribution, sampler, own, counters)?)
            }
            None => None,
        };
        drop(guard);
        let (queue, worker) = forward.unzip();
        let run = move || runtime.block_on(self.run(queue, worker));
        std::thread::Builder::new().name("lapwing-control".to_owned()).spawn(run).map_err(StartError::Thread)
    }

    async fn run(self, forward: Option<ForwardQueue>, worker: Option<impl Future<Output = ()>>) -> io::Result<()> {
        let Self {
            config: whole,
            admin_token,
            listeners,
            counters,
            labels,
            ours: _,
            queue,
            target,
            tokenizers,
            optima,
            models,
            shadow,
            recorder,
            phases,
        } = self;
        let loaded = whole.load();
        let config = &loaded.config;
        let rules = whole.map(|loaded| data::rules(&loaded.config));
        let statistics = Arc::new(Statistics::default());
        let poller = Poller {
            poll: config.attribution.poll.clone(),
            interval: whole.map(|loaded| loaded.config.attribution.poll_interval.get()),
            upstream: config.upstream.clone(),
            statistics: statistics.clone(),
            labels: labels.clone(),
            rules: rules.clone(),
            counters: counters.clone(),
        };
        let (queue_capacity, max_body) = (queue.capacity(), config.attribution.otlp_max_body.get());
        let assessor = DebtAssessor::new(optima.clone(), labels.clone());
        let registry = Arc::new(Mutex::new(Registry::new(config.metrics, labels.clone(), counters.clone())));
        let (sender, spans) = mpsc::channel(config.attribution.otlp_queue);
        let handler = ExportHandler::new(rules, counters.clone(), sender, forward);
        // the admin server and the receiver outlive the last request: a scrape or a span may still arrive while requests drain
        let stop = phases.profiling.clone();

        let joining = whole.map(|loaded| loaded.config.attribution.clone());
        let aggregation = Aggregation::new(joining, assessor, queue, registry.clone(), counters.clone(), statistics);
        let aggregation = aggregation.tokenizing(tokenizers).shadowing(shadow.clone()).recording(recorder.accounts.clone());
        let aggregation = aggregation.run(spans, stop.clone());
        let hosted = models.clone();
        let surfaces = Surfaces {
            engine: Arc::new(move || hosted.as_ref().map(Models::list).unwrap_or_default()),
            shadow: shadow.map(|parts| parts.surface(config.shadow.order, &labels)),
            registry,
            counters,
            optima,
            config: whole.map(Loaded::masked_json),
            admin_token,
            record: Arc::new(move |options| recorder.start(options)),
            ready: Arc::new(move || probe(target.clone(), models.clone())),
            draining: phases.accepting.clone(),
            limits: whole.map(move |loaded| export::ProfilerLimits {
                queue: queue_capacity,
                pending: loaded.config.attribution.max_pending,
                orphan_spans: loaded.config.attribution.max_orphan_spans,
            }),
            started_unix_ns: clock::unix_ns(),
            started: Stamp::now(),
        };
        let admin = export::serve(listeners.admin, surfaces, stop.clone());
        let grpc = listeners.otlp_grpc.map(|l| otlp::serve_grpc(l, handler.clone(), max_body, stop.clone()));
        let http = listeners.otlp_http.map(|l| otlp::serve_http(l, handler.clone(), max_body, stop.clone()));
        drop(handler); // now only the servers hold senders: when they end, the forwarder ends

        let forwarding = async {
            let Some(worker) = worker else { return };
            let too_late = async {
                stop.cancelled().await;
                tokio::time::sleep(FORWARD_DRAIN).await;
            };
            tokio::select! {
                () = worker => {}
                () = too_late => tracing::warn!("otlp_forward: some telemetry could not be passed on before the end"),
            }
        };
        let polling = poller.run(phases.accepting.clone());
        let ((), admin, grpc, http, (), ()) =
            tokio::join!(aggregation, admin, optional(grpc), optional(http), forwarding, Box::pin(polling));
        admin.and(grpc).and(http)
    }
}

async fn optional(server: Option<impl Future<Output = io::Result<()>>>) -> io::Result<()> {
    match server {
        Some(server) => server.await,
        None => Ok(()),
    }
}

/// Whether the engine's models are warm and can run, and the upstream accepts.
fn probe(target: Target, models: Option<Models>) -> export::Probing {
    Box::pin(async move {
        if let Some(models) = models {
            models.readiness()?;
        }
        target.probe(PROBE).await.map_err(|error| format!("cannot connect to the upstream {target}: {error}"))
    })
}
