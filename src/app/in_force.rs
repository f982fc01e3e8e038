//! The configuration in force, and what became of reading it again: what `/config` shows.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::config::{self, Loaded, Reloaded, Sources};
use lapwing_ledger::clock;
use lapwing_metrics::{Counter, Counters};
use lapwing_settings::{ConfigCell, ConfigHandle, Fault};

/// The configuration in force, which is replaced as a whole.
#[derive(Debug)]
pub(crate) struct InForce {
    config: ConfigCell<Loaded>,
    status: ConfigCell<ConfigStatus>,
    counters: Arc<Counters>,
}

impl InForce {
    pub(crate) fn new(loaded: &Loaded, counters: Arc<Counters>) -> Self {
        let status = ConfigStatus::at_start(loaded);
        counters.set(Counter::ConfigGeneration, status.generation);
        Self { config: ConfigCell::new(loaded.clone()), status: ConfigCell::new(status), counters }
    }

    pub(crate) fn load(&self) -> Arc<Loaded> {
        self.config.load()
    }

    pub(crate) fn handle(&self) -> ConfigHandle<Loaded> {
        self.config.handle()
    }

    /// What `/config` shows.
    pub(crate) fn shown(&self) -> ConfigHandle<Json> {
        self.status.handle().map(ConfigStatus::json)
    }

    /// Loads the sources again, and puts in force what is not fixed at the start.
    ///
    /// # Errors
    ///
    /// All faults; then nothing changes but what is shown of it.
    pub(crate) fn reload(&self, sources: &Sources) -> Result<Reloaded, Vec<Fault>> {
        let reloaded = config::reload(sources, &self.config.load());
        let status = self.status.load();
        match &reloaded {
            Ok(reloaded) => {
                if !reloaded.changed.is_empty() {
                    self.config.replace(reloaded.loaded.clone());
                }
                let status = status.reloaded(reloaded);
                self.counters.set(Counter::ConfigGeneration, status.generation);
                self.status.replace(status);
            }
            Err(faults) => {
                self.counters.bump(Counter::ConfigReloadFailures);
                self.status.replace(status.failed(faults));
            }
        }
        reloaded
    }
}

/// What is in force since when, and what of the sources is not.
#[derive(Clone, Debug)]
struct ConfigStatus {
    /// Values, origins and warnings, with secrets masked.
    shown: Json,
    /// 1 at the start, and one more for each reload that succeeded.
    generation: u64,
    /// When it was loaded, nanoseconds since the Unix epoch.
    loaded_unix_ns: u64,
    needs_restart: Vec<String>,
    /// The last reload, if it failed.
    failure: Option<FailedReload>,
}

#[derive(Clone, Debug)]
struct FailedReload {
    unix_ns: u64,
    faults: Vec<String>,
}

impl ConfigStatus {
    fn at_start(loaded: &Loaded) -> Self {
        let shown = loaded.masked_json();
        Self { shown, generation: 1, loaded_unix_ns: clock::unix_ns(), needs_restart: Vec::new(), failure: None }
    }

    /// After a reload that succeeded.
    #[must_use]
    fn reloaded(&self, to: &Reloaded) -> Self {
        let generation = self.generation + 1;
        Self { generation, needs_restart: to.needs_restart.clone(), ..Self::at_start(&to.loaded) }
    }

    /// After a reload that failed.
    #[must_use]
    fn failed(&self, faults: &[Fault]) -> Self {
        let faults = faults.iter().map(ToString::to_string).collect();
        Self { failure: Some(FailedReload { unix_ns: clock::unix_ns(), faults }), ..self.clone() }
    }

    /// The object that `/config` shows; [`Loaded::json_schema`] describes it.
    fn json(&self) -> Json {
        let mut shown = self.shown.clone();
        shown["generation"] = self.generation.into();
        shown["loaded_unix_ns"] = self.loaded_unix_ns.into();
        shown["needs_restart"] = json!(self.needs_restart);
        let failure = self.failure.as_ref();
        shown["failed_reload"] = json!(failure.map(|failed| json!({ "unix_ns": failed.unix_ns, "faults": failed.faults })));
        shown
    }
}
