//! The configuration in force, and what became of reading it again: what `/config` shows.

use serde_json::{Value as Json, json};

use crate::config::{Loaded, Reloaded};
use lapwing_ledger::clock;
use lapwing_settings::Fault;

/// What is in force since when, and what of the sources is not.
#[derive(Clone, Debug)]
pub(crate) struct ConfigStatus {
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
    pub(crate) fn at_start(loaded: &Loaded) -> Self {
        let shown = loaded.masked_json();
        Self { shown, generation: 1, loaded_unix_ns: clock::unix_ns(), needs_restart: Vec::new(), failure: None }
    }

    /// After a reload that succeeded.
    #[must_use]
    pub(crate) fn reloaded(&self, to: &Reloaded) -> Self {
        let generation = self.generation + 1;
        Self { generation, needs_restart: to.needs_restart.clone(), ..Self::at_start(&to.loaded) }
    }

    /// After a reload that failed.
    #[must_use]
    pub(crate) fn failed(&self, faults: &[Fault]) -> Self {
        let faults = faults.iter().map(ToString::to_string).collect();
        Self { failure: Some(FailedReload { unix_ns: clock::unix_ns(), faults }), ..self.clone() }
    }

    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    /// The object that `/config` shows; [`Loaded::json_schema`] describes it.
    pub(crate) fn json(&self) -> Json {
        let mut shown = self.shown.clone();
        shown["generation"] = self.generation.into();
        shown["loaded_unix_ns"] = self.loaded_unix_ns.into();
        shown["needs_restart"] = json!(self.needs_restart);
        let failure = self.failure.as_ref();
        shown["failed_reload"] = json!(failure.map(|failed| json!({ "unix_ns": failed.unix_ns, "faults": failed.faults })));
        shown
    }
}
