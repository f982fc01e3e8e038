//! Which settings are read once, at the start: their fields have the mark `x-fixed-at-start`. All others are in force after a reload.
//! Where a part of what stands under a name is fixed, so is which names there are.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value as Json;

use super::file_schema::{properties, value_part};
use super::path::{Path, Step};

/// The mark of a field, in its JSON Schema. On a section it holds for every key.
pub(crate) const MARK: &str = "x-fixed-at-start";

/// In the path of a mark: stands for every name that the user chooses.
const ANY_NAME: &str = "*";

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

    /// The setting or section that is fixed, of which the value at `path` is a part: it is marked, or a part of it is.
    pub(crate) fn around(&self, path: &Path) -> Option<Path> {
        let is_along = |fixed: &&Path| {
            let is_same = |(fixed, step): (&Step, &Step)| fixed == step || *fixed == Step::Key(ANY_NAME.to_owned());
            fixed.0.iter().zip(&path.0).all(is_same)
        };
        let fixed = self.0.iter().find(is_along)?;
        Some(Path(path.0.iter().take(fixed.0.len()).cloned().collect()))
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
    let of_names = &value_part(node)["additionalProperties"];
    if properties(of_names).is_some() {
        collect(of_names, &path.key(ANY_NAME), paths);
    }
}
