//! Detects the protocol of a request by its path and the format of its body.
//!
//! Routes of two segments and more are recognised below any prefix, because servers are often mounted below one
//! (`/openai/v1/chat/completions`). Routes of a single word (`/generate`, `/embed`, `/predict`, `/predictions/M`) are everyday
//! words, so they count only if they are the whole path. For other paths the configuration can name a rule.

macro_rules! families {
    ($($name:ident),* $(,)?) => {
        /// A known protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Family { $($name,)* }

        impl Family {
            /// Every protocol, in the order of their plans.
            pub(super) const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

families! {
    OipRest, OipGrpc, OipGrpcStream, TritonGenerate,
    OpenAiChat, OpenAiCompletions, OpenAiEmbeddings, OpenAiResponses,
    TeiEmbed, TeiPredict, TeiRerank, TeiSimilarity, TeiGrpcEmbed, TeiGrpcPair, TeiGrpcRerank, TeiGrpcRerankStream,
    Generate, LlamaInfill, LlamaEmbedding,
    OllamaGenerate, OllamaChat, OllamaEmbed,
    TorchServe, TfRest, TfRestExamples, TfGrpc,
}

/// The protocol of a POST to this path with a body other than gRPC, and the model that the path names.
pub(super) fn detect(path: &str) -> Option<(Family, Option<&str>)> {
    // the last six segments, in reverse order
    let mut segments = [""; 6];
    let mut depth = 0;
    for (segment, slot) in path.trim_end_matches('/').rsplit('/').zip(&mut segments) {
        *slot = segment;
        depth += usize::from(!segment.is_empty());
    }
    let [last, before, ..] = segments;
    if let Some(model) = torch_serve(path) {
        return Some((Family::TorchServe, Some(model)));
    }
    if let Some((name, verb)) = last.split_once(':') {
        let model = match segments {
            [_, "models", ..] => name,
            [_, "versions" | "labels", model, "models", ..] => model,
            _ => return None,
        };
        let family = match verb {
            "predict" => Family::TfRest,
            "classify" | "regress" => Family::TfRestExamples,
            _ => return None,
        };
        return Some((family, Some(model)));
    }
    let of_model = match segments {
        [_, model, "models", ..] | [_, _, "versions", model, "models", ..] => Some(model),
        _ => None,
    };
    let family = match (before, last) {
        (_, "infer") if of_model.is_some() => return Some((Family::OipRest, of_model)),
        (_, "generate" | "generate_stream") if of_model.is_some() => return Some((Family::TritonGenerate, of_model)),
        ("chat", "completions") => Family::OpenAiChat,
        (_, "completions") => Family::OpenAiCompletions,
        ("api", "generate") => Family::OllamaGenerate,
        ("api", "chat") => Family::OllamaChat,
        ("api", "embed" | "embeddings") => Family::OllamaEmbed,
        (_, "embeddings") => Family::OpenAiEmbeddings,
        ("v1", "responses") => Family::OpenAiResponses,
        ("v1" | "v2", "rerank") => Family::TeiRerank,
        // everyday words: only if they are the whole path
        _ if depth > 1 => return None,
        (_, "completion") => Family::OpenAiCompletions,
        (_, "" | "generate" | "generate_stream" | "invocations") => Family::Generate,
        (_, "infill") => Family::LlamaInfill,
        (_, "embedding") => Family::LlamaEmbedding,
        (_, "embed" | "embed_all" | "embed_sparse" | "tokenize") => Family::TeiEmbed,
        (_, "predict") => Family::TeiPredict,
        (_, "rerank") => Family::TeiRerank,
        (_, "similarity") => Family::TeiSimilarity,
        _ => return None,
    };
    // Azure and compatible servers name the model as a deployment
    let model = match segments {
        [_, model, "deployments", ..] | ["completions", "chat", model, "deployments", ..] => Some(model),
        _ => None,
    };
    Some((family, model))
}

/// The model of `/predictions/M`, `/predictions/M/VERSION` and the same paths below `explanations`.
pub(super) fn torch_serve(path: &str) -> Option<&str> {
    let mut segments = path.trim_end_matches('/').strip_prefix('/')?.split('/');
    let model = match segments.next() {
        Some("predictions" | "explanations") => segments.next().filter(|model| !model.is_empty())?,
        _ => return None,
    };
    let is_whole = segments.nth(1).is_none(); // at most a version follows
    is_whole.then_some(model)
}

/// The protocol of gRPC messages to this path.
pub(super) fn detect_grpc(path: &str) -> Option<Family> {
    let (before, method) = path.trim_end_matches('/').rsplit_once('/')?;
    let service = before.rsplit('/').next()?;
    Some(match (service, method) {
        ("inference.GRPCInferenceService", "ModelInfer") => Family::OipGrpc,
        ("inference.GRPCInferenceService", "ModelStreamInfer") => Family::OipGrpcStream,
        ("tensorflow.serving.PredictionService", "Predict") => Family::TfGrpc,
        ("tei.v1.Predict", "PredictPair" | "PredictPairStream") => Family::TeiGrpcPair,
        ("tei.v1.Rerank", "Rerank") => Family::TeiGrpcRerank,
        ("tei.v1.Rerank", "RerankStream") => Family::TeiGrpcRerankStream,
        ("tei.v1.Embed" | "tei.v1.Predict", _) => Family::TeiGrpcEmbed,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_tell_the_protocol() {
        use Family as F;
        for (path, expected) in [
            ("/v2/models/digits/infer", Some((F::OipRest, Some("digits")))),
            ("/seldon/ns/dep/v2/models/a.b/versions/3/infer", Some((F::OipRest, Some("a.b")))),
            ("/v2/models/llm/generate_stream", Some((F::TritonGenerate, Some("llm")))),
            ("/v2/models/llm/versions/1/generate", Some((F::TritonGenerate, Some("llm")))),
            ("/v2/models/llm/stats", None),
            ("/v1/chat/completions", Some((F::OpenAiChat, None))),
            ("/serve/llm/v1/chat/completions/", Some((F::OpenAiChat, None))),
            ("/openai/deployments/gpt/chat/completions", Some((F::OpenAiChat, Some("gpt")))),
            ("/openai/deployments/gpt/embeddings", Some((F::OpenAiEmbeddings, Some("gpt")))),
            ("/v1/completions", Some((F::OpenAiCompletions, None))),
            ("/completion", Some((F::OpenAiCompletions, None))),
            ("/v1/embeddings", Some((F::OpenAiEmbeddings, None))),
            ("/v1/responses", Some((F::OpenAiResponses, None))),
            ("/survey/responses", None),
            ("/api/generate", Some((F::OllamaGenerate, None))),
            ("/api/chat", Some((F::OllamaChat, None))),
            ("/api/embed", Some((F::OllamaEmbed, None))),
            ("/generate", Some((F::Generate, None))),
            ("/generate_stream", Some((F::Generate, None))),
            ("/", Some((F::Generate, None))),
            ("/users/generate", None),
            ("/embed", Some((F::TeiEmbed, None))),
            ("/v1/rerank", Some((F::TeiRerank, None))),
            ("/predict", Some((F::TeiPredict, None))),
            ("/shop/predict", None),
            ("/predictions/bert", Some((F::TorchServe, Some("bert")))),
            ("/predictions/bert/1.0", Some((F::TorchServe, Some("bert")))),
            ("/predictions/embeddings/", Some((F::TorchServe, Some("embeddings")))),
            ("/explanations/bert", Some((F::TorchServe, Some("bert")))),
            ("/predictions/bert/1.0/more", None),
            ("/predictions", None),
            ("/predictions//1.0", None),
            ("/v1/predictions/9f86d081", None),
            ("/weather/explanations/rain/1", None),
            ("/v1/models/resnet:predict", Some((F::TfRest, Some("resnet")))),
            ("/v1/models/resnet/versions/2:predict", Some((F::TfRest, Some("resnet")))),
            ("/v1/models/resnet/labels/stable:classify", Some((F::TfRestExamples, Some("resnet")))),
            ("/v1/models/resnet:explain", None),
            ("/orders", None),
            ("", Some((F::Generate, None))),
        ] {
            assert_eq!(detect(path), expected, "{path}");
        }
    }

    #[test]
    fn grpc_methods_tell_the_protocol() {
        for (path, family) in [
            ("/inference.GRPCInferenceService/ModelInfer", Some(Family::OipGrpc)),
            ("/inference.GRPCInferenceService/ModelStreamInfer", Some(Family::OipGrpcStream)),
            ("/inference.GRPCInferenceService/ServerReady", None),
            ("/tensorflow.serving.PredictionService/Predict", Some(Family::TfGrpc)),
            ("/tei.v1.Embed/EmbedStream", Some(Family::TeiGrpcEmbed)),
            ("/tei.v1.Info/Info", None),
        ] {
            assert_eq!(detect_grpc(path), family, "{path}");
        }
        // the same path with JSON belongs to another protocol
        assert_eq!(detect("/inference.GRPCInferenceService/ModelInfer"), None);
    }

    proptest! {
        #[test]
        fn no_path_is_too_strange(path in "(/(models|v2|versions|api|:|\\PC{0,3})){0,9}") {
            let _ = (detect(&path), detect_grpc(&path));
        }
    }
}
