//! The mappings of one target, by route.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::request::{ModelPorts, RequestMapping};
use crate::Config;

/// A mapping that does not fit the model of its target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("shadow.mappings: {route}, for target {target}: {reason}")]
pub struct MappingError {
    /// The route.
    pub route: String,
    /// The target's name.
    pub target: String,
    /// The key, and what is wrong with it.
    pub reason: String,
}

/// The mappings of one target.
#[derive(Debug, Default)]
pub struct MappingTable(BTreeMap<String, Arc<RequestMapping>>);

impl MappingTable {
    /// The mappings of a checked configuration for the model of `target`, which the engine runs. Of several for one route the first
    /// counts.
    ///
    /// # Errors
    ///
    /// [`MappingError`] if one does not fit the model, or its tokenizer cannot be read.
    pub fn new(config: &Config, target: &str, model: &ModelPorts) -> Result<Self, MappingError> {
        let limit = usize::try_from(config.max_body.get()).unwrap_or(usize::MAX);
        let mut table = BTreeMap::new();
        for rule in config.mappings.iter().filter(|rule| rule.is_for(target)) {
            if !table.contains_key(&rule.route) {
                let error = |reason| MappingError { route: rule.route.clone(), target: target.to_owned(), reason };
                table.insert(rule.route.clone(), Arc::new(RequestMapping::new(rule, model, limit).map_err(error)?));
            }
        }
        Ok(Self(table))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The mapping of a route, as `/stats` names it.
    #[must_use]
    pub fn of(&self, route: &str) -> Option<&Arc<RequestMapping>> {
        self.0.get(route)
    }
}
