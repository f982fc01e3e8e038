//! What the admin server shows. `app` hands it over when it wires the process.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::diagnosis::DiagnosisSurface;
use super::hosted::HostedModels;
use super::inferred::InferredSeries;
use super::record_options::StartRecording;
use lapwing_diagnosis::cost::ModelOptima;
use lapwing_ledger::Stamp;
use lapwing_metrics::views::ProfilerLimits;
use lapwing_metrics::{Counters, Labels, Registry};
use lapwing_settings::{AdminToken, AdminTokenFor, ConfigHandle};
use lapwing_shadow::{OutputAccounts, PairOrder, PairTable, QuotaTable, RouteStanding, ShadowCounters, TargetInfo};

/// The result of a [`Probe`]: `Err` holds the reason, for people to read.
pub type Probing = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Checks whether the upstream accepts connections and the hosted models are ready.
pub type Probe = Arc<dyn Fn() -> Probing + Send + Sync>;

/// What `/shadow` reads.
#[derive(Clone)]
pub struct ShadowSurface {
    /// The series of copies. Locked for microseconds at a time.
    pub registry: Arc<Mutex<Registry>>,
    /// Both sides together.
    pub pairs: Arc<Mutex<PairTable>>,
    /// What outputs differ in.
    pub outputs: Arc<Mutex<OutputAccounts>>,
    /// What became of copies.
    pub counters: Arc<ShadowCounters>,
    /// What quotas took.
    pub quotas: Arc<QuotaTable>,
    /// What was learnt of routes, whether they may be repeated.
    pub routes: Arc<dyn Fn() -> Vec<RouteStanding> + Send + Sync>,
    /// How many bytes copies of bodies keep alive now, and at most.
    pub budget: Arc<dyn Fn() -> (usize, usize) + Send + Sync>,
    /// The targets, in the order of their indices.
    pub targets: Arc<[TargetInfo]>,
    /// Which side of a pair goes first.
    pub order: PairOrder,
    /// The names of routes and models.
    pub labels: Arc<Labels>,
}

/// Everything that the admin server reads.
#[derive(Clone)]
pub struct Surfaces {
    /// Series and exchanges. Locked for microseconds at a time.
    pub registry: Arc<Mutex<Registry>>,
    /// The profiler's own counters.
    pub counters: Arc<Counters>,
    /// What the models' forward is compared with.
    pub optima: Arc<ModelOptima>,
    /// The effective configuration with secrets masked, as `/config` shows it.
    pub config: ConfigHandle<serde_json::Value>,
    /// The JSON Schema of what `/config` shows.
    pub config_schema: Arc<serde_json::Value>,
    /// The models that this process serves itself.
    pub engine: HostedModels,
    /// Shadow-serving, if there is a target.
    pub shadow: Option<ShadowSurface>,
    /// What recordings did not write.
    pub recording: Arc<ShadowCounters>,
    /// The diagnosis, if it is on.
    pub diagnosis: Option<DiagnosisSurface>,
    /// Who shows it may read everything, from anywhere.
    pub admin_token: Option<AdminToken>,
    /// What it is asked for.
    pub admin_token_for: AdminTokenFor,
    /// Starts a recording, for `/record`.
    pub record: StartRecording,
    /// For `/readyz`, which waits two seconds for it.
    pub ready: Probe,
    /// Cancelled when shutdown begins: `/readyz` fails from then on, while the other paths are still served.
    pub draining: CancellationToken,
    /// Bounds for `/stats`.
    pub limits: ConfigHandle<ProfilerLimits>,
    /// When the process started, nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// When the process started, by the monotonic clock.
    pub started: Stamp,
}

impl Surfaces {
    /// What the diagnosis infers; `None` where it is off.
    pub(crate) fn inferred(&self) -> Option<InferredSeries> {
        let diagnosis = self.diagnosis.as_ref()?;
        let labels = self.registry.lock().labels().clone();
        Some(InferredSeries::of(diagnosis.inferred(Stamp::now()), &labels))
    }
}
