//! `cache.warm`: Lapwing sends itself the requests of a file at its start, through its own address, so that their answers are there before
//! somebody asks. A thread of the control plane does it; whatever goes wrong, requests are served as without it.

use std::fs::File;
use std::io::{self, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::start_error::StartError;
use super::threads::spawn;
use crate::config::Config;
use lapwing_admin::{Probe, Surfaces, report_json};
use lapwing_cache::WarmConfig;
use lapwing_net::Target;
use lapwing_settings::{Share, Switch};
use lapwing_shadow::recording::FileLimits;
use lapwing_shadow::warm::{WarmClients, WarmLimits, WarmPace, WarmProgress, WarmReport, WarmRequests, read_warm_requests, warm};

/// The bounds of the file.
const LIMITS: WarmLimits = WarmLimits { file: FileLimits { line: 64 << 20, file: 256 << 20 }, requests: 100_000 };
/// How often it is asked whether the upstream accepts connections.
const UPSTREAM_INTERVAL: Duration = Duration::from_millis(500);
/// How long a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Beside traffic, how much of the upstreams' slots others may use while something is sent.
const MAX_UTILISATION: u8 = 50;

/// A warm-up at the start, and how far it is.
#[derive(Clone, Debug)]
pub(crate) struct Warming {
    config: WarmConfig,
    /// The address that clients connect to.
    listen: SocketAddr,
    state: Arc<WarmingState>,
}

#[derive(Debug, Default)]
struct WarmingState {
    done: AtomicUsize,
    all: AtomicUsize,
    is_over: AtomicBool,
}

impl Warming {
    /// The one that `config` asks for, by way of this port; `None` if it asks for none.
    pub(crate) fn of(config: &Config, listen_port: u16) -> Option<Self> {
        let ip = match config.listen.get().ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        let (config, listen) = (config.cache.warm.clone(), SocketAddr::new(ip, listen_port));
        config.file.is_on().then(|| Self { config, listen, state: Arc::default() })
    }

    /// Whether traffic may come.
    ///
    /// # Errors
    ///
    /// How far it is, if it is to be over before.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        let WarmingState { done, all, is_over } = &*self.state;
        if !self.config.before_ready || is_over.load(Relaxed) {
            return Ok(());
        }
        Err(match all.load(Relaxed) {
            0 => "warming: the file is read (cache.warm)".to_owned(),
            all => format!("warming: {} of {all} requests (cache.warm)", done.load(Relaxed)),
        })
    }

    /// Starts the thread, which stays until `stop`. `upstream` says whether the upstream accepts connections.
    pub(crate) fn spawn(
        self,
        surfaces: &Surfaces,
        upstream: Probe,
        stop: &CancellationToken,
    ) -> Result<JoinHandle<io::Result<()>>, StartError> {
        let (surfaces, stop) = (surfaces.clone(), stop.clone());
        spawn("lapwing-warm", async move || {
            // the end of a thread of the control plane means that it failed
            tokio::select! {
                () = self.run(&surfaces, &upstream) => stop.cancelled().await,
                () = stop.cancelled() => {}
            }
            Ok(())
        })
    }

    async fn run(&self, surfaces: &Surfaces, upstream: &Probe) {
        let Switch::On(file) = &self.config.file else { return };
        while upstream().await.is_err() {
            tokio::time::sleep(UPSTREAM_INTERVAL).await;
        }
        let file_name = file.path().display();
        let timeout = self.config.timeout;
        match tokio::time::timeout(timeout.get(), self.warm(surfaces)).await {
            Ok(Ok(report)) if report.is_complete() => tracing::info!(file = %file_name, "warm: {}", in_one_line(&report)),
            Ok(Ok(report)) => tracing::warn!(file = %file_name, "warm: {}", in_one_line(&report)),
            Ok(Err(reason)) => tracing::warn!(file = %file_name, "not warm: {reason}"),
            Err(_) => {
                let (done, all) = (self.state.done.load(Relaxed), self.state.all.load(Relaxed));
                tracing::warn!(file = %file_name, "not warm: {done} of {all} requests were sent within {timeout} (cache.warm.timeout)");
            }
        }
        self.state.is_over.store(true, Relaxed);
    }

    async fn warm(&self, surfaces: &Surfaces) -> Result<WarmReport, String> {
        let requests = self.requests()?;
        self.state.all.store(requests.count(), Relaxed);
        let clients = WarmClients::new(&Target::Tcp(self.listen.to_string()), REQUEST_TIMEOUT);
        let asks =
            async |path: &'static str| report_json(surfaces, path).map(Into::into).ok_or_else(|| format!("{path}: nobody knows"));
        let max_utilisation = (!self.config.before_ready).then(|| Share::of_percent(MAX_UTILISATION));
        let pace = WarmPace { rate: None, max_utilisation };
        let progress = |WarmProgress { done, .. }| self.state.done.store(done, Relaxed);
        warm(&requests, &clients, &asks, pace, progress).await.map_err(|error| error.to_string())
    }

    fn requests(&self) -> Result<WarmRequests, String> {
        let Switch::On(file) = &self.config.file else { return Ok(WarmRequests::default()) };
        let opened = File::open(file.path()).map_err(|error| format!("cannot be read: {error}"))?;
        read_warm_requests(BufReader::new(opened), LIMITS).map_err(|error| error.to_string())
    }
}

fn in_one_line(report: &WarmReport) -> String {
    report.to_string().trim_end().replace('\n', "; ")
}
