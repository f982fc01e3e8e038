//! The receiver of the targets' spans while a replay runs: the same as that of a proxying Lapwing, on a separate thread.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::settings::ReplaySettings;
use lapwing_attribution::IncomingSpan;
use lapwing_attribution::otlp::{self, ExportHandler};
use lapwing_metrics::Counters;
use lapwing_settings::{Bind, ConfigHandle};

/// A receiver that runs.
pub(crate) struct SpanReceiver {
    spans: mpsc::Receiver<Vec<IncomingSpan>>,
    stop: CancellationToken,
    thread: JoinHandle<io::Result<()>>,
}

impl SpanReceiver {
    /// Starts the receiver; `None` if no address is given.
    ///
    /// # Errors
    ///
    /// If an address cannot be listened on, or the thread cannot be started.
    pub(crate) fn start(settings: &ReplaySettings, counters: &Arc<Counters>) -> Result<Option<Self>, String> {
        let (grpc, http) = (listen("--otlp-grpc", settings.otlp_grpc)?, listen("--otlp-http", settings.otlp_http)?);
        if grpc.is_none() && http.is_none() {
            return Ok(None);
        }
        let attribution = &settings.sections.attribution;
        let (sender, spans) = mpsc::channel(attribution.otlp_queue);
        let handler = ExportHandler::new(ConfigHandle::fixed(attribution.rules()), counters.clone(), sender, None);
        let (max_body, stop) = (attribution.otlp_max_body.get(), CancellationToken::new());
        let until = stop.clone();
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let grpc = async {
                    match grpc {
                        Some(listener) => otlp::serve_grpc(listener, handler.clone(), max_body, until.clone()).await,
                        None => Ok(()),
                    }
                };
                let http = async {
                    match http {
                        Some(listener) => otlp::serve_http(listener, handler.clone(), max_body, until.clone()).await,
                        None => Ok(()),
                    }
                };
                let (grpc, http) = tokio::join!(grpc, http);
                grpc.and(http)
            })
        };
        let thread = std::thread::Builder::new().name("lapwing-spans".to_owned()).spawn(serve);
        Ok(Some(Self { spans, stop, thread: thread.map_err(|error| format!("cannot start a thread: {error}"))? }))
    }

    /// The spans of a message that has arrived.
    pub(crate) fn take(&mut self) -> Option<Vec<IncomingSpan>> {
        self.spans.try_recv().ok()
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// The error with which it ended.
    pub(crate) fn stop(self) -> io::Result<()> {
        self.stop.cancel();
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the receiver's thread panicked")))
    }
}

fn listen(flag: &str, to: Option<Bind>) -> Result<Option<TcpListener>, String> {
    let listener = |to: Bind| {
        lapwing_net::bind(to.get(), 128, lapwing_net::Sharing::Alone).map_err(|error| format!("{flag}: {to}: {error}"))
    };
    to.map(listener).transpose()
}
