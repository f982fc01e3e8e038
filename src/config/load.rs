//! Loads a checked configuration from its sources, or reports every fault at once. Nothing here knows a section by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use figment::Figment;
use figment::value::{Dict, Value};
use serde_json::Value as Json;

use super::decode::{Faults, decode};
use super::fixed::FixedSettings;
use super::normalise::normalise;
use super::ordered::Ordered;
use super::path::{Path, Step};
use super::root::Root;
use super::schema::Schema;
use super::sections::Config;
use super::sources::{Layer, Sources};
use super::standard::StandardVariables;
use super::{json_schema, render, suggest};
use lapwing_settings::{Checks, Fault, Section};

/// A configuration without faults.
#[derive(Clone, Debug)]
pub struct Loaded<T = Config> {
    /// The configuration in force.
    pub config: T,
    /// Warnings to log: settings that are allowed but probably a mistake.
    pub warnings: Vec<String>,
    /// The origin of each value that is not a default, by path.
    origins: BTreeMap<String, String>,
    given: Given,
}

/// What the sources gave, secrets among it.
#[derive(Clone)]
struct Given(Value);

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Given")
    }
}

impl<T: Section> Loaded<T> {
    /// The effective configuration as a YAML file that has the same effect, with the origin of each value, and whether it is fixed at the
    /// start, as a comment.
    /// Secrets are masked and must be put back by hand.
    #[must_use]
    pub fn render(&self) -> String {
        render::yaml(&self.config, &self.origins, &FixedSettings::of::<Config>())
    }

    /// A JSON object with the effective configuration (`values`), the origin of each value by path (`origins`: `default`,
    /// `file …`, `env …` or `flag …`), and the `warnings`. Secrets are masked.
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

    /// What the sources gave. It is not masked.
    pub(crate) const fn given(&self) -> &Value {
        &self.given.0
    }

    /// Takes the origins of the values for which `is_kept` from `before`.
    pub(crate) fn take_origins(&mut self, before: &Self, is_kept: impl Fn(&str) -> bool) {
        self.origins.retain(|path, _| !is_kept(path));
        let kept = before.origins.iter().filter(|(path, _)| is_kept(path));
        self.origins.extend(kept.map(|(path, origin)| (path.clone(), origin.clone())));
    }

    /// The JSON Schema (draft 2020-12) of [`Self::masked_json`].
    #[must_use]
    pub fn json_schema() -> Json {
        json_schema::shown(&Schema::of::<T>(), &serde_json::to_value(T::default()).unwrap_or_default())
    }
}

/// Loads all settings from the defaults, the file, the environment and the flags. A later source overrides an earlier one.
///
/// # Errors
///
/// All faults, sorted by path. A fault of the file as a whole comes first.
pub fn load(sources: &Sources) -> Result<Loaded, Vec<Fault>> {
    load_as(sources)
}

/// Loads the settings that `T` reads from the same sources. Keys that only other commands read are ignored.
///
/// # Errors
///
/// All faults of the settings that `T` reads, and all unknown keys.
pub fn load_as<T: Root>(sources: &Sources) -> Result<Loaded<T>, Vec<Fault>> {
    Gathered::from::<T>(sources).decode()
}

/// The values that the sources give, each with its origin, before they are read as settings.
#[derive(Clone)]
pub(crate) struct Gathered {
    figment: Figment,
    tree: Value,
    standard_ignored: Vec<(&'static str, String)>,
    /// The file's fault as a whole.
    unread: Option<Fault>,
}

impl Gathered {
    /// The values for a `T`.
    pub(crate) fn from<T: Root>(sources: &Sources) -> Self {
        let schema = Schema::of::<T>();
        let standard = StandardVariables::of(sources, &schema);
        let mut figment = standard.layers.into_iter().fold(Figment::new(), Figment::merge);
        let mut unread = None;
        match sources.file.as_deref().map(Layer::file) {
            Some(Ok(layer)) => figment = figment.merge(layer),
            Some(Err(fault)) => unread = Some(fault),
            None => {}
        }
        for layer in Layer::texts(sources, &schema) {
            figment = figment.merge(layer);
        }
        let mut tree = figment.find_value("").unwrap_or_else(|_| Value::from(Dict::new()));
        pass_over(&mut tree, &schema);
        Self { figment, tree, standard_ignored: standard.ignored, unread }
    }

    /// Replaces the value at `path`; `None` stands for one that no source gives.
    pub(crate) fn set(&mut self, path: &Path, value: Option<Value>) {
        match value {
            Some(value) => path.put(&mut self.tree, value),
            None => drop(path.remove(&mut self.tree)),
        }
    }

    /// Reads them as a `T`.
    pub(crate) fn decode<T: Root>(self) -> Result<Loaded<T>, Vec<Fault>> {
        let Self { figment, mut tree, standard_ignored, unread } = self;
        let schema = Schema::of::<T>();
        let (given, is_file_read) = (Given(tree.clone()), unread.is_none());
        let mut faults = Faults::new(&schema, figment, tree.clone(), unread.into_iter().collect());
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
        let ignored = standard_ignored.into_iter().filter(|(key, _)| config.uses(key.split('.').next().unwrap_or(key)));
        let warnings = ignored.map(|(_, warning)| warning).chain(config.warnings()).collect();
        Ok(Loaded { warnings, config, origins, given })
    }
}

/// Removes the keys from `tree` that are settings but not in `schema`.
fn pass_over(tree: &mut Value, schema: &Schema) {
    let whole = Schema::of::<Config>();
    if let Value::Dict(_, dict) = tree {
        let knows = |schema: &Schema, key: &str| schema.step(&Step::Key(key.to_owned())).is_some();
        dict.retain(|key, _| knows(schema, key) || !knows(&whole, key));
    }
}

/// Adds the faults that only the decoded values show. Stand-ins for faulty values are skipped.
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
