//! From sources to a checked configuration, or to every fault at once. Nothing here knows a section by name.

use std::collections::{BTreeMap, BTreeSet};

use figment::Figment;
use figment::value::{Dict, Value};
use serde_json::Value as Json;

use super::decode::{Faults, decode};
use super::normalise::normalise;
use super::ordered::Ordered;
use super::path::{Path, Step};
use super::schema::Schema;
use super::sources::{Layer, Sources, yaml};
use super::{Config, render, suggest};
use crate::settings::{Checks, Fault, Section};

/// The settings that a command reads: all of them, or those that it uses.
pub trait Root: Section {
    /// Fills in what follows from other settings, and returns the keys that must be given and are not, each with what to do.
    /// `is_given` tells whether somebody gave a value for a key.
    fn complete(&mut self, is_given: &dyn Fn(&str) -> bool) -> Vec<(&'static str, &'static str)>;

    /// Reports settings of different sections that contradict one another. Of two, the one that was given is at fault.
    fn check_together(&self, _checks: &mut Checks, _is_given: &dyn Fn(&str) -> bool) {}

    /// What is allowed and yet worth a line in the log.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A configuration without faults.
#[derive(Clone, Debug)]
pub struct Loaded<T = Config> {
    /// What is in force.
    pub config: T,
    /// What is allowed and yet worth a line in the log.
    pub warnings: Vec<String>,
    /// The origin of each value that is not a default, by path.
    origins: BTreeMap<String, String>,
}

impl<T: Section> Loaded<T> {
    /// The effective configuration as a YAML file that has the same effect, with a comment on where each value came from.
    /// Secrets are masked: they must be put back by hand.
    #[must_use]
    pub fn render(&self) -> String {
        render::yaml(&self.config, &self.origins)
    }

    /// The effective configuration under `values`, under `origins` where each came from (`default`, `file …`, `env …` or
    /// `flag …`), by path, and the `warnings`. Secrets are masked.
    #[must_use]
    pub fn masked_json(&self) -> Json {
        let values = serde_json::to_value(&self.config).unwrap_or_default();
        let mut origins = serde_json::Map::new();
        Ordered::of(&self.config).leaves(&Path::default(), &mut |path| {
            let path = path.to_string();
            let origin = render::origin(&self.origins, &path).to_owned();
            origins.insert(path, origin.into());
        });
        serde_json::json!({ "values": values, "origins": origins, "warnings": self.warnings })
    }
}

/// Loads everything that can be set: defaults, then the file, the environment, the flags; what is later wins.
///
/// # Errors
///
/// Every fault there is, by path: the file as a whole first.
pub fn load(sources: &Sources) -> Result<Loaded, Vec<Fault>> {
    load_as(sources)
}

/// Loads what `T` reads of the same sources. Keys that only other commands read are passed over.
///
/// # Errors
///
/// Every fault there is in what `T` reads, and every unknown key.
pub fn load_as<T: Root>(sources: &Sources) -> Result<Loaded<T>, Vec<Fault>> {
    let schema = Schema::of::<T>();
    let mut found = Vec::new();
    let mut figment = Figment::new();
    let file = sources.file.as_deref().map(Layer::file);
    match file {
        Some(Ok(layer)) => figment = figment.merge(layer),
        Some(Err(fault)) => found.push(fault),
        None => {}
    }
    let is_file_read = found.is_empty();
    for layer in Layer::texts(sources, &schema) {
        figment = figment.merge(layer);
    }
    let mut tree = figment.find_value("").unwrap_or_else(|_| Value::from(Dict::new()));
    pass_over(&mut tree, &schema);
    let mut faults = Faults::new(&schema, figment, tree.clone(), found);
    normalise(&mut tree, &schema, &mut faults);
    let (mut config, unknown) = decode::<T>(&mut tree, &mut faults);
    for path in unknown {
        let reason = suggest::unknown(&path, &faults.origin(&path), &schema);
        faults.push(Fault::new(path.to_string(), "", reason), &path);
    }
    let missing = config.complete(&|key| faults.is_given(&schema.path(key)));
    for (key, reason) in missing.into_iter().filter(|_| is_file_read) {
        faults.push(Fault::new(key, "", reason), &schema.path(key));
    }
    check(&config, &schema, &mut faults);
    if !faults.found.is_empty() {
        faults.found[usize::from(!is_file_read)..].sort_by(|a, b| a.path.cmp(&b.path));
        return Err(faults.found);
    }
    let origins = origins(&config, &faults);
    Ok(Loaded { warnings: config.warnings(), config, origins })
}

/// Takes the keys out of `tree` that are not in `schema`, though they are settings.
fn pass_over(tree: &mut Value, schema: &Schema) {
    let whole = Schema::of::<Config>();
    if let Value::Dict(_, dict) = tree {
        let knows = |schema: &Schema, key: &str| schema.step(&Step::Key(key.to_owned())).is_some();
        dict.retain(|key, _| knows(schema, key) || !knows(&whole, key));
    }
}

/// Adds what only the read values show; values that stand in for faulty ones are passed over.
fn check<T: Root>(config: &T, schema: &Schema, faults: &mut Faults<'_>) {
    let faulty: BTreeSet<String> = faults.found.iter().map(|fault| fault.path.clone()).collect();
    let mut checks = Checks::new(faulty);
    config.check(&mut checks);
    config.check_together(&mut checks, &|key| faults.is_given(&schema.path(key)));
    for fault in checks.into_faults() {
        let path = schema.path(&fault.path);
        faults.push(fault, &path);
    }
}

fn origins(config: &impl Section, faults: &Faults<'_>) -> BTreeMap<String, String> {
    let mut origins = BTreeMap::new();
    Ordered::of(config).leaves(&Path::default(), &mut |path| {
        if faults.is_given(path) {
            origins.insert(path.to_string(), faults.origin(path));
        }
    });
    origins
}

/// Whether `text` reads as just this value where it stands alone after `key: `.
pub(super) fn reads_as(line: &str, key: &str, value: &str) -> bool {
    match yaml(line) {
        Ok(Value::Dict(_, dict)) => dict.len() == 1 && dict.get(key).and_then(Value::as_str) == Some(value),
        _ => false,
    }
}
