//! The thread that sends Lapwing's own telemetry. It runs only while a signal is on, and outlives the aggregator, so that the last
//! requests contain the last exchanges.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::start_error::StartError;
use super::threads::spawn_on;
use lapwing_admin::{Surfaces, otlp_metrics};
use lapwing_attribution::collector::Signal;
use lapwing_attribution::otlp::OwnTraces;
use lapwing_ledger::TraceMark;
use lapwing_net::ClientIdentity;
use lapwing_telemetry::{Config, MetricsExporter, ServiceResource, TailSampler, TraceQueue, TracesExporter};

/// How long sending the last telemetry may take at shutdown.
const DRAIN: Duration = Duration::from_secs(5);

/// The thread, and what chooses the exchanges that it sends as traces.
#[derive(Default)]
pub(crate) struct Telemetry {
    pub(crate) thread: Option<JoinHandle<io::Result<()>>>,
    pub(crate) sampler: Option<TailSampler>,
}

/// What is known of Lapwing's own spans: where traces are sent, also which of them are.
pub(crate) fn own_traces(config: &Config, mark: TraceMark) -> OwnTraces {
    let own = OwnTraces::new(mark);
    if config.endpoint(Signal::Traces).is_some() { own.sending(config.sampling_threshold()) } else { own }
}

/// Starts the thread, unless everything is off. It ends once `closing` is cancelled, the sampler is dropped and the last telemetry is
/// sent, or five seconds after `closing` is cancelled.
pub(crate) fn spawn(
    (config, identity): (&Config, &Arc<ClientIdentity>),
    surfaces: &Surfaces,
    own_traces: Arc<OwnTraces>,
    closing: CancellationToken,
) -> Result<Telemetry, StartError> {
    if !config.is_on() {
        return Ok(Telemetry::default());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
    let resource = ServiceResource::new(config);
    let collect = {
        let surfaces = surfaces.clone();
        Box::new(move || otlp_metrics(&surfaces))
    };
    let (labels, budgets) = {
        let registry = surfaces.registry.lock();
        (Arc::clone(registry.labels()), registry.config().budgets.clone())
    };
    let counters = || Arc::clone(&surfaces.counters);
    let (queue, queued) = TraceQueue::new(counters());
    let context = runtime.enter();
    let metrics = MetricsExporter::new((config, identity), &resource, counters(), collect).map_err(StartError::Telemetry)?;
    let traces =
        TracesExporter::new((config, identity), &resource, labels.clone(), counters(), queued).map_err(StartError::Telemetry)?;
    drop(context);
    let is_sampling = config.endpoint(Signal::Traces).is_some();
    let sampler = is_sampling.then(|| TailSampler::new(config.sampling_threshold(), budgets, labels, queue, own_traces));
    let run = async move || {
        let sending_metrics = async {
            if let Some(metrics) = metrics {
                metrics.run(closing.clone()).await;
            }
        };
        let sending_traces = async {
            if let Some(traces) = traces {
                traces.run(closing.clone()).await;
            }
        };
        let too_late = async {
            closing.cancelled().await;
            tokio::time::sleep(DRAIN).await;
        };
        tokio::select! {
            _ = async { tokio::join!(sending_metrics, sending_traces) } => {}
            () = too_late => tracing::warn!("telemetry: the last of it could not be sent before the end"),
        }
        Ok(())
    };
    let thread = Some(spawn_on(runtime, "lapwing-telemetry", run)?);
    Ok(Telemetry { thread, sampler })
}
