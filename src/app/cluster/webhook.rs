//! `lapwing webhook`: puts the sidecar into pods when they are made.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use clap::Args;
use lapwing_inject::webhook::{self, WebhookMetrics};
use lapwing_metrics::Counters;
use lapwing_net::{BoundListener, ServerIdentity, Sharing, Speaks, bind};
use lapwing_settings::{File, ServerTls, Switch};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use super::inject::SidecarArgs;
use crate::app::file_watch::FileWatch;
use crate::app::log;
use crate::app::signals::{self, Signals, Watched};
use crate::app::threads::{join, spawn};
use crate::config::LogFormat;

const BACKLOG: u32 = 1024;
/// How often the certificate's files are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// What `lapwing webhook` is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct WebhookArgs {
    /// Address that the API server calls, over TLS
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:8443")]
    listen: SocketAddr,
    /// Address of /livez, /readyz and /metrics, without TLS
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:9464")]
    admin: SocketAddr,
    /// Its certificate, then the intermediate ones (PEM); read again when the file changes
    #[arg(long, value_name = "FILE")]
    tls_certificate: File,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE")]
    tls_key: File,
    #[command(flatten)]
    sidecar: SidecarArgs,
    /// Log level: error, warn, info, debug or trace
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = filter)]
    log: String,
}

fn filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Serves until a signal; the exit code.
pub(crate) fn run(args: &WebhookArgs) -> i32 {
    log::init(&args.log, LogFormat::Text);
    match serve(args) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("lapwing webhook: {error}");
            1
        }
    }
}

fn serve(args: &WebhookArgs) -> Result<(), Box<dyn std::error::Error>> {
    let signals = Signals::listen(true)?;
    let file = |path: &File| Switch::On(path.clone());
    let tls = ServerTls { certificate: file(&args.tls_certificate), key: file(&args.tls_key), client_ca: Switch::Off };
    // before the files are read
    let files = FileWatch::new(tls.files());
    let identity = ServerIdentity::load("--tls", &tls).map_err(|fault| fault.to_string())?.ok_or("no certificate")?;
    let counters = Arc::new(Counters::default());
    let metrics = Arc::new(WebhookMetrics::new(counters.clone()));
    metrics.set_expiry(identity.validity().until_s);
    let bound = |address: SocketAddr| -> Result<BoundListener, String> {
        let listener = bind(address, BACKLOG, Sharing::Alone).map_err(|error| format!("cannot listen on {address}: {error}"))?;
        Ok(BoundListener::from(listener))
    };
    let listener = bound(args.listen)?.over_tls(Some(&identity), Speaks::Both, &counters);
    let admin = bound(args.admin)?;
    tracing::info!(listen = %args.listen, admin = %args.admin, "lapwing webhook {} serves", env!("CARGO_PKG_VERSION"));
    let (draining, ended) = (CancellationToken::new(), CancellationToken::new());
    let (options, for_reviews, stop) = (args.sidecar.options(), metrics.clone(), draining.clone());
    let reviews = spawn("lapwing-webhook", async move || webhook::serve(listener, options, for_reviews, stop).await)?;
    let (for_admin, is_draining, stop) = (metrics.clone(), draining.clone(), ended.clone());
    let admin = spawn("lapwing-admin", async move || webhook::serve_admin(admin, for_admin, is_draining, stop).await)?;
    let mut serving = Serving { threads: [reviews, admin], identity, files, metrics };
    let by = signals::wait(signals, &mut serving);
    tracing::info!("{by}: draining; a second signal ends at once");
    draining.cancel();
    let [reviews, admin] = serving.threads;
    let reviews = join(reviews);
    ended.cancel();
    Ok(reviews.and(join(admin))?)
}

struct Serving {
    threads: [JoinHandle<io::Result<()>>; 2],
    identity: Arc<ServerIdentity>,
    files: FileWatch,
    metrics: Arc<WebhookMetrics>,
}

impl Serving {
    fn reload(&mut self, why: &str) {
        self.files.begin();
        match self.identity.reload() {
            Ok(()) => {
                self.metrics.set_expiry(self.identity.validity().until_s);
                tracing::info!(files = ?self.files.paths(), "{why}: new connections use them");
            }
            Err(fault) => {
                self.metrics.reload_failed();
                tracing::error!("{why}: {fault}; the certificate of before stays in force");
            }
        }
    }
}

impl Watched for Serving {
    fn poll(&mut self) -> bool {
        if self.files.has_changed(LOOK) {
            self.reload("files have changed");
        }
        self.threads.iter().any(JoinHandle::is_finished)
    }

    fn hang_up(&mut self) {
        self.reload("SIGHUP");
    }
}
