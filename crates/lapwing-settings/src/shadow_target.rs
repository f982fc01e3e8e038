//! Where copies of requests go: another server, or a model file that the engine in this process runs.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Invalid, Upstream, text::text_serde};

/// A shadow target's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShadowTarget {
    /// Another server. Text: as for the upstream.
    Server(Upstream),
    /// A model that the engine runs. Text: `engine:model.onnx`.
    Engine(PathBuf),
}

text_serde!(ShadowTarget, "a URL or a model, as in http://127.0.0.1:9000 or engine:model.onnx", {
    "title": "target", "type": "string", "pattern": r"^\s*(([hH][tT][tT][pP]|[hH]2[cC])://[^/?#@\s]+/?|unix:(//)?/.+|engine:.+)\s*$",
    "examples": ["http://127.0.0.1:9000", "engine:/models/m.onnx"]
});

impl FromStr for ShadowTarget {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text.trim().strip_prefix("engine:") {
            Some("") => Err(Invalid::new(text, "needs the model's file, as in engine:model.onnx")),
            Some(path) => Ok(Self::Engine(path.into())),
            None => text.parse().map(Self::Server),
        }
    }
}

impl fmt::Display for ShadowTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(upstream) => upstream.fmt(f),
            Self::Engine(path) => write!(f, "engine:{}", path.display()),
        }
    }
}
