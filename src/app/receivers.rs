//! The thread of the OTLP receivers and the forwarder. What exporters send is decoded here, so that neither the aggregator nor the
//! admin server waits for it.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::start_error::StartError;
use super::threads::spawn_on;
use crate::config::Config;
use lapwing_attribution::otlp::{self, ExportHandler, OtlpRefusals, OwnTraces};
use lapwing_attribution::{IncomingSpan, Rules};
use lapwing_metrics::Counters;
use lapwing_net::{BoundListener, ClientIdentity};
use lapwing_settings::ConfigHandle;

/// How long forwarding the last telemetry may take at shutdown.
const FORWARD_DRAIN: Duration = Duration::from_secs(5);

/// The receivers and what they write to.
pub(crate) struct Receivers {
    pub(crate) grpc: Option<BoundListener>,
    pub(crate) http: Option<BoundListener>,
    pub(crate) own_traces: Arc<OwnTraces>,
    pub(crate) rules: ConfigHandle<Rules>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) spans: mpsc::Sender<Vec<IncomingSpan>>,
    /// Where exports that are refused are noted.
    pub(crate) refusals: Arc<OtlpRefusals>,
    /// Cancelled when the last request has ended.
    pub(crate) stop: CancellationToken,
}

impl Receivers {
    /// Starts the thread; `None` if no receiver is on.
    pub(crate) fn spawn(
        self,
        config: &Config,
        collector: &Arc<ClientIdentity>,
    ) -> Result<Option<JoinHandle<io::Result<()>>>, StartError> {
        let Self { grpc, http, own_traces, rules, counters, spans, refusals, stop } = self;
        if grpc.is_none() && http.is_none() {
            return Ok(None);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let forward = match config.otlp_forward.on() {
            Some(to) => {
                let _context = runtime.enter();
                let (headers, sampler) = (config.otlp_forward_headers.clone(), config.otlp_forward_sampler);
                Some(otlp::forwarder((to, collector), headers, &config.attribution, sampler, own_traces, counters.clone())?)
            }
            None => None,
        };
        let (queue, worker) = forward.unzip();
        let max_body = config.attribution.otlp_max_body.get();
        let handler = ExportHandler::new(rules, counters, spans, queue).with_max_body(max_body).with_refusals(refusals);
        let run = async move || {
            let grpc = grpc.map(|listener| otlp::serve_grpc(listener, handler.clone(), max_body, stop.clone()));
            let http = http.map(|listener| otlp::serve_http(listener, handler.clone(), max_body, stop.clone()));
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
            let (grpc, http, ()) = tokio::join!(optional(grpc), optional(http), forwarding);
            grpc.and(http)
        };
        spawn_on(runtime, "lapwing-otlp", run).map(Some)
    }
}

async fn optional(server: Option<impl Future<Output = io::Result<()>>>) -> io::Result<()> {
    match server {
        Some(server) => server.await,
        None => Ok(()),
    }
}
