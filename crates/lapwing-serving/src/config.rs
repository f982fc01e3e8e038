//! The section `engine` of the configuration: the models, where they are served, and how they are run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use lapwing_model::{Backend, Device, OrtLibrary, ProviderChoice, batch};
use lapwing_onnx::StatedShape;
use lapwing_plan::Precision;
use lapwing_settings::{Bind, Checks, Cpus, File, Folder, Form, Period, Section, Size, Switch};

use crate::input_shape::InputShape;

/// The version of a model that names none.
const VERSION: &str = "1";

/// The section `engine`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, expecting = "a section of keys")]
pub struct Config {
    /// An ONNX file, served under the file's name without its ending, as version 1.
    pub model: Switch<File>,
    /// More ONNX files, by `NAME` or `NAME@VERSION`.
    #[schemars(with = "BTreeMap<String, File>")]
    pub models: BTreeMap<String, PathBuf>,
    /// Shapes of inputs whose axes a file leaves open, by `INPUT`, or of several models `MODEL/INPUT`: `1,3,224,224`; -1 stays
    /// open.
    pub shapes: BTreeMap<String, InputShape>,
    /// The address on which models are served: the Open Inference Protocol by REST and gRPC.
    pub listen: Bind,
    /// The device that models run on. `auto`: the first GPU that supports the model, else the processor; `cuda` is `cuda:0`. With
    /// `cuda:N`, N up to 255, Lapwing does not start unless that GPU supports every model.
    #[schemars(schema_with = "device_schema")]
    pub device: Device,
    /// What runs models. `auto`: the model's own plan if it has one (`tabular` for classical models), else ONNX Runtime where its
    /// library is found, else rten. With another, Lapwing does not start unless that executor can run every model.
    #[schemars(schema_with = "executor_schema")]
    pub executor: Backend,
    /// ONNX Runtime's library: a file, or a folder with `libonnxruntime.so`; Lapwing does not start if it cannot be used. `auto`:
    /// one that is found (docs/ENGINE.md). `off`: none.
    #[schemars(schema_with = "ort_lib_schema")]
    pub ort_lib: OrtLibrary,
    /// What runs the nodes of models that ONNX Runtime runs: `cuda` and `tensorrt` (each `:N`, N up to 255) need a library built with
    /// it, and Lapwing does not start without. The CPU runs nodes that it does not take.
    #[schemars(schema_with = "provider_schema")]
    pub ort_provider: ProviderChoice,
    /// `auto`: a model that another executor runs is held against ONNX Runtime, and with `executor: auto` timed beside it, when it
    /// is loaded (docs/ENGINE.md). `off`: neither.
    #[schemars(schema_with = "verify_schema")]
    pub verify: Verify,
    /// The number format of products. All except `fp32` need a plan; `tf32` and `fp16` need a GPU, and become `fp32` if `device:
    /// auto` is the processor.
    #[schemars(schema_with = "precision_schema")]
    pub precision: Precision,
    /// A folder in which `libcuda.so.1` and cublasLt are looked for first.
    pub cuda_lib_dir: Switch<Folder>,
    /// Ranges for `int8`, as `lapwing engine quantize` writes them; without it, a range per row.
    pub calibration: Switch<File>,
    /// Threads of a forward pass. 0 is what `proxy.workers` leaves, or the number of `cpus`.
    pub threads: usize,
    /// The processors to which threads are pinned. `auto`: the last ones, if enough are left for `proxy.workers`; none for `lapwing
    /// engine serve`.
    pub cpus: Cpus,
    /// How batches are formed. `adaptive`: by the cost of calls, waiting as long as it pays; `fixed:N`: N calls in order of
    /// arrival, or fewer when the oldest has waited for `max_wait`.
    #[schemars(schema_with = "policy_schema")]
    pub policy: BatchPolicy,
    /// The shortest time that a call waits for others; at most `max_wait`.
    pub min_wait: Period,
    /// The longest time that a call waits for others.
    pub max_wait: Period,
    /// The most tokens of a batch (rows, if the model has no tokens); a larger call runs alone.
    pub max_batch_tokens: usize,
    /// The most calls of a batch.
    pub max_batch_calls: usize,
    /// The most waiting calls; more are refused.
    pub queue: usize,
    /// The largest body of a request.
    pub max_body: Size,
    /// The memory for the bodies of all requests, at least `max_body`; one without room gets 503.
    pub body_budget: Size,
    /// The memory, besides six times its files, of the separate process in which a model is first loaded; past it Lapwing does not
    /// start.
    pub load_memory: Size,
    /// The processor time that it may take.
    pub load_time: Period,
    /// The timeout of requests that name none.
    pub timeout: Switch<Period>,
}

