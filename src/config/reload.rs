//! A configuration that is read again while it is in force.

use serde_json::Value as Json;

use super::fixed::FixedSettings;
use super::load::{Gathered, Loaded};
use super::path::Path;
use super::schema::Schema;
use super::sections::Config;
use super::sources::Sources;
use lapwing_settings::Fault;

/// The largest file that is read while requests are served: its text and its tree are in memory at once.
pub(crate) const MAX_RELOADED_BYTES: u64 = 16 << 20;

/// The sources as they are now, beside the configuration in force.
#[derive(Debug)]
pub struct Reloaded {
    /// What is to be in force: the sources' values, but for those that are fixed at the start.
    pub loaded: Loaded,
    /// The settings with another value than before, by path.
    pub changed: Vec<String>,
    /// The settings with another value in the sources that only a restart puts in force, by path.
    pub needs_restart: Vec<String>,
}

/// Loads all settings again, beside those in force.
///
/// # Errors
///
/// All faults, as of [`load`](super::load); also those of new values beside old ones that are fixed at the start.
pub fn reload(sources: &Sources, before: &Loaded) -> Result<Reloaded, Vec<Fault>> {
    if let Some(file) = sources.file.as_deref()
        && let Ok(found) = std::fs::metadata(file)
    {
        let refused = |reason: &str| Err(vec![Fault::new(file.display().to_string(), "", reason)]);
        if !found.is_file() {
            return refused("is not a regular file, which alone can be read again");
        }
        if found.len() > MAX_RELOADED_BYTES {
            return refused("is larger than 16 MiB, and is not read while requests are served");
        }
    }
    let (schema, fixed) = (Schema::of::<Config>(), FixedSettings::of::<Config>());
    let gathered = Gathered::from::<Config>(sources);
    let fresh = gathered.clone().decode()?;
    let mut differing = differences(&schema, before, &fresh);
    // what no source gives, now or before, follows from others
    differing.retain(|path| path.get(before.given()).is_some() || path.get(fresh.given()).is_some());
    let (held, changed): (Vec<_>, Vec<_>) = differing.into_iter().partition(|path| fixed.around(path).is_some());
    let text = |paths: &[Path]| paths.iter().map(ToString::to_string).collect();
    let (needs_restart, changed) = (text(&held), text(&changed));
    let loaded = if held.is_empty() { fresh } else { beside(gathered, before, &held, &fixed)? };
    Ok(Reloaded { loaded, changed, needs_restart })
}

/// The sources' settings with the values of `before` in what is fixed around `held`.
fn beside(mut gathered: Gathered, before: &Loaded, held: &[Path], fixed: &FixedSettings) -> Result<Loaded, Vec<Fault>> {
    let kept: Vec<Path> = held.iter().filter_map(|path| fixed.around(path)).collect();
    for path in &kept {
        gathered.set(path, path.get(before.given()).cloned());
    }
    let mut loaded = gathered.decode::<Config>()?;
    let schema = Schema::of::<Config>();
    loaded.take_origins(before, |path| fixed.around(&schema.path(path)).is_some_and(|path| kept.contains(&path)));
    Ok(loaded)
}

/// Where two configurations differ. A list is one value.
fn differences(schema: &Schema, before: &Loaded, after: &Loaded) -> Vec<Path> {
    let json = |loaded: &Loaded| serde_json::to_value(&loaded.config).unwrap_or_default();
    let mut found = Vec::new();
    compare(schema, (before, &json(before)), (after, &json(after)), &Path::default(), &mut found);
    found
}

fn compare(schema: &Schema, before: (&Loaded, &Json), after: (&Loaded, &Json), path: &Path, found: &mut Vec<Path>) {
    // what is shown of secrets does not tell them apart
    let differs = if schema.is_secret(path) {
        path.get(before.0.given()) != path.get(after.0.given())
    } else if let (Json::Object(old), Json::Object(new)) = (before.1, after.1) {
        let added = new.keys().filter(|key| !old.contains_key(*key));
        for key in old.keys().chain(added) {
            let of = |section: &Json| section.get(key).cloned().unwrap_or_default();
            compare(schema, (before.0, &of(before.1)), (after.0, &of(after.1)), &path.key(key), found);
        }
        false
    } else {
        before.1 != after.1
    };
    if differs {
        found.push(path.clone());
    }
}
