//! The models that are served: several by name, each in several versions, the highest of which is the default.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::RequestError;
use super::metrics::{Metrics, ModelMetrics};
use lapwing_model::service::{About, Servable};

/// Why models cannot be served together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// Two models have the same name and version.
    #[error("model {name:?}: version {version:?} is given twice")]
    Twice {
        /// The name.
        name: String,
        /// The version.
        version: String,
    },
    /// A name or a version is empty, so no request could name it.
    #[error("model {name:?}, version {version:?}: a name and a version must not be empty")]
    Unnamed {
        /// The name.
        name: String,
        /// The version.
        version: String,
    },
}

/// Models by name and version, each with its metrics.
#[derive(Debug)]
pub struct Catalogue {
    /// Versions in ascending order; none of the lists is empty.
    models: BTreeMap<String, Vec<Arc<CatalogueEntry>>>,
    pub(crate) metrics: Metrics,
    /// Whether a name that is not served finds the first model.
    answers_any_name: bool,
}

/// One version of one model.
#[derive(Debug)]
pub(crate) struct CatalogueEntry {
    pub(crate) model: Arc<dyn Servable>,
    pub(crate) tallies: ModelMetrics,
}

impl Catalogue {
    /// Makes a catalogue of these models, given in any order.
    ///
    /// # Errors
    ///
    /// [`CatalogueError`] if two models have the same name and version, or one lacks either.
    pub fn new(models: Vec<Arc<dyn Servable>>) -> Result<Self, CatalogueError> {
        let metrics = Metrics::default();
        let mut named: BTreeMap<String, Vec<Arc<CatalogueEntry>>> = BTreeMap::new();
        for model in models {
            let (name, version) = (model.about().name.clone(), model.about().version.clone());
            if name.is_empty() || version.is_empty() {
                return Err(CatalogueError::Unnamed { name, version });
            }
            let versions = named.entry(name).or_default();
            if versions.iter().any(|other| other.model.about().version == version) {
                return Err(CatalogueError::Twice { name: model.about().name.clone(), version });
            }
            let tallies = metrics.tallies(&*model);
            versions.push(Arc::new(CatalogueEntry { model, tallies }));
        }
        for versions in named.values_mut() {
            versions.sort_by(|a, b| compare(&a.model.about().version, &b.model.about().version));
        }
        Ok(Self { models: named, metrics, answers_any_name: false })
    }

    /// The same, where a name that is not served finds the first model, in its highest version: for copies of calls of a model that
    /// another server calls by another name.
    #[must_use]
    pub fn answering_any_name(self) -> Self {
        Self { answers_any_name: true, ..self }
    }

    /// Whether every model is warm.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.entries().all(|entry| entry.model.is_ready())
    }

    /// Checks that every model is warm and can run.
    ///
    /// # Errors
    ///
    /// One line for each model that is not ready: its name, its version and the reason.
    pub fn readiness(&self) -> Result<(), String> {
        let waiting = self.models().filter(|model| !model.is_ready()).map(|model| {
            let About { name, version, .. } = model.about();
            match &model.placement().fault {
                Some(fault) => format!("{name} version {version} cannot run any more: device: {fault}"),
                None => format!("{name} version {version} is not ready"),
            }
        });
        let waiting: Vec<String> = waiting.collect();
        if waiting.is_empty() { Ok(()) } else { Err(waiting.join("\n")) }
    }

    /// Every version of every model, by name, then by version.
    pub fn models(&self) -> impl Iterator<Item = &Arc<dyn Servable>> {
        self.entries().map(|entry| &entry.model)
    }

    /// The same with their metrics.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Arc<CatalogueEntry>> {
        self.models.values().flatten()
    }

    /// Every model as in Triton's repository index: metadata, state, and reason; with `only_ready`, ready models alone.
    pub(crate) fn index(&self, only_ready: bool) -> impl Iterator<Item = (&About, &'static str, String)> {
        let states = self.models().map(|model| (model, model.is_ready()));
        states.filter(move |(_, is_ready)| *is_ready || !only_ready).map(|(model, is_ready)| {
            let (state, reason) = match &model.placement().fault {
                _ if is_ready => ("READY", String::new()),
                Some(fault) => ("UNAVAILABLE", format!("device: {fault}")),
                None => ("UNAVAILABLE", "not warm yet, or being stopped".to_owned()),
            };
            (model.about(), state, reason)
        })
    }

    /// The versions of a model, in ascending order; empty if the model does not exist.
    pub(crate) fn versions(&self, name: &str) -> Vec<String> {
        let versions = self.models.get(name).map(Vec::as_slice).unwrap_or_default();
        versions.iter().map(|entry| entry.model.about().version.clone()).collect()
    }

    /// The model of that name, in the requested version, else in the highest.
    ///
    /// # Errors
    ///
    /// [`RequestError::Unknown`] with the existing names or versions.
    pub(crate) fn find(&self, name: &str, version: Option<&str>) -> Result<&Arc<CatalogueEntry>, RequestError> {
        let any = || self.models.values().next().filter(|_| self.answers_any_name);
        let (versions, version) = match (self.models.get(name), any()) {
            (None, Some(versions)) => (Some(versions), None),
            (found, _) => (found, version),
        };
        let Some(versions) = versions else {
            return Err(RequestError::Unknown(format!(
                "model {name:?} is not served here; there is {}",
                list(self.models.keys())
            )));
        };
        let found = match version {
            Some(version) => versions.iter().find(|entry| entry.model.about().version == version),
            None => versions.last(),
        };
        found.ok_or_else(|| {
            let known = list(versions.iter().map(|entry| &entry.model.about().version));
            let version = version.unwrap_or_default();
            RequestError::Unknown(format!("model {name:?} has no version {version:?}; there is {known}"))
        })
    }
}

fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<String> = names.map(|name| format!("{name:?}")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Compares versions as numbers; a version that is not a number is below every number.
fn compare(a: &str, b: &str) -> Ordering {
    let number = |text: &str| text.parse::<u64>().ok();
    number(a).cmp(&number(b)).then_with(|| a.cmp(b))
}