/// Whether models are held against ONNX Runtime when they are loaded. Text: `auto` or `off`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Where its library is found.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// How batches are formed. Text: `adaptive`, or `fixed:8`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum BatchPolicy {
    /// By the cost of calls, waiting only as long as it pays.
    #[default]
    Adaptive,
    /// In order of arrival: this many calls, or those waiting when the oldest has waited for `max_wait`.
    Fixed(usize),
}

impl TryFrom<String> for BatchPolicy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let calls =
            text.trim().strip_prefix("fixed:").and_then(|calls| calls.parse().ok()).filter(|calls| (1..=65_536).contains(calls));
        match (text.trim(), calls) {
            ("adaptive", _) => Ok(Self::Adaptive),
            (_, Some(calls)) => Ok(Self::Fixed(calls)),
            _ => Err("must be adaptive, or fixed and a number of calls up to 65536, as in fixed:8".into()),
        }
    }
}

impl From<BatchPolicy> for String {
    fn from(policy: BatchPolicy) -> Self {
        policy.to_string()
    }
}

impl fmt::Display for BatchPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adaptive => f.write_str("adaptive"),
            Self::Fixed(calls) => write!(f, "fixed:{calls}"),
        }
    }
}

fn device_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"title": "`auto`, `cpu`, `cuda` or `cuda:N`", "type": "string", "pattern": r"^\s*(auto|cpu|cuda(:[0-9]{1,3})?)\s*$"})
}

fn executor_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": Backend::ALL})
}

fn ort_lib_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"title": "`auto`, `off`, file or folder", "type": "string", "pattern": r"\S"})
}

fn provider_schema(_: &mut SchemaGenerator) -> Schema {
    let pattern = r"^\s*(cpu|(cuda|tensorrt)(:[0-9]{1,3})?)\s*$";
    json_schema!({"title": "`cpu`, `cuda`, `cuda:N`, `tensorrt` or `tensorrt:N`", "type": "string", "pattern": pattern})
}

fn verify_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": [Verify::Auto, Verify::Off]})
}

fn precision_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": Precision::ALL})
}

fn policy_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"title": "`adaptive` or `fixed:N`", "type": "string", "pattern": r"^\s*(adaptive|fixed:[0-9]+)\s*$"})
}

impl Default for Config {
    fn default() -> Self {
        Self {
            model: Switch::Off,
            models: BTreeMap::new(),
            shapes: BTreeMap::new(),
            listen: Bind::loopback(8081),
            device: Device::default(),
            executor: Backend::default(),
            ort_lib: OrtLibrary::default(),
            ort_provider: ProviderChoice::default(),
            verify: Verify::default(),
            precision: Precision::default(),
            cuda_lib_dir: Switch::Off,
            calibration: Switch::Off,
            threads: 0,
            cpus: Cpus::default(),
            policy: BatchPolicy::default(),
            min_wait: Period::from_secs(0),
            max_wait: Period::from_millis(5),
            max_batch_tokens: 16_384,
            max_batch_calls: 256,
            queue: 1024,
            max_body: Size::mib(64),
            body_budget: Size::mib(256),
            load_memory: Size::mib(2048),
            load_time: Period::from_secs(10),
            timeout: Switch::Off,
        }
    }
}

/// A model to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelToServe<'a> {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its file.
    pub path: &'a Path,
    /// Shapes of its inputs, where they are stated.
    pub shapes: Vec<StatedShape>,
}

