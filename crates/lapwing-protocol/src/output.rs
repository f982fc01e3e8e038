//! What the answers of a protocol contain, for comparisons.

use super::detect::Family;
use super::exchange_reader::{DetectedProtocol, Protocol};

/// The content of a protocol's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OutputKind {
    /// Named tensors of the Open Inference Protocol: JSON, JSON with binary data after it, or gRPC.
    Tensors,
    /// One vector per input.
    Embeddings,
    /// Text that a model wrote, whole or as a stream.
    GeneratedText,
    /// Another document, or an unknown protocol: the media type shows the format.
    #[default]
    Other,
}

impl DetectedProtocol {
    /// What an answer contains; `is_grpc` if the request's body was gRPC.
    #[must_use]
    pub fn output_kind(&self, is_grpc: bool) -> OutputKind {
        let protocol = if is_grpc { self.grpc } else { self.plain };
        let Some(Protocol::Known(family)) = protocol else { return OutputKind::Other };
        match family {
            Family::OipRest | Family::OipGrpc | Family::OipGrpcStream => OutputKind::Tensors,
            Family::OpenAiEmbeddings
            | Family::LlamaEmbedding
            | Family::OllamaEmbed
            | Family::TeiEmbed
            | Family::CohereEmbed
            | Family::Encode => OutputKind::Embeddings,
            Family::TritonGenerate
            | Family::OpenAiChat
            | Family::OpenAiCompletions
            | Family::OpenAiResponses
            | Family::OpenAiTranscription
            | Family::AnthropicMessages
            | Family::Generate
            | Family::LlamaInfill
            | Family::OllamaGenerate
            | Family::OllamaChat => OutputKind::GeneratedText,
            Family::OpenAiSpeech
            | Family::OpenAiImages
            | Family::CohereChat
            | Family::GenerateTokens
            | Family::Score
            | Family::Classify
            | Family::Pooling
            | Family::CountTokens
            | Family::Detokenize
            | Family::Invocations
            | Family::Vertex
            | Family::Forecast
            | Family::TeiPredict
            | Family::TeiRerank
            | Family::TeiSimilarity
            | Family::TeiGrpcEmbed
            | Family::TeiGrpcPair
            | Family::TeiGrpcRerank
            | Family::TeiGrpcRerankStream
            | Family::TorchServe
            | Family::TfRest
            | Family::TfRestExamples
            | Family::TfGrpc => OutputKind::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::super::Protocols;
    use super::*;

    #[test]
    fn the_path_tells_what_the_answer_contains() {
        for (path, plain, grpc) in [
            ("/v2/models/digits/infer", OutputKind::Tensors, OutputKind::Other),
            ("/inference.GRPCInferenceService/ModelInfer", OutputKind::Other, OutputKind::Tensors),
            ("/v1/embeddings", OutputKind::Embeddings, OutputKind::Other),
            ("/v1/chat/completions", OutputKind::GeneratedText, OutputKind::Other),
            ("/v1/models/m:predict", OutputKind::Other, OutputKind::Other),
            ("/orders", OutputKind::Other, OutputKind::Other),
        ] {
            let protocol = Protocols::default().detect(&Method::POST, path);
            assert_eq!((protocol.output_kind(false), protocol.output_kind(true)), (plain, grpc), "{path}");
        }
    }
}
