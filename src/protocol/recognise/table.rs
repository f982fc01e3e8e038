//! The signature of each protocol.

use super::super::detect::Family;
use super::signature::Signature;
use super::{classic, generative};

/// The signature of a protocol. One without a signature is never recognised, so its calls are not copied unless the user names them.
pub(super) const fn signature(family: Family) -> Signature {
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
        // a stream of calls is never copied
        _ => classic::UNKNOWN,
    }
}