impl Config {
    /// Whether there is a model to serve.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.model.is_on() || !self.models.is_empty()
    }

    /// Where models are served; `None` where there are none.
    #[must_use]
    pub fn address(&self) -> Option<Bind> {
        self.is_on().then_some(self.listen)
    }

    /// The models to serve.
    pub fn wanted(&self) -> impl Iterator<Item = ModelToServe<'_>> {
        let of = |name: String, version: &str, path| ModelToServe {
            shapes: self.shapes_of(&name),
            name,
            version: version.to_owned(),
            path,
        };
        let one = self.model.on().map(move |file| of(stem(file.path()), VERSION, file.path()));
        let named = self.models.iter().map(move |(key, path)| {
            let (name, version) = versioned(key);
            of(name.to_owned(), version, path)
        });
        one.into_iter().chain(named)
    }

    /// The stated shapes of a model's inputs.
    fn shapes_of(&self, name: &str) -> Vec<StatedShape> {
        let is_alone = self.models.len() + usize::from(self.model.is_on()) == 1;
        let stated = self.shapes.iter().filter_map(|(key, shape)| {
            let own = key.strip_prefix(name).and_then(|rest| rest.strip_prefix('/'));
            let input = own.or(is_alone.then_some(key))?;
            Some(StatedShape { input: input.to_owned(), lengths: shape.0.clone() })
        });
        stated.collect()
    }

    /// Whether a model of this name is to be served.
    #[must_use]
    pub fn serves(&self, name: &str) -> bool {
        self.wanted().any(|wanted| wanted.name == name)
    }

    /// The batcher's limits.
    #[must_use]
    pub fn batching(&self) -> batch::Config {
        batch::Config {
            policy: match self.policy {
                BatchPolicy::Adaptive => batch::Policy::Adaptive,
                BatchPolicy::Fixed(calls) => batch::Policy::Fixed { calls },
            },
            max_calls: self.max_batch_calls,
            max_rows: self.max_batch_tokens,
            max_tokens: self.max_batch_tokens,
            min_wait_ns: self.min_wait.as_nanos(),
            max_wait_ns: self.max_wait.as_nanos(),
            queue_calls: self.queue,
        }
    }
}

impl Section for Config {
    const FORMS: &'static [(&'static str, Form)] = &[("models", Form::Named(&Form::Text)), ("shapes", Form::Named(&Form::Text))];

    fn check(&self, checks: &mut Checks) {
        checks.range("threads", &self.threads, 0..=1024);
        checks.range("min_wait", &self.min_wait, Period::from_secs(0)..=Period::from_secs(60));
        checks.range("max_wait", &self.max_wait, Period::from_secs(0)..=Period::from_secs(60));
        if self.min_wait > self.max_wait && checks.is_sound("max_wait") {
            checks.fault("min_wait", self.min_wait, format!("must be at most max_wait, which is {}", self.max_wait));
        }
        checks.range("max_batch_tokens", &self.max_batch_tokens, 1..=16_777_216);
        checks.range("max_batch_calls", &self.max_batch_calls, 1..=65_536);
        checks.range("queue", &self.queue, 1..=1_000_000);
        checks.range("max_body", &self.max_body, Size::kib(1)..=Size::mib(4096));
        checks.range("body_budget", &self.body_budget, Size::kib(1)..=Size::mib(1 << 20));
        checks.range("load_memory", &self.load_memory, Size::mib(64)..=Size::mib(1 << 20));
        checks.range("load_time", &self.load_time, Period::from_secs(1)..=Period::from_secs(3600));
        checks.switch_range("timeout", &self.timeout, Period::from_millis(1)..=Period::from_secs(3600));
        self.check_where(checks);
        if self.calibration.is_on() && self.precision != Precision::Int8 {
            checks.fault("calibration", &self.calibration, "has no effect unless precision is int8");
        }
        if self.calibration.is_on() && self.wanted().count() > 1 {
            checks.fault("calibration", &self.calibration, "is for one model, and there are several");
        }
        for (key, path) in &self.models {
            let (name, version) = versioned(key);
            let is_name = |text: &str| {
                !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
            };
            if !is_name(name) || version.parse::<u64>().is_err() {
                let reason = "must be NAME or NAME@VERSION: letters, digits, _, - and dots, and a whole number";
                checks.fault(&format!("models.{key}"), path.display(), reason);
            }
        }
        if self.wanted().count() > 1 {
            let is_of = |key: &str, name: &str| key.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
            for (key, shape) in self.shapes.iter().filter(|(key, _)| !self.wanted().any(|model| is_of(key, &model.name))) {
                let reason = "names none of the models; with several it must be MODEL/INPUT";
                checks.fault(&format!("shapes.{key}"), shape.0.to_string(), reason);
            }
        }
        let mut seen: Vec<ModelToServe<'_>> = Vec::new();
        for wanted in self.wanted() {
            if seen.iter().any(|other| (&other.name, &other.version) == (&wanted.name, &wanted.version)) {
                let (name, version) = (&wanted.name, &wanted.version);
                checks.fault("models", wanted.path.display(), format!("is a second model named {name}, version {version}"));
            }
            seen.push(wanted);
        }
    }
}

