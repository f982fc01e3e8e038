//! From sources to a checked configuration, or to every fault at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use figment::Figment;
use figment::value::{Dict, Value};
use serde_json::Value as Json;

use super::decode::{Faults, decode};
use super::ordered::Ordered;
use super::path::Path;
use super::shape::shape;
use super::sources::{Layer, Sources, yaml};
use super::{Config, cross, render, suggest};
use crate::settings::{Bind, Checks, Fault, Upstream};

/// A configuration without faults.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What is in force.
    pub config: Config,
    /// What is allowed and yet worth a word in the log.
    pub warnings: Vec<String>,
    /// Where each value came from that nobody left at its default, by path.
    origins: BTreeMap<String, String>,
}

impl Loaded {
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

/// Loads: defaults, then the file, the environment, the flags; what is later wins.
///
/// # Errors
///
/// Every fault there is, by path: the file as a whole first.
pub fn load(sources: &Sources) -> Result<Loaded, Vec<Fault>> {
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut found = Vec::new();
    let mut figment = Figment::new();
    let file = sources.file.as_deref().map(Layer::file);
    match file {
        Some(Ok(layer)) => figment = figment.merge(layer),
        Some(Err(fault)) => found.push(fault),
        None => {}
    }
    let is_file_read = found.is_empty();
    for layer in Layer::texts(sources, &defaults) {
        figment = figment.merge(layer);
    }
    let mut tree = figment.find_value("").unwrap_or_else(|_| Value::from(Dict::new()));
    let mut faults = Faults::new(figment, tree.clone(), found);
    shape(&mut tree, &defaults, &mut faults);
    let (mut config, unknown) = decode(&mut tree, &mut faults);
    for path in unknown {
        let reason = suggest::unknown(&path.to_string(), &faults.origin(&path), &defaults);
        faults.push(Fault::new(path.to_string(), "", reason), &path);
    }
    let upstream = Path::default().key("upstream");
    let own = config.engine.address().map(Bind::get).filter(|address| address.port() != 0);
    if let Some(own) = own.filter(|_| !faults.is_given(&upstream)) {
        config.upstream = Upstream::Http { authority: reached(own).to_string(), h2: false };
    } else if is_file_read && !faults.is_given(&upstream) {
        let reason = "is required: give --upstream URL, LAPWING_UPSTREAM or `upstream:` in the file";
        faults.push(Fault::new("upstream", "", reason), &upstream);
    }
    ranges(&config, &mut faults);
    if !faults.found.is_empty() {
        faults.found[usize::from(!is_file_read)..].sort_by(|a, b| a.path.cmp(&b.path));
        return Err(faults.found);
    }
    let origins = origins(&config, &faults);
    Ok(Loaded { warnings: cross::warnings(&config), config, origins })
}

/// How this machine reaches an address that is listened on.
fn reached(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, bound.port())
}

/// Adds what only the read values show; values that stand in for faulty ones are passed over.
fn ranges(config: &Config, faults: &mut Faults) {
    let faulty: BTreeSet<String> = faults.found.iter().map(|fault| fault.path.clone()).collect();
    let mut checks = Checks::new(faulty);
    config.check(&mut checks);
    cross::check(config, &mut checks, |key| faults.is_given(&Path::default().key(key)));
    for fault in checks.into_faults() {
        let path = path_of(&fault.path);
        faults.push(fault, &path);
    }
}

/// The path that a check wrote as text.
fn path_of(text: &str) -> Path {
    if let Some(named) = Path::named(text) {
        return named;
    }
    let mut path = Path::default();
    for part in text.split('.') {
        let (key, index) = part.split_once('[').unwrap_or((part, ""));
        path = path.key(key);
        if let Ok(index) = index.trim_end_matches(']').parse() {
            path = path.index(index);
        }
    }
    path
}

fn origins(config: &Config, faults: &Faults) -> BTreeMap<String, String> {
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
