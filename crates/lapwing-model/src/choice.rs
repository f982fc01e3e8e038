//! The user's choice of what runs a model, on which device, and of ONNX Runtime's library.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use lapwing_engine::onnxruntime::{LibraryError, Runtime};

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
    /// [`LibraryError`] if the one that was named cannot be used.
    pub fn find(&self) -> Result<Option<Result<Runtime, LibraryError>>, LibraryError> {
        match self {
            Self::Off => Ok(None),
            Self::Auto => Ok(Some(Runtime::find(None))),
            Self::At(path) => Runtime::find(Some(path)).map(|runtime| Some(Ok(runtime))),
        }
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
