//! The fields watched in each protocol: tables of locations and their meaning, one file for each family of servers.

mod anthropic;
mod audio;
mod cohere;
pub(crate) mod custom;
#[cfg(test)]
mod documented;
mod generate;
mod images;
mod invocations;
mod llama_cpp;
mod oip;
mod ollama;
mod openai;
mod pooling;
mod tei;
mod tensorflow;
mod tokenize;
mod torchserve;

pub use custom::matches_glob;

use super::detect::Family;
use super::plan::ProtocolSpec;

/// The table of a protocol.
pub(crate) const fn spec(family: Family) -> &'static ProtocolSpec {
    match family {
        Family::OipRest => &oip::REST,
        Family::OipGrpc => &oip::GRPC,
        Family::OipGrpcStream => &oip::GRPC_STREAM,
        Family::TritonGenerate => &oip::GENERATE,
        Family::OpenAiChat => &openai::CHAT,
        Family::OpenAiCompletions => &openai::COMPLETIONS,
        Family::OpenAiEmbeddings => &openai::EMBEDDINGS,
        Family::OpenAiResponses => &openai::RESPONSES,
        Family::OpenAiTranscription => &audio::TRANSCRIPTION,
        Family::OpenAiSpeech => &audio::SPEECH,
        Family::OpenAiImages => &images::IMAGES,
        Family::AnthropicMessages => &anthropic::MESSAGES,
        Family::CohereChat => &cohere::CHAT,
        Family::CohereEmbed => &cohere::EMBED,
        Family::Score => &pooling::SCORE,
        Family::Classify => &pooling::CLASSIFY,
        Family::Pooling => &pooling::POOLING,
        Family::CountTokens => &tokenize::COUNT,
        Family::Detokenize => &tokenize::DETOKENIZE,
        Family::TeiEmbed => &tei::EMBED,
        Family::TeiPredict => &tei::PREDICT,
        Family::TeiRerank => &tei::RERANK,
        Family::TeiSimilarity => &tei::SIMILARITY,
        Family::TeiGrpcEmbed => &tei::GRPC_EMBED,
        Family::TeiGrpcPair => &tei::GRPC_PAIR,
        Family::TeiGrpcRerank => &tei::GRPC_RERANK,
        Family::TeiGrpcRerankStream => &tei::GRPC_RERANK_STREAM,
        Family::Generate => &generate::GENERATE,
        Family::GenerateTokens => &generate::TOKENS,
        Family::Encode => &generate::ENCODE,
        Family::Invocations => &invocations::INVOCATIONS,
        Family::Vertex => &invocations::VERTEX,
        Family::Forecast => &invocations::FORECAST,
        Family::LlamaInfill => &llama_cpp::INFILL,
        Family::LlamaEmbedding => &llama_cpp::EMBEDDING,
        Family::OllamaGenerate => &ollama::GENERATE,
        Family::OllamaChat => &ollama::CHAT,
        Family::OllamaEmbed => &ollama::EMBED,
        Family::TorchServe => &torchserve::PREDICTIONS,
        Family::TfRest => &tensorflow::REST,
        Family::TfRestExamples => &tensorflow::REST_EXAMPLES,
        Family::TfGrpc => &tensorflow::GRPC,
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::ReadPlan;
    use super::*;

    #[test]
    fn every_table_compiles_and_has_its_place() {
        for (at, family) in Family::ALL.iter().enumerate() {
            assert_eq!(*family as usize, at);
            // a location that is named twice fails here
            let _ = ReadPlan::new(spec(*family));
        }
    }
}
