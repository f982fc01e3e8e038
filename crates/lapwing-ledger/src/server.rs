//! The model servers that Lapwing knows by name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where an exchange showed which server answered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvidence {
    /// A field of the response's head or trailers.
    Head,
    /// Fields of the response's body. They may be those of a server behind the one that answered.
    Body,
    /// A span of the server, directly below Lapwing's own.
    Span,
}

impl ServerEvidence {
    /// The evidence in prose, as in "recognised by …".
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Head => "a field of its responses' heads",
            Self::Body => "fields of its responses' bodies",
            Self::Span => "its spans",
        }
    }
}

/// What the `Server` field of a response's head names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerField {
    /// There is no such field.
    #[default]
    Absent,
    /// uvicorn, which carries most servers written in Python.
    Uvicorn,
    /// The model server that `Ledger::server` is.
    ModelServer,
    /// Something else, such as a proxy.
    Other,
}

macro_rules! servers {
    ($($variant:ident $name:literal $title:literal;)*) => {
        /// A model server, recognised by what it reports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        pub enum Server { $(#[doc = $title] #[serde(rename = $name)] $variant,)* }

        impl Server {
            /// Every server.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name on every surface and on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The name in prose.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// Whether it can be configured to send spans of its requests: `lapwing upstream-flags` says how.
            #[must_use]
            pub const fn sends_spans(self) -> bool {
                !matches!(self, Self::LlamaCpp | Self::Ollama | Self::TfServing | Self::TorchServe | Self::KServe)
            }

            /// The server of that name; `None` if there is none.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|server| server.name() == name)
            }
        }
    };
}

servers! {
    Triton "triton" "NVIDIA Triton Inference Server";
    Vllm "vllm" "vLLM";
    Sglang "sglang" "SGLang";
    Tei "tei" "Text Embeddings Inference";
    Tgi "tgi" "Text Generation Inference";
    LlamaCpp "llama.cpp" "llama.cpp server";
    Ollama "ollama" "Ollama";
    TfServing "tensorflow-serving" "TensorFlow Serving";
    TorchServe "torchserve" "TorchServe";
    MlServer "mlserver" "MLServer";
    KServe "kserve" "KServe Python SDK";
    RayServe "ray-serve" "Ray Serve";
    BentoMl "bentoml" "BentoML";
    TensorRtLlm "tensorrt-llm" "TensorRT-LLM";
    FastApi "fastapi" "FastAPI";
}
