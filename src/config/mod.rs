//! The whole configuration: it combines the modules' sections, loads them from file, environment and flags, checks them, and
//! shows the origin of each value.
//!
//! Each module owns its section: the type, the defaults, the ranges, and what its lists and names hold
//! ([`lapwing_settings::Section`]). The loader knows none of them by name. Nothing here shows a secret.

mod cross;
mod decode;
#[cfg(feature = "engine")]
mod engine;
mod file_schema;
mod fixed;
mod json_schema;
mod load;
mod markdown;
mod normalise;
mod ordered;
mod path;
mod reload;
mod render;
mod root;
mod schema;
mod sections;
mod sources;
mod standard;
mod suggest;

#[cfg(feature = "engine")]
pub use engine::EngineConfig;
pub use load::{Loaded, load, load_as};
pub use markdown::SettingTables;
pub(crate) use reload::MAX_RELOADED_BYTES;
pub use reload::{Reloaded, reload};
pub use root::Root;
pub use sections::{Config, LogFormat};
pub use sources::{Flag, Sources};

/// The JSON Schema (draft 2020-12) of the configuration file.
#[must_use]
pub fn json_schema_of_file() -> serde_json::Value {
    file_schema::of::<Config>()
}

#[cfg(test)]
mod tests;
