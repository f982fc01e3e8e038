//! The user's choice of what runs a model, on which device, and of ONNX Runtime's library.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use lapwing_engine::onnxruntime::{LibraryError, Runtime};
use lapwing_engine::placement::OrtProvider;

/// What runs a model. Text: `auto`, `plan`, `tabular`, `rten` or `onnxruntime`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum Backend {
    /// The model's plan where it has one, or that of a classical model; else ONNX Runtime where its library is found, else rten.
    #[default]
    Auto,
    /// The model's plan, and nothing else.
    Plan,
    /// The plan of a classical model, and nothing else.
    Tabular,
    /// rten, even if the model has a plan.
    Rten,
    /// ONNX Runtime, even if the model has a plan.
    OnnxRuntime,
}

impl Backend {
    /// Every choice.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Plan, Self::Tabular, Self::Rten, Self::OnnxRuntime];

    /// The name in settings and flags.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Plan => "plan",
            Self::Tabular => "tabular",
            Self::Rten => "rten",
            Self::OnnxRuntime => "onnxruntime",
        }
    }

    /// Whether a plan may run the model: GPUs and all number formats but `fp32` need one.
    #[must_use]
    pub const fn allows_plan(self) -> bool {
        matches!(self, Self::Auto | Self::Plan)
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|backend| backend.name() == text.trim());
        known.ok_or_else(|| match text.trim() {
            "tract" => "tract is not part of Lapwing any more; rten took its place".into(),
            _ => "must be auto, plan, tabular, rten or onnxruntime".into(),
        })
    }
}

impl TryFrom<String> for Backend {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The device that models run on. Text: `auto`, `cpu`, `cuda` (the same as `cuda:0`), `cuda:1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Device {
    /// The first GPU that can run the model, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU with this number, 0 to 255, and nothing else.
    Cuda(usize),
}

impl TryFrom<String> for Device {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        // u8's parser takes a sign, which is not part of a device's number
        let number = text.strip_prefix("cuda:").filter(|number| number.bytes().all(|b| b.is_ascii_digit()));
        match (text, number.and_then(|number| number.parse::<u8>().ok())) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(0)),
            (_, Some(number)) => Ok(Self::Cuda(number.into())),
            _ => Err("must be auto, cpu, cuda, or cuda and a number up to 255, as in cuda:1".into()),
        }
    }
}

impl From<Device> for String {
    fn from(device: Device) -> Self {
        device.to_string()
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// What runs the nodes of models in ONNX Runtime. Text: `cpu`, `cuda` (the same as `cuda:0`), `cuda:1`, `tensorrt`, `tensorrt:1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProviderChoice(pub OrtProvider);

impl ProviderChoice {
    /// Whether a GPU is needed.
    #[must_use]
    pub fn is_gpus(self) -> bool {
        self.0 != OrtProvider::Cpu
    }

    /// The names of the library's providers that no model uses.
    #[must_use]
    pub fn unused(self, runtime: &Runtime) -> Vec<String> {
        let used = [self.0.name(), OrtProvider::Cpu.name()];
        runtime.providers().iter().filter(|name| !used.contains(&name.as_str())).cloned().collect()
    }
}

impl FromStr for ProviderChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, number) = text.trim().split_once(':').map_or((text.trim(), "0"), |(name, number)| (name, number));
        let device = number.parse::<u8>().ok().filter(|_| number.bytes().all(|b| b.is_ascii_digit()));
        match (text.trim(), name, device) {
            ("cpu", ..) => Ok(Self(OrtProvider::Cpu)),
            (_, "cuda", Some(device)) => Ok(Self(OrtProvider::Cuda(device))),
            (_, "tensorrt", Some(device)) => Ok(Self(OrtProvider::TensorRt(device))),
            _ => Err("must be cpu, cuda or tensorrt, the last two with a number up to 255 if need be, as in cuda:1".into()),
        }
    }
}

impl TryFrom<String> for ProviderChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ProviderChoice> for String {
    fn from(provider: ProviderChoice) -> Self {
        provider.to_string()
    }
}

impl fmt::Display for ProviderChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            OrtProvider::Cpu => f.write_str("cpu"),
            OrtProvider::Cuda(device) => write!(f, "cuda:{device}"),
            OrtProvider::TensorRt(device) => write!(f, "tensorrt:{device}"),
        }
    }
}

/// Which library ONNX Runtime is. Text: `auto`, `off`, or the path of a file or folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum OrtLibrary {
    /// The one that is found by `ORT_DYLIB_PATH`, on the loader's path, or in the current Python environment.
    #[default]
    Auto,
    /// None.
    Off,
    /// This file, or the one in this folder, and no other.
    At(PathBuf),
}

impl OrtLibrary {
    /// Looks for the library; the result is `None` if none is wanted, and says why there is none where any would do.
    ///
    /// # Errors
    ///
    /// [`LibraryError`] if the one that was named cannot be used, or lacks the GPU's provider that models are to run on.
    pub fn find(&self, provider: ProviderChoice) -> Result<Option<Result<Runtime, LibraryError>>, LibraryError> {
        let found = match self {
            Self::Off => return Ok(None),
            Self::Auto => Runtime::find(None),
            Self::At(path) => Ok(Runtime::find(Some(path))?),
        };
        if !provider.is_gpus() {
            return Ok(Some(found));
        }
        let needed = format!("engine.ort_provider is {provider}");
        let runtime = found.map_err(|error| LibraryError::told(format!("{needed}, but {error}")))?;
        if runtime.providers().iter().any(|name| name == provider.0.name()) {
            return Ok(Some(Ok(runtime)));
        }
        let (path, all) = (runtime.path().display(), runtime.providers().join(", "));
        let name = provider.0.name();
        Err(LibraryError::told(format!("{needed}, but {path} was built without {name}; it has {all}")))
    }

    /// The path, if one was named.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        if let Self::At(path) = self { Some(path) } else { None }
    }
}

impl TryFrom<String> for OrtLibrary {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for OrtLibrary {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            "" => Err("must be auto, off, or the path of a file or folder".into()),
            _ => Ok(Self::At(text.into())),
        }
    }
}

impl From<OrtLibrary> for String {
    fn from(library: OrtLibrary) -> Self {
        library.to_string()
    }
}

impl fmt::Display for OrtLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::At(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_read_as_it_is_written_and_nothing_else_is_one() {
        for (text, provider) in [
            ("cpu", OrtProvider::Cpu),
            ("cuda:0", OrtProvider::Cuda(0)),
            ("cuda:255", OrtProvider::Cuda(255)),
            ("tensorrt:3", OrtProvider::TensorRt(3)),
        ] {
            let read: ProviderChoice = text.parse().unwrap();
            assert_eq!((read.0, read.to_string().as_str()), (provider, text));
        }
        assert_eq!(" cuda ".parse(), Ok(ProviderChoice(OrtProvider::Cuda(0))));
        assert_eq!("tensorrt".parse(), Ok(ProviderChoice(OrtProvider::TensorRt(0))));
        for text in ["", "auto", "cpu:0", "cuda:", "cuda:+1", "cuda:256", "cuda:1:2", "CUDA", "trt"] {
            assert!(text.parse::<ProviderChoice>().unwrap_err().starts_with("must be cpu, cuda or tensorrt"), "{text}");
        }
    }
}
