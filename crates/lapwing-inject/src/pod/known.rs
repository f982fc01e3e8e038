//! How the images and commands of model servers are called, and where they listen.

use lapwing_ledger::Server;

/// A server as manifests show it.
pub(crate) struct Known {
    /// Which of docs/UPSTREAMS.md it is; `None` if it is one of those that only speak their protocols.
    pub(crate) server: Option<Server>,
    pub(crate) title: &'static str,
    /// The image's name, or a part of its path; a star is any end.
    pub(crate) images: &'static [&'static str],
    /// What is run, as [`Words::runs`](super::words::Words::runs) takes it.
    pub(crate) commands: &'static [&'static str],
    /// Options with the port of its HTTP API, or with an address that ends in it.
    pub(crate) options: &'static [&'static str],
    /// Variables with it.
    pub(crate) variables: &'static [&'static str],
    /// Where it listens when neither says otherwise, as its image has it.
    pub(crate) port: u16,
    /// Its port for gRPC, if that is another.
    pub(crate) grpc: Option<u16>,
}

const NONE: Known =
    Known { server: None, title: "", images: &[], commands: &[], options: &["--port"], variables: &[], port: 0, grpc: None };

/// What KServe runs for the model of an InferenceService: whatever it is, it serves on 8080.
pub(crate) const RUNTIME: Known =
    Known { title: "a runtime of KServe", options: &["--http_port", "--http-port"], port: 8080, ..NONE };

/// In order of how much a name says: an image of Triton with vLLM in it is Triton, FastAPI carries many of the others.
pub(crate) const SERVERS: &[Known] = &[
    Known {
        server: Some(Server::TensorRtLlm),
        images: &["tensorrt-llm*", "tensorrt_llm*", "trtllm*"],
        commands: &["trtllm-serve"],
        options: &["--port"],
        port: 8000,
        ..NONE
    },
    Known {
        server: Some(Server::Triton),
        images: &["*tritonserver*", "triton-inference-server", "triton"],
        commands: &["tritonserver"],
        options: &["--http-port"],
        port: 8000,
        grpc: Some(8001),
        ..NONE
    },
    Known {
        server: Some(Server::Sglang),
        images: &["sglang", "sglang-*"],
        commands: &["sglang", "sglang.launch_server"],
        variables: &["SGLANG_PORT"],
        port: 30000,
        ..NONE
    },
    Known {
        server: Some(Server::Tei),
        images: &["*text-embeddings-inference*", "text-embeddings-router", "tei", "tei-*"],
        commands: &["text-embeddings-router"],
        options: &["--port", "-p"],
        variables: &["PORT"],
        port: 80,
        ..NONE
    },
    Known {
        server: Some(Server::Tgi),
        images: &["*text-generation-inference*", "tgi", "tgi-*"],
        commands: &["text-generation-launcher"],
        options: &["--port", "-p"],
        variables: &["PORT"],
        port: 80,
        ..NONE
    },
    Known {
        server: Some(Server::Vllm),
        images: &["vllm", "vllm-*", "llm-d", "llm-d-cuda*", "llm-d-inference-sim"],
        commands: &["vllm", "vllm."],
        port: 8000,
        ..NONE
    },
    Known {
        server: Some(Server::LlamaCpp),
        images: &["*llama.cpp*", "llama-server*", "llamacpp*", "llama-cpp*"],
        commands: &["llama-server", "llama_cpp.server"],
        variables: &["LLAMA_ARG_PORT", "PORT"],
        port: 8080,
        ..NONE
    },
    Known {
        server: Some(Server::Ollama),
        images: &["ollama", "ollama-*"],
        commands: &["ollama"],
        options: &[],
        variables: &["OLLAMA_HOST"],
        port: 11434,
        ..NONE
    },
    Known {
        server: Some(Server::TfServing),
        images: &["tensorflow/serving", "tensorflow-serving*", "tfserving*", "tf-serving*"],
        commands: &["tensorflow_model_server"],
        options: &["--rest_api_port", "--http_port"],
        port: 8501,
        grpc: Some(8500),
        ..NONE
    },
    Known {
        server: Some(Server::TorchServe),
        images: &["torchserve*", "pytorch-torchserve*"],
        commands: &["torchserve"],
        options: &[],
        variables: &["TS_INFERENCE_PORT"],
        port: 8080,
        grpc: Some(7070),
        ..NONE
    },
    Known {
        server: Some(Server::MlServer),
        images: &["mlserver", "mlserver-*"],
        commands: &["mlserver"],
        options: &[],
        variables: &["MLSERVER_HTTP_PORT"],
        port: 8080,
        grpc: Some(8081),
        ..NONE
    },
    Known {
        server: Some(Server::KServe),
        images: &["huggingfaceserver", "sklearnserver", "xgbserver", "lgbserver", "pmmlserver", "paddleserver", "kserve"],
        commands: &["huggingfaceserver", "sklearnserver", "xgbserver", "lgbserver", "pmmlserver", "paddleserver", "kserve"],
        options: &["--http_port"],
        port: 8080,
        grpc: Some(8081),
        ..NONE
    },
    Known {
        server: Some(Server::RayServe),
        images: &["rayproject/ray", "rayproject/ray-*", "ray-serve*"],
        commands: &["serve run", "serve deploy", "serve start"],
        options: &["--http-port"],
        port: 8000,
        ..NONE
    },
    Known {
        server: Some(Server::BentoMl),
        images: &["bentoml", "bento", "bento-server"],
        commands: &["bentoml"],
        options: &["--port", "-p"],
        variables: &["BENTOML_PORT", "PORT"],
        port: 3000,
        ..NONE
    },
    Known {
        title: "NVIDIA NIM",
        images: &["nvcr.io/nim"],
        variables: &["NIM_HTTP_API_PORT", "NIM_SERVER_PORT"],
        port: 8000,
        ..NONE
    },
    Known {
        title: "OpenVINO Model Server",
        images: &["model_server*", "openvino-model-server*"],
        commands: &["ovms"],
        options: &["--rest_port"],
        port: 8000,
        grpc: Some(9000),
        ..NONE
    },
    Known {
        title: "Infinity",
        images: &["infinity"],
        commands: &["infinity_emb"],
        variables: &["INFINITY_PORT"],
        port: 7997,
        ..NONE
    },
    Known {
        title: "LocalAI",
        images: &["localai", "local-ai"],
        commands: &["local-ai"],
        variables: &["LOCALAI_ADDRESS"],
        options: &["--address"],
        port: 8080,
        ..NONE
    },
    Known { title: "MLflow", images: &["mlflow"], commands: &["mlflow models"], options: &["--port", "-p"], port: 5000, ..NONE },
    Known { title: "LMDeploy", images: &["lmdeploy"], commands: &["lmdeploy"], options: &["--server-port"], port: 23333, ..NONE },
    Known {
        title: "Xinference",
        images: &["xinference"],
        commands: &["xinference-local", "xinference"],
        options: &["--port", "-p"],
        port: 9997,
        ..NONE
    },
    Known {
        server: Some(Server::FastApi),
        images: &[],
        commands: &["uvicorn", "gunicorn", "hypercorn", "fastapi", "granian"],
        options: &["--port", "--bind", "-b"],
        variables: &["PORT", "UVICORN_PORT"],
        port: 8000,
        ..NONE
    },
];
