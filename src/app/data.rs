//! The data plane's threads: one current-thread runtime per worker, which only proxies requests.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use lapwing_attribution::adapters;
use lapwing_attribution::otlp::OwnTraces;
use lapwing_ledger::{LabelId, Ledger};
use lapwing_metrics::{Counters, Labels};
use lapwing_net::{BoundListener, Sharing};
use lapwing_protocol::Protocols;
use lapwing_protocol::trace_context::{ContextPolicy, LearntContexts};
use lapwing_proxy::{ConnectionSettings, ContinuedTrace, DataPlane, Profiler, StackTap, TraceSampling, Tracing};
use lapwing_settings::ConfigHandle;
use lapwing_shadow::{PairNumbers, RecordingSwitch, Sampler, ShadowTap, TapBranch, TapParts, TargetStacks};

/// The parts of the profiler that outlive each configuration.
pub(crate) struct Observing {
    pub(crate) queue: Arc<ArrayQueue<Box<Ledger>>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) labels: Arc<Labels>,
    /// The label of requests that were sent to no upstream so far: the only one's, if there is one.
    pub(crate) upstream: LabelId,
    pub(crate) ours: Arc<OwnTraces>,
    /// The trace contexts that the upstream was found to continue.
    pub(crate) contexts: Arc<LearntContexts>,
    /// Whether a receiver of spans listens. Without one no span can arrive, so requests keep their trace fields unchanged.
    pub(crate) receives_spans: bool,
    /// What the tap hands copies over with, if there is a shadow target.
    pub(crate) tap: Option<Arc<TapParts>>,
    /// Whether requests are recorded.
    pub(crate) recording: Arc<RecordingSwitch>,
    /// The numbers of copied requests.
    pub(crate) numbers: Arc<PairNumbers>,
}

/// Tells the forwarder of every client's trace in which Lapwing's span takes the place of the client's.
fn continues(own: Arc<OwnTraces>) -> impl Fn(ContinuedTrace) + Send + Sync {
    move |continued| {
        if continued.own == continued.span {
            own.record_parent(continued.span, continued.parent);
        } else {
            own.record_other(continued.span, continued.own);
        }
        if continued.is_forced {
            own.force(continued.trace);
        }
    }
}

impl Observing {
    /// What the stacks in front of shadow targets share.
    pub(crate) fn target_stacks(&self) -> TargetStacks {
        TargetStacks {
            labels: self.labels.clone(),
            mark: self.ours.mark(),
            contexts: self.contexts.clone(),
            receives_spans: self.receives_spans,
        }
    }

    /// The settings of connections that are accepted while `config` is in force.
    pub(crate) fn settings(&self, config: &Config) -> ConnectionSettings {
        let ours = self.ours.clone();
        let tracing = Tracing {
            sampling: if self.receives_spans { config.trace_sampling } else { TraceSampling::Off },
            mark: ours.mark(),
            // without a forwarder nobody would ask
            continued: config
                .otlp_forward
                .is_on()
                .then(|| Arc::new(continues(ours)) as Arc<dyn Fn(ContinuedTrace) + Send + Sync>),
            contexts: ContextPolicy::new(config.trace_contexts, self.contexts.clone()),
        };
        let protocols = Arc::new(Protocols::new(&config.protocol));
        let observer = Profiler::new(
            self.queue.clone(),
            self.counters.clone(),
            self.labels.clone(),
            self.upstream,
            protocols.clone(),
            adapters::reader(Arc::new(config.attribution.rules()), self.counters.clone()),
        );
        ConnectionSettings {
            config: config.proxy.clone(),
            hold: config.hold.clone(),
            respond_server_timing: config.respond_server_timing,
            tracing,
            tap: Some(self.tap(config, protocols)),
            observer: Arc::new(observer),
        }
    }

    /// The tap that copies by `config`, and for recordings.
    fn tap(&self, config: &Config, protocols: Arc<Protocols>) -> StackTap {
        // there is one if there are targets, which are fixed at the start
        let shadow = self.tap.clone().map(|parts| TapBranch { parts, sampler: Sampler::new(&config.shadow) });
        let (recording, numbers) = (self.recording.clone(), self.numbers.clone());
        ShadowTap { shadow, recording, numbers, protocols }.into()
    }
}

/// Binds the workers' listeners: all on one address, of which the first may choose the port.
pub(crate) fn bind(address: SocketAddr, workers: usize, backlog: u32) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
    let sharing = if workers > 1 { Sharing::First } else { Sharing::Alone };
    let first = lapwing_net::bind(address, backlog, sharing)?;
    let address = first.local_addr()?;
    let mut listeners = vec![first];
    for _ in 1..workers {
        listeners.push(lapwing_net::bind(address, backlog, Sharing::Further)?);
    }
    Ok((address, listeners))
}

/// Starts the workers. They stop accepting at `stop`, and end when their requests have ended, or after the `drain` in force then.
pub(crate) fn spawn(
    listeners: Vec<BoundListener>,
    parts: &DataPlane,
    stop: &CancellationToken,
    drain: &ConfigHandle<Duration>,
) -> io::Result<Vec<JoinHandle<io::Result<()>>>> {
    let spawn_one = |(i, listener): (usize, BoundListener)| {
        let (parts, stop, drain) = (parts.clone(), stop.clone(), drain.clone());
        std::thread::Builder::new().name(format!("lapwing-data-{i}")).spawn(move || worker(listener, parts, stop, drain))
    };
    listeners.into_iter().enumerate().map(spawn_one).collect()
}

fn worker(listener: BoundListener, parts: DataPlane, stop: CancellationToken, drain: ConfigHandle<Duration>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let too_late = async {
        stop.cancelled().await;
        let drain = *drain.load();
        tokio::time::sleep(drain).await;
        drain
    };
    runtime.block_on(async {
        tokio::select! {
            served = lapwing_proxy::serve(listener, parts, stop.clone()) => served,
            drain = too_late => {
                tracing::warn!(?drain, "requests were still in flight after drain_timeout and are cut off");
                Ok(())
            }
        }
    })
}
