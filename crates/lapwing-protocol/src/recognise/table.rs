//! The signature of each protocol.

use super::super::detect::Family;
use super::signature::Signature;
use super::{classic, generative, others};

/// The signature of a protocol. One without a signature is never recognised, so its calls are not copied unless the user names them.
pub(crate) const fn signature(family: Family) -> Signature {
    match family {
        Family::OipRest => classic::OIP_REST,
        Family::OipGrpc => classic::OIP_GRPC,
        Family::TritonGenerate => generative::TRITON_GENERATE,
        Family::OpenAiChat => generative::CHAT,
        Family::OpenAiCompletions => generative::COMPLETIONS,
        Family::OpenAiEmbeddings | Family::LlamaEmbedding => classic::EMBEDDINGS,
        Family::OpenAiResponses => generative::RESPONSES,
        Family::TeiEmbed => classic::TEI_EMBED,
        Family::TeiPredict => classic::TEI_PREDICT,
        Family::TeiRerank => classic::RERANK,
        Family::TeiSimilarity => classic::SIMILARITY,
        Family::TeiGrpcEmbed | Family::TeiGrpcPair => classic::TEI_GRPC,
        Family::TeiGrpcRerank | Family::TeiGrpcRerankStream => classic::TEI_GRPC_RERANK,
        Family::Generate => generative::GENERATE,
        Family::LlamaInfill => generative::INFILL,
        Family::OllamaGenerate => generative::OLLAMA_GENERATE,
        Family::OllamaChat => generative::OLLAMA_CHAT,
        Family::OllamaEmbed => generative::OLLAMA_EMBED,
        Family::TorchServe => classic::TORCH_SERVE,
        Family::TfRest => classic::TF_REST,
        Family::TfRestExamples => classic::TF_REST_EXAMPLES,
        Family::TfGrpc => classic::TF_GRPC,
        Family::AnthropicMessages => others::ANTHROPIC,
        Family::CohereChat => others::COHERE_CHAT,
        Family::CohereEmbed => others::COHERE_EMBED,
        Family::Score => others::SCORE,
        Family::Classify => others::CLASSIFY,
        Family::Pooling => others::POOLING,
        Family::CountTokens => others::COUNT_TOKENS,
        Family::Detokenize => others::DETOKENIZE,
        Family::GenerateTokens => others::GENERATE_TOKENS,
        Family::Encode => others::ENCODE,
        Family::Invocations => others::INVOCATIONS,
        Family::Vertex => others::VERTEX,
        Family::OpenAiImages => others::IMAGES,
        // a stream of calls is never copied; a transcription is a form, the answer to speech is sound, and forecasts differ by server
        _ => classic::UNKNOWN,
    }
}
