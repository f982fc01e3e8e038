//! The sources of settings: a file, the environment, flags. Each becomes a layer, whose values know their origin.
//!
//! This file never reads the process's environment: the caller passes it in.

use std::path::{Path as FilePath, PathBuf};

use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};

use super::path::{Path, Step};
use super::schema::Schema;
use lapwing_settings::Fault;

/// The prefix of Lapwing's environment variables.
const PREFIX: &str = "LAPWING_";
/// The variable that names the file. It is not a setting.
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

/// The sources of a configuration. A later one overrides an earlier one: defaults, file, environment, flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// The configuration file, YAML.
    pub file: Option<PathBuf>,
    /// Environment variables. Those that do not begin with `LAPWING_` are ignored, but for OpenTelemetry's own.
    pub env: Vec<(String, String)>,
    /// Flags, in the order given.
    pub flags: Vec<Flag>,
}

impl Sources {
    /// Combines the sources. Without `file`, the variable `LAPWING_CONFIG` names the file.
    #[must_use]
    pub fn new(file: Option<PathBuf>, env: Vec<(String, String)>, flags: Vec<Flag>) -> Self {
        let named = || env.iter().find(|(name, file)| name == FILE_VARIABLE && !file.is_empty()).map(|(_, file)| file.into());
        Self { file: file.or_else(named), env, flags }
    }
}

/// Values of one origin.
pub(crate) struct Layer {
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
    /// Reads the file's layer. The error is a fault of the file as a whole.
    pub(crate) fn file(path: &FilePath) -> Result<Self, Fault> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Fault::new(&name, "", format!("cannot be read: {}", in_house_style(&error.to_string()))))?;
        let root = yaml(&text).map_err(|reason| Fault::new(&name, "", reason))?;
        let dict = match root {
            Value::Dict(_, dict) => dict,
            Value::Empty(..) => Dict::new(),
            _ => return Err(Fault::new(&name, "", "must be a section of keys, as in `upstream: http://127.0.0.1:8000`")),
        };
        Ok(Self { origin: format!("file {name}"), dict: without_nulls(dict) })
    }

    /// The layers of the environment and the flags, in the order in which they override. `schema` tells which texts are numbers,
    /// switches or sections.
    pub(crate) fn texts(sources: &Sources, schema: &Schema) -> Vec<Self> {
        let mut env: Vec<_> = sources.env.iter().filter(|(name, value)| is_setting(name, value)).collect();
        // a whole section before its parts
        env.sort();
        let env = env.into_iter().map(|(name, text)| {
            let key = name.strip_prefix(PREFIX).unwrap_or(name).to_lowercase();
            Self::text(schema.variable_path(&key), text, format!("env {name}"), schema)
        });
        let flags = sources.flags.iter().map(|flag| {
            let Flag { path, name, text } = flag;
            Self::text(schema.path(path), text, format!("flag {name}"), schema)
        });
        env.chain(flags).collect()
    }

    /// One value as text.
    pub(crate) fn text(path: Path, text: &str, origin: String, schema: &Schema) -> Self {
        let value = typed(text, schema.at(&path.0));
        Self::value(path, value, origin)
    }

    /// One value.
    pub(crate) fn value(path: Path, mut value: Value, origin: String) -> Self {
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
pub(crate) fn variable(path: &str) -> String {
    format!("{PREFIX}{}", path.replace('.', "__").to_uppercase())
}

/// Whether a variable is meant for Lapwing. If a service's name begins with `lapwing`, Kubernetes sets variables with this
/// prefix in the pods of its namespace: `LAPWING_SERVICE_HOST`, `LAPWING_PORT=tcp://…`, `LAPWING_PORT_8080_TCP_ADDR`.
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

/// `text` as the kind of value that `schema` expects. Text that is not such a value stays text, and decoding refuses it.
fn typed(text: &str, schema: Option<&Schema>) -> Value {
    let trimmed = text.trim();
    let value = match schema {
        Some(Schema::Flag) => trimmed.parse::<bool>().ok().map(Value::from),
        Some(Schema::Number) => (trimmed.parse::<u64>().map(Value::from))
            .or_else(|_| trimmed.parse::<i64>().map(Value::from))
            .ok()
            .or_else(|| trimmed.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from)),
        Some(Schema::Section { .. } | Schema::Named { .. } | Schema::List { .. }) => yaml(text).ok(),
        _ => None,
    };
    value.unwrap_or_else(|| Value::from(text))
}

/// Parses one YAML document. The error is the reason, with line and column. Only `true` and `false` are booleans; `off` stays
/// text.
pub(crate) fn yaml(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| in_house_style(&error.without_snippet().to_string()))
}

/// The message in house style: one line, no capital, no full stop.
fn in_house_style(message: &str) -> String {
    let line = message.lines().next().unwrap_or("").trim_end_matches('.');
    let mut letters = line.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_lowercase(), letters.as_str()))
}

/// Removes keys without a value, which count as not given.
fn without_nulls(dict: Dict) -> Dict {
    let kept = dict.into_iter().filter(|(_, value)| !matches!(value, Value::Empty(..)));
    kept.map(|(key, value)| match value {
        Value::Dict(tag, inner) => (key, Value::Dict(tag, without_nulls(inner))),
        other => (key, other),
    })
    .collect()
}

/// Whether `line` reads as a section with only `key`, whose value is the text `value`.
pub(crate) fn reads_as(line: &str, key: &str, value: &str) -> bool {
    match yaml(line) {
        Ok(Value::Dict(_, dict)) => dict.len() == 1 && dict.get(key).and_then(Value::as_str) == Some(value),
        _ => false,
    }
}
