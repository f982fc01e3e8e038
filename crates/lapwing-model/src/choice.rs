//! The user's choice of what runs a model, and on which device.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What runs a model. Text: `auto` or `tract`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The model's plan where it has one, else tract.
    #[default]
    Auto,
    /// Tract, even if the model has a plan; for comparisons.
    Tract,
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
