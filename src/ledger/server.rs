//! The model servers that Lapwing knows by name.

use serde::{Deserialize, Serialize};

macro_rules! servers {
    ($($variant:ident $name:literal $title:literal;)*) => {
        /// A model server, recognised by what it reports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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