impl Config {
    /// Reports combinations of device, executor and precision that exclude each other.
    fn check_where(&self, checks: &mut Checks) {
        let (device, executor) = (self.device, self.executor);
        let precision = self.precision.name();
        if matches!(device, Device::Cuda(_)) && !lapwing_engine::HAS_CUDA {
            checks.fault("device", device, "is not in this build, which was made without the feature cuda");
        }
        if matches!(device, Device::Cuda(_)) && !executor.allows_plan() {
            checks.fault("device", device, format!("needs a plan, but executor is {}", executor.name()));
        }
        if !executor.allows_plan() && self.precision != Precision::Fp32 {
            checks.fault("precision", precision, format!("needs a plan, but executor is {}", executor.name()));
        }
        if executor == Backend::OnnxRuntime && !lapwing_engine::HAS_ONNXRUNTIME {
            checks.fault("executor", executor.name(), "is not in this build, which was made without the feature onnxruntime");
        }
        if executor == Backend::OnnxRuntime && self.ort_lib == OrtLibrary::Off {
            checks.fault("ort_lib", &self.ort_lib, "must not be off while executor is onnxruntime");
        }
        if self.ort_lib.path().is_some() && !lapwing_engine::HAS_ONNXRUNTIME {
            checks.fault("ort_lib", &self.ort_lib, "has no effect in this build, which was made without the feature onnxruntime");
        }
        if self.ort_provider.is_gpus() {
            let reason = match executor {
                _ if !lapwing_engine::HAS_ONNXRUNTIME => {
                    Some("needs ONNX Runtime, and this build was made without the feature onnxruntime")
                }
                _ if self.ort_lib == OrtLibrary::Off => Some("needs ONNX Runtime, but ort_lib is off"),
                Backend::Auto | Backend::OnnxRuntime => None,
                _ => Some("has no effect while executor is another than auto or onnxruntime"),
            };
            if let Some(reason) = reason {
                checks.fault("ort_provider", self.ort_provider, reason);
            }
        }
        if self.precision.is_gpus() && !lapwing_engine::HAS_CUDA {
            checks.fault("precision", precision, "needs a GPU, and this build was made without the feature cuda");
        }
        if device == Device::Cpu && self.precision.is_gpus() {
            checks.fault("precision", precision, "needs a GPU, but device is cpu");
        }
        if let Switch::On(folder) = &self.cuda_lib_dir {
            if device == Device::Cpu {
                checks.fault("cuda_lib_dir", folder, "has no effect while device is cpu");
            } else if !folder.path().is_dir() {
                checks.fault("cuda_lib_dir", folder, "is not a readable folder");
            }
        }
    }
}

/// The name and the version of `NAME` or `NAME@VERSION`.
#[must_use]
pub fn versioned(key: &str) -> (&str, &str) {
    key.split_once('@').unwrap_or((key, VERSION))
}

/// The file's name without its ending, of letters, digits, `_`, `-` and dots only.
#[must_use]
pub fn stem(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let plain: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '.') { c } else { '_' }).collect();
    if plain.is_empty() { "model".to_owned() } else { plain }
}
