//! What the admin server shows. `app` hands it over when it wires the process.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::diagnosis::DiagnosisSurface;
use super::hosted::HostedModels;
use super::inferred::InferredSeries;
use lapwing_cache::Caching;
use lapwing_diagnosis::InferredFigures;
use lapwing_diagnosis::cost::ModelOptima;
use lapwing_dispatch::DispatchLearning;
use lapwing_ledger::{SeriesKey, Stamp};
use lapwing_metrics::views::ProfilerLimits;
use lapwing_metrics::{Counters, Registry};
use lapwing_outbound::Downstreams;
use lapwing_settings::{AdminToken, AdminTokenFor, ConfigHandle};
use lapwing_shadow::recording::{RecordOptions, RecordedLines};
use lapwing_shadow::split::LiveSplit;
use lapwing_shadow::switchback::LeverTrials;
use lapwing_shadow::{ShadowCounters, ShadowSurface};

/// The result of a [`Probe`]: `Err` holds the reason, for people to read.
pub type Probing = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Checks whether the upstream accepts connections and the hosted models are ready.
pub type Probe = Arc<dyn Fn() -> Probing + Send + Sync>;

/// Starts a recording, or says why none can be started now.
pub type StartRecording = Arc<dyn Fn(RecordOptions) -> Result<RecordedLines, String> + Send + Sync>;

/// The state of one of several upstreams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UpstreamState {
    /// Its name in `upstreams`.
    pub name: String,
    /// Its address.
    pub url: String,
    /// Its tags.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Whether it takes connections, as far as is known.
    pub up: bool,
    /// Its requests in flight.
    pub in_flight: u32,
    /// When the certificate that only it is shown expires, seconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_expiry_unix_s: Option<u64>,
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
    /// The state of each of several upstreams; nothing for one.
    pub upstreams: Arc<dyn Fn() -> Vec<UpstreamState> + Send + Sync>,
    /// The models that this process serves itself.
    pub engine: HostedModels,
    /// The live split, if there is one.
    pub split: Option<Arc<Mutex<LiveSplit>>>,
    /// Trials of levers: there may be one at any time.
    pub trials: Option<Arc<Mutex<LeverTrials>>>,
    /// The queue in front of the upstreams.
    pub dispatch: Option<Arc<Mutex<DispatchLearning>>>,
    /// Answers that are given again, unless nobody asked for that.
    pub cache: Option<Caching>,
    /// What the model server calls through Lapwing, if it does.
    pub downstreams: Option<Downstreams>,
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
    /// Cancelled by `/leave`: clients are to go elsewhere, so `/readyz` fails.
    pub leaving: CancellationToken,
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
        let (now, inferred) = (Stamp::now(), diagnosis.inferred(Stamp::now()));
        self.counters.load().set_slots(only_slots(&inferred), now);
        Some(InferredSeries::of(inferred, &labels))
    }
}

/// How many requests the upstream works on at once, if one series alone shows it: of several, none is known to have all the slots.
fn only_slots(inferred: &[(SeriesKey, InferredFigures)]) -> Option<u32> {
    let mut known = inferred.iter().filter_map(|(_, figures)| Some(figures.waiting?.slots));
    known.next().filter(|_| known.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_diagnosis::{FittedValue, InferredWaiting};

    #[test]
    fn slots_are_known_if_one_series_alone_shows_them() {
        let figures = |slots: Option<u32>| {
            let per_ahead_ns = FittedValue { value: 1.0, low: 1.0, high: 1.0 };
            let waiting = slots.map(|slots| InferredWaiting { per_ahead_ns, slots });
            (SeriesKey::default(), InferredFigures { waiting, ..InferredFigures::default() })
        };
        assert_eq!(only_slots(&[figures(None), figures(Some(4))]), Some(4));
        assert_eq!(only_slots(&[figures(Some(4)), figures(Some(4))]), None);
        assert_eq!(only_slots(&[figures(None)]), None);
    }
}
