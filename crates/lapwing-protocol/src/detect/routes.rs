//! The routes of model servers, as their routers name them.

use super::family::Family;

/// A route of model servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// The path, in which `{model}` and `{version}` are any segment.
    pub(crate) path: &'static str,
    /// Whether it is recognised as the whole path only.
    pub(crate) is_whole: bool,
    pub(crate) family: Family,
}

const fn whole(path: &'static str, family: Family) -> Route {
    Route { path, is_whole: true, family }
}

const fn below(path: &'static str, family: Family) -> Route {
    Route { path, is_whole: false, family }
}

/// Every route of a body other than gRPC. The first that fits is taken.
pub(crate) const ROUTES: &[Route] = &[
    // TorchServe
    whole("/predictions/{model}", Family::TorchServe),
    whole("/predictions/{model}/{version}", Family::TorchServe),
    whole("/explanations/{model}", Family::TorchServe),
    whole("/explanations/{model}/{version}", Family::TorchServe),
    // TensorFlow Serving and KServe's first protocol
    below("/models/{model}:predict", Family::TfRest),
    below("/models/{model}/versions/{version}:predict", Family::TfRest),
    below("/models/{model}/labels/{version}:predict", Family::TfRest),
    below("/models/{model}:explain", Family::TfRest),
    below("/models/{model}:classify", Family::TfRestExamples),
    below("/models/{model}/versions/{version}:classify", Family::TfRestExamples),
    below("/models/{model}/labels/{version}:classify", Family::TfRestExamples),
    below("/models/{model}:regress", Family::TfRestExamples),
    below("/models/{model}/versions/{version}:regress", Family::TfRestExamples),
    below("/models/{model}/labels/{version}:regress", Family::TfRestExamples),
    // the Open Inference Protocol
    below("/models/{model}/infer", Family::OipRest),
    below("/models/{model}/versions/{version}/infer", Family::OipRest),
    below("/models/{model}/infer_stream", Family::OipRest),
    below("/models/{model}/versions/{version}/infer_stream", Family::OipRest),
    below("/models/{model}/generate", Family::TritonGenerate),
    below("/models/{model}/versions/{version}/generate", Family::TritonGenerate),
    below("/models/{model}/generate_stream", Family::TritonGenerate),
    below("/models/{model}/versions/{version}/generate_stream", Family::TritonGenerate),
    // the OpenAI API and what servers added to it
    below("/chat/completions", Family::OpenAiChat),
    below("/completions", Family::OpenAiCompletions),
    below("/api/embeddings", Family::OllamaEmbed),
    below("/embeddings", Family::OpenAiEmbeddings),
    below("/v1/responses", Family::OpenAiResponses),
    whole("/responses", Family::OpenAiResponses),
    below("/audio/transcriptions", Family::OpenAiTranscription),
    below("/audio/translations", Family::OpenAiTranscription),
    below("/audio/speech", Family::OpenAiSpeech),
    below("/images/generations", Family::OpenAiImages),
    below("/images/edits", Family::OpenAiImages),
    below("/v1/score", Family::Score),
    whole("/score", Family::Score),
    below("/v1/classify", Family::Classify),
    whole("/classify", Family::Classify),
    below("/v1/decisions", Family::Classify),
    below("/v1/systemone", Family::Classify),
    below("/v1/pooling", Family::Pooling),
    whole("/pooling", Family::Pooling),
    below("/v1/rerank", Family::TeiRerank),
    below("/v2/rerank", Family::TeiRerank),
    below("/v1/reranking", Family::TeiRerank),
    whole("/reranking", Family::TeiRerank),
    below("/inference/v1/generate", Family::GenerateTokens),
    // Anthropic and Cohere
    below("/v1/messages", Family::AnthropicMessages),
    below("/v2/chat", Family::CohereChat),
    below("/v2/embed", Family::CohereEmbed),
    // tokens counted, split and joined
    below("/v1/messages/count_tokens", Family::CountTokens),
    below("/chat/completions/input_tokens", Family::CountTokens),
    below("/responses/input_tokens", Family::CountTokens),
    below("/chat/completions/render", Family::CountTokens),
    below("/v1/completions/render", Family::CountTokens),
    below("/v1/tokenize", Family::CountTokens),
    whole("/tokenize", Family::CountTokens),
    whole("/chat_tokenize", Family::CountTokens),
    whole("/apply-template", Family::CountTokens),
    below("/v1/detokenize", Family::Detokenize),
    whole("/detokenize", Family::Detokenize),
    whole("/decode", Family::Detokenize),
    // Ollama; its older embeddings are above
    below("/api/generate", Family::OllamaGenerate),
    below("/api/chat", Family::OllamaChat),
    below("/api/embed", Family::OllamaEmbed),
    // KServe
    below("/v1/timeseries/forecast", Family::Forecast),
    // SageMaker, MLflow, Google
    below("/endpoints/{model}/invocations", Family::Invocations),
    below("/serving-endpoints/{model}/invocations", Family::Invocations),
    below("/gateway/{model}/invocations", Family::Invocations),
    whole("/invocations", Family::Invocations),
    whole("/vertex", Family::Vertex),
    whole("/vertex_generate", Family::Vertex),
    // everyday words
    whole("/", Family::Generate),
    whole("/generate", Family::Generate),
    whole("/generate_stream", Family::Generate),
    whole("/encode", Family::Encode),
    whole("/completion", Family::OpenAiCompletions),
    whole("/infill", Family::LlamaInfill),
    whole("/embedding", Family::LlamaEmbedding),
    whole("/embed", Family::TeiEmbed),
    whole("/embed_all", Family::TeiEmbed),
    whole("/embed_sparse", Family::TeiEmbed),
    whole("/predict", Family::TeiPredict),
    whole("/rerank", Family::TeiRerank),
    whole("/similarity", Family::TeiSimilarity),
];
