//! The configuration compiled for one route, and how large the numbers of each field are, as the primary's own answers show it: what
//! the default tolerance is relative to.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::config::{Config, RouteRules, TensorRule, TextRule, Tolerance};
use super::paths::PathSet;
use lapwing_protocol::matches_glob;

/// What is compared how.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) tolerance: Tolerance,
    pub(crate) tensors: TensorRule,
    /// The candidate's name by the primary's.
    pub(crate) names: BTreeMap<String, String>,
    pub(crate) top_k: usize,
    pub(crate) cosine: f64,
    pub(crate) divergence: f64,
    pub(crate) text: TextRule,
    pub(crate) similarity: f64,
    pub(crate) ignore: PathSet,
    pub(crate) unordered: PathSet,
}

impl Rules {
    /// The rules of the section, and of a route where one is given.
    fn new(config: &Config, route: Option<&RouteRules>) -> Self {
        let empty = RouteRules::default();
        let own = route.unwrap_or(&empty);
        let mut names = config.names.clone();
        names.extend(own.names.clone());
        Self {
            tolerance: own.tolerance.unwrap_or(config.tolerance),
            tensors: own.tensors.unwrap_or(config.tensors),
            names,
            top_k: own.top_k.unwrap_or(config.top_k),
            cosine: own.cosine.unwrap_or(config.cosine),
            divergence: own.divergence.unwrap_or(config.divergence),
            text: own.text.unwrap_or(config.text),
            similarity: own.similarity.unwrap_or(config.similarity),
            ignore: PathSet::new(config.ignore.iter().chain(&own.ignore)),
            unordered: PathSet::new(config.unordered.iter().chain(&own.unordered)),
        }
    }
}

/// The rules of every route.
#[derive(Clone, Debug)]
pub(crate) struct RuleTable {
    everywhere: Rules,
    routes: Vec<(String, Rules)>,
}

impl RuleTable {
    pub(crate) fn new(config: &Config) -> Self {
        let routes = config.routes.iter().map(|route| (route.route.clone(), Rules::new(config, Some(route)))).collect();
        Self { everywhere: Rules::new(config, None), routes }
    }

    /// The rules of a route or path, with its method or without: `POST /v2/models/digits/infer`.
    pub(crate) fn of(&self, route: &str) -> &Rules {
        let path = route.split_once(' ').map_or(route, |(_, path)| path);
        let fits = |own: &str| {
            let text = if own.contains(' ') { route } else { path };
            matches_glob(own.as_bytes(), text.as_bytes())
        };
        self.routes.iter().find(|(own, _)| fits(own)).map_or(&self.everywhere, |(_, rules)| rules)
    }
}

/// The typical magnitude of a field: the median over the primary's answers of the mean of |p|. Fields that no answer had are not in it.
#[derive(Clone, Debug, Default)]
pub struct FieldScales(FxHashMap<String, f64>);

impl FieldScales {
    /// Of these fields.
    pub(crate) fn new(fields: impl Iterator<Item = (String, f64)>) -> Self {
        Self(fields.collect())
    }

    /// The scale of a field in an answer whose own numbers have this mean magnitude: the greater of both, so that an answer that is small
    /// by chance is held to what is usual, and a large one to its own.
    pub(crate) fn of(&self, field: &str, own: f64) -> f64 {
        self.0.get(field).map_or(own, |usual| usual.max(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_route_that_fits_adds_to_the_section() {
        let route = |route: &str, top_k| RouteRules { route: route.into(), top_k: Some(top_k), ..RouteRules::default() };
        let config = Config { routes: vec![route("POST /a/*", 2), route("/a/b", 3), route("*", 4)], ..Config::default() };
        let table = RuleTable::new(&config);
        for (path, top_k) in [("POST /a/b", 2), ("GET /a/b", 3), ("/a/b", 3), ("POST /c", 4)] {
            assert_eq!(table.of(path).top_k, top_k, "{path}");
        }
        assert_eq!(table.of("/c").tolerance, Tolerance::default());
        assert_eq!(RuleTable::new(&Config::default()).of("/c").top_k, 1);
    }
}
