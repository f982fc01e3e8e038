//! Where settings come from: a file, the environment, flags. Each becomes a layer whose values know their origin.
//!
//! The process's environment is never read here: whoever loads passes it in.

use std::path::{Path as FilePath, PathBuf};

use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};
use serde_json::Value as Json;

use super::HEADERS;
use super::path::{Path, Step};
use crate::settings::Fault;

/// What every environment variable of Lapwing begins with.
const PREFIX: &str = "LAPWING_";
/// Names the file; not a setting.
const FILE_VARIABLE: &str = "LAPWING_CONFIG";

/// A flag of the command line that sets a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The setting, as in `otlp_grpc`.
    pub path: String,
    /// The flag as the user writes it, as in `--otlp-grpc`.
    pub name: String,
    /// The value, as text.
    pub text: String,
}

/// Everything that is loaded from. What is later wins: defaults, file, environment, flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The configuration file, YAML.
    pub file: Option<PathBuf>,
    /// Environment variables; those that do not begin with `LAPWING_` are passed over.
    pub env: Vec<(String, String)>,
    /// Flags, in the order given.
    pub flags: Vec<Flag>,
}

/// Values of one origin.
pub(super) struct Layer {
    origin: String,
    dict: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.origin.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Map::from([(Profile::Default, self.dict.clone())]))
    }
}

impl Layer {
    /// The file's, or what is wrong with it as a whole.
    pub(super) fn file(path: &FilePath) -> Result<Self, Fault> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Fault::new(&name, "", format!("cannot be read: {}", said(&error.to_string()))))?;
        let root = yaml(&text).map_err(|reason| Fault::new(&name, "", reason))?;
        let dict = match root {
            Value::Dict(_, dict) => dict,
            Value::Empty(..) => Dict::new(),
            _ => return Err(Fault::new(&name, "", "must be a section of keys, as in `upstream: http://127.0.0.1:8000`")),
        };
        Ok(Self { origin: format!("file {name}"), dict: without_nulls(dict) })
    }

    /// The environment's and the flags', the weakest first. `defaults` tell which texts stand for numbers, switches or sections.
    pub(super) fn texts(sources: &Sources, defaults: &Json) -> Vec<Self> {
        let mut env: Vec<_> = sources.env.iter().filter(|(name, value)| is_setting(name, value)).collect();
        // a whole section before its parts
        env.sort();
        let env = env.into_iter().map(|(name, text)| Self::text(path_of(name), text, format!("env {name}"), defaults));
        let flags = sources.flags.iter().map(|flag| {
            let Flag { path, name, text } = flag;
            Self::text(Path::dotted(path), text, format!("flag {name}"), defaults)
        });
        env.chain(flags).collect()
    }

    fn text(path: Path, text: &str, origin: String, defaults: &Json) -> Self {
        let default = path.0.iter().try_fold(defaults, |at, step| match step {
            Step::Key(key) => at.get(key),
            Step::Index(_) => None,
        });
        let mut value = typed(text, default);
        let mut dict = Dict::new();
        for (depth, step) in path.0.into_iter().enumerate().rev() {
            let Step::Key(key) = step else { continue };
            if depth == 0 {
                dict = Dict::from([(key, value)]);
                break;
            }
            value = Value::from(Dict::from([(key, value)]));
        }
        Self { origin, dict }
    }
}

/// The variable that sets `path`, as in `LAPWING_PROXY__WORKERS`.
pub(super) fn variable(path: &str) -> String {
    format!("{PREFIX}{}", path.replace('.', "__").to_uppercase())
}

fn path_of(variable: &str) -> Path {
    let key = variable.strip_prefix(PREFIX).unwrap_or(variable).to_lowercase();
    match key.strip_prefix(HEADERS).and_then(|rest| rest.strip_prefix("__")) {
        // variables cannot have the hyphens that headers have
        Some(header) => Path::dotted(HEADERS).key(&header.replace('_', "-")),
        None => Path(key.split("__").map(|key| Step::Key(key.to_owned())).collect()),
    }
}

/// Whether a variable is meant for Lapwing. Kubernetes sets others of that prefix in every pod beside a service whose name
/// begins with `lapwing`: `LAPWING_SERVICE_HOST`, `LAPWING_PORT=tcp://…`, `LAPWING_PORT_8080_TCP_ADDR`.
fn is_setting(name: &str, value: &str) -> bool {
    let Some(key) = name.strip_prefix(PREFIX).filter(|_| name != FILE_VARIABLE) else { return false };
    let linked = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let port = |(_, rest): (&str, &str)| rest.starts_with(|c: char| c.is_ascii_digit());
    let key = format!("_{key}");
    let is_link = key.ends_with("_SERVICE_HOST")
        || key.ends_with("_SERVICE_PORT")
        || key.contains("_SERVICE_PORT_")
        || (key.ends_with("_PORT") && linked)
        || key.split_once("_PORT_").is_some_and(port);
    !is_link
}

/// `text` as the kind of value that `default` is: what is no such value stays text, and is refused where it is read.
fn typed(text: &str, default: Option<&Json>) -> Value {
    let trimmed = text.trim();
    let value = match default {
        Some(Json::Bool(_)) => trimmed.parse::<bool>().ok().map(Value::from),
        Some(Json::Number(_)) => {
            trimmed.parse::<u64>().map(Value::from).or_else(|_| trimmed.parse::<i64>().map(Value::from)).ok()
        }
        Some(Json::Object(_) | Json::Array(_)) => yaml(text).ok(),
        _ => None,
    };
    value.unwrap_or_else(|| Value::from(text))
}

/// One YAML document; a reason with line and column where it is none. Only `true` and `false` are booleans, so that `off`
/// stays the text that it is.
pub(super) fn yaml(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| said(&error.without_snippet().to_string()))
}

/// The message in house style: one line, no capital, no full stop.
fn said(message: &str) -> String {
    let line = message.lines().next().unwrap_or("").trim_end_matches('.');
    let mut letters = line.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_lowercase(), letters.as_str()))
}

/// A key without a value is one that is not given.
fn without_nulls(dict: Dict) -> Dict {
    let kept = dict.into_iter().filter(|(_, value)| !matches!(value, Value::Empty(..)));
    kept.map(|(key, value)| match value {
        Value::Dict(tag, inner) => (key, Value::Dict(tag, without_nulls(inner))),
        other => (key, other),
    })
    .collect()
}
