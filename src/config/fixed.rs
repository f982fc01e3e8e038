//! Which settings are read once, at the start: their fields have the mark `x-fixed-at-start`. All others are in force after a reload.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value as Json;

use super::file_schema::properties;
use super::path::Path;

/// The mark of a field, in its JSON Schema. On a section it holds for every key.
pub(crate) const MARK: &str = "x-fixed-at-start";

/// The settings and sections of a `T` that are fixed at the start.
#[derive(Debug)]
pub(crate) struct FixedSettings(Vec<Path>);

impl FixedSettings {
    pub(crate) fn of<T: JsonSchema>() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        let schema = settings.into_generator().into_root_schema_for::<T>().to_value();
        let mut paths = Vec::new();
        collect(&schema, &Path::default(), &mut paths);
        Self(paths)
    }

    /// The setting or section that is marked, of which the value at `path` is a part.
    pub(crate) fn around(&self, path: &Path) -> Option<&Path> {
        self.0.iter().find(|fixed| path.0.starts_with(&fixed.0))
    }
}

fn collect(node: &Json, path: &Path, paths: &mut Vec<Path>) {
    for (key, property) in properties(node).into_iter().flatten() {
        let path = path.key(key);
        if property[MARK] == true {
            paths.push(path);
        } else {
            collect(property, &path, paths);
        }
    }
}
