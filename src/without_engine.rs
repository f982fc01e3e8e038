//! Replaces the engine in a build without the feature `engine`. The configuration's section `engine` and the commands
//! `lapwing engine` and `lapwing demo` still exist, and each reports that this build has no engine.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use lapwing_admin::HostedModel;
use lapwing_diagnosis::cost::{ModelDemand, Optimum};
use lapwing_settings::{Bind, Checks, Period, Section};
use lapwing_shadow::mapping::ModelPorts;

const REASON: &str = "this build was made without the feature `engine`";
/// The exit code of a command that cannot be carried out as it was written (`EX_USAGE`).
const USAGE: u8 = 64;

/// The section `engine`: empty, because any key of it asks for the engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Config {}

impl Config {
    /// Whether a model of this name is to be served: never.
    #[must_use]
    pub const fn serves(&self, _: &str) -> bool {
        false
    }

    /// Whether there is a model to serve: never.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        false
    }

    /// Where models are served: nowhere.
    #[must_use]
    pub const fn address(&self) -> Option<Bind> {
        None
    }
}

impl Section for Config {
    /// Finds nothing to report: reading the section has refused every key.
    fn check(&self, _: &mut Checks) {}
}

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NoKeys;

        impl<'de> Visitor<'de> for NoKeys {
            type Value = Config;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a section of keys")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Config, A::Error> {
                match map.next_key::<IgnoredAny>()? {
                    None => Ok(Config {}),
                    Some(_) => Err(A::Error::custom(format!("needs the embedded engine; {REASON}"))),
                }
            }
        }

        deserializer.deserialize_map(NoKeys)
    }
}

/// Why the engine could not be started.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("engine: {REASON}")]
pub struct HostError;

/// A running engine; there is none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hosted {}

impl Hosted {
    pub(crate) fn start(_: &Config, _: usize, _: Period) -> Result<Self, HostError> {
        Err(HostError)
    }

    pub(crate) fn start_one(_: &Config, _: &str, _: &Path, _: usize, _: Period) -> Result<Self, HostError> {
        Err(HostError)
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        match *self {}
    }

    pub(crate) const fn models(&self) -> Models {
        match *self {}
    }

    pub(crate) const fn ports(&self) -> ModelPorts {
        match *self {}
    }

    pub(crate) const fn has_failed(&self) -> bool {
        match *self {}
    }

    pub(crate) const fn stop(self) -> io::Result<()> {
        match self {}
    }
}

/// What a model's plan asks of a device.
///
/// # Errors
///
/// Always: reading a plan needs the engine.
pub(crate) fn plan_demand(_: &Path) -> Result<ModelDemand, String> {
    Err(format!("needs the embedded engine; {REASON}"))
}

/// The models of a running engine; there are none.
#[derive(Clone, Debug)]
pub(crate) enum Models {}

impl Models {
    pub(crate) const fn list(&self) -> Vec<HostedModel> {
        match *self {}
    }

    pub(crate) const fn optimum(&self, _: &str) -> Option<Optimum> {
        match *self {}
    }

    pub(crate) const fn optimum_of_target(&self, _: &str) -> Option<Optimum> {
        match *self {}
    }

    pub(crate) const fn readiness(&self) -> Result<(), String> {
        match *self {}
    }
}

/// `lapwing engine`, with any arguments.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum EngineSub {
    /// Any of its commands.
    #[command(external_subcommand)]
    Any(Vec<OsString>),
}

/// `lapwing demo`, with any arguments.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct DemoArgs {
    /// Ignored
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(_: &EngineSub, _: Vec<(String, String)>) -> ExitCode {
    refuse("engine")
}

pub(crate) fn run_command(_: &DemoArgs) -> ExitCode {
    refuse("demo")
}

fn refuse(command: &str) -> ExitCode {
    eprintln!("lapwing {command}: needs the embedded engine; {REASON}");
    ExitCode::from(USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::cli::{Command, parse};
    use crate::config::{Flag, Sources, load};

    #[test]
    fn a_key_of_the_section_is_refused_and_an_empty_section_is_not() {
        let flag = |path: &str, text: &str| Flag { path: path.into(), name: format!("--{path}"), text: text.into() };
        let given = |env: &[(&str, &str)]| {
            let env = env.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
            load(&Sources { flags: vec![flag("upstream", "http://m:1")], env, ..Sources::default() })
        };
        let faults = given(&[("LAPWING_ENGINE__MODEL", "m.onnx")]).unwrap_err();
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert!(fault.path.starts_with("engine") && fault.reason.ends_with(REASON), "{fault}");
        assert!(given(&[("LAPWING_ENGINE", "{}")]).is_ok());
        assert!(given(&[]).unwrap().render().contains("engine: {}"));
    }

    #[test]
    fn the_commands_are_known_with_any_arguments() {
        let parsed = |line: &str| parse(line.split(' ').map(Into::into), []);
        for line in ["engine serve --model m.onnx", "engine bench m.onnx --threads 1,2", "engine inspect --help"] {
            assert!(matches!(parsed(&format!("lapwing {line}")), Ok(Command::Engine(..))), "{line}");
        }
        for line in ["demo", "demo --seconds 5"] {
            assert!(matches!(parsed(&format!("lapwing {line}")), Ok(Command::Demo(_))), "{line}");
        }
    }
}
