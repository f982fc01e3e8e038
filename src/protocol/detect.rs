//! Detects the protocol of a request by its path and the format of its body.
//!
//! [`ROUTES`] has every route. Routes of two segments and more are recognised below any prefix, because servers are often mounted
//! below one (`/openai/v1/chat/completions`). Routes of a single word (`/generate`, `/embed`, `/predict`, `/predictions/M`) are
//! everyday words, so they count only if they are the whole path. For other paths the configuration can name a rule.

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
    OpenAiChat, OpenAiCompletions, OpenAiEmbeddings, OpenAiResponses, OpenAiTranscription, OpenAiSpeech, OpenAiImages,
    AnthropicMessages, CohereChat, CohereEmbed, Score, Classify, Pooling, CountTokens, Detokenize,
    TeiEmbed, TeiPredict, TeiRerank, TeiSimilarity, TeiGrpcEmbed, TeiGrpcPair, TeiGrpcRerank, TeiGrpcRerankStream,
    Generate, GenerateTokens, Encode, LlamaInfill, LlamaEmbedding,
    OllamaGenerate, OllamaChat, OllamaEmbed,
    Invocations, Vertex, Forecast,
    TorchServe, TfRest, TfRestExamples, TfGrpc,
}

/// A route of model servers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    /// The path, in which `{model}` and `{version}` are any segment.
    pub(super) path: &'static str,
    /// Whether it is recognised as the whole path only.
    pub(super) is_whole: bool,
    pub(super) family: Family,
}

const fn whole(path: &'static str, family: Family) -> Route {
    Route { path, is_whole: true, family }
}

const fn below(path: &'static str, family: Family) -> Route {
    Route { path, is_whole: false, family }
}

/// Every route of a body other than gRPC. The first that fits is taken.
pub(super) const ROUTES: &[Route] = &[
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

/// The protocol of a POST to this path with a body other than gRPC, and the model that the path names.
pub(super) fn detect(path: &str) -> Option<(Family, Option<&str>)> {
    let (route, model) = route_of(path)?;
    Some((route.family, model.or_else(|| deployment(path))))
}

/// The route of this path, and the model that the path names. A path that ends as no route does is told by a few instructions: most
/// paths of other services, and those with identifiers, are looked at for each request.
pub(super) fn route_of(path: &str) -> Option<(&'static Route, Option<&str>)> {
    let trimmed = path.trim_end_matches('/').as_bytes();
    let last = &trimmed[trimmed.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1)..];
    let (place, bit) = place_of(last);
    let may_fit = LAST_WORDS[place] & bit != 0
        || last.contains(&b':')
        || path.starts_with("/predictions/")
        || path.starts_with("/explanations/");
    if !may_fit {
        return None;
    }
    ROUTES.iter().find_map(|route| Some((route, route.fits(path)?)))
}

/// Where the last words of routes have their bits.
const LAST_WORDS: [u64; 4] = {
    let mut words = [0; 4];
    let mut at = 0;
    while at < ROUTES.len() {
        let mut word = ROUTES[at].path.as_bytes();
        let mut from = word.len();
        while word[from - 1] != b'/' {
            from -= 1;
        }
        word = word.split_at(from).1;
        let (place, bit) = place_of(word);
        words[place] |= bit;
        at += 1;
    }
    words
};

/// The place of a word's bit among 256.
const fn place_of(word: &[u8]) -> (usize, u64) {
    let ends = match word {
        [] => 0,
        [first, .., last] => *first as usize * 7 + *last as usize * 31,
        [only] => *only as usize,
    };
    let hash = ends.wrapping_add(word.len() * 3) % 256;
    (hash / 64, 1 << (hash % 64))
}

impl Route {
    /// Compares segments from the last one on. Returns the model that the path names, if the path is of this route.
    fn fits<'p>(&self, path: &'p str) -> Option<Option<&'p str>> {
        let mut given = path.trim_end_matches('/').rsplit('/');
        let mut model = None;
        for own in self.path.rsplit('/').filter(|own| !own.is_empty()) {
            let given = given.next()?;
            let (own, given) = match own.split_once(':') {
                Some((own, verb)) => (own, given.split_once(':').filter(|(_, given)| *given == verb)?.0),
                None => (own, given),
            };
            match own {
                "{model}" | "{version}" if given.is_empty() => return None,
                "{model}" => model = Some(given),
                "{version}" => {}
                own if own != given => return None,
                _ => {}
            }
        }
        let fits = !self.is_whole || given.all(str::is_empty);
        fits.then_some(model)
    }
}

/// The deployment by which Azure and compatible servers name the model.
fn deployment(path: &str) -> Option<&str> {
    let mut segments = path.split('/').skip_while(|segment| *segment != "deployments").skip(1);
    segments.next().filter(|model| !model.is_empty())
}

/// The model of `/predictions/M`, `/predictions/M/VERSION` and the same paths below `explanations`.
pub(super) fn torch_serve(path: &str) -> Option<&str> {
    let (route, model) = route_of(path)?;
    model.filter(|_| route.family == Family::TorchServe)
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
            ("/v1/models/resnet:explain", Some((F::TfRest, Some("resnet")))),
            ("/v1/models/resnet:train", None),
            ("/v1/models/:predict", None),
            ("/v1/messages", Some((F::AnthropicMessages, None))),
            ("/anthropic/v1/messages/", Some((F::AnthropicMessages, None))),
            ("/v1/messages/count_tokens", Some((F::CountTokens, None))),
            ("/messages", None),
            ("/v1/audio/transcriptions", Some((F::OpenAiTranscription, None))),
            ("/openai/deployments/whisper/audio/translations", Some((F::OpenAiTranscription, Some("whisper")))),
            ("/score", Some((F::Score, None))),
            ("/game/score", None),
            ("/v1/score", Some((F::Score, None))),
            ("/cohere/v2/chat", Some((F::CohereChat, None))),
            ("/invocations", Some((F::Invocations, None))),
            ("/shop/invocations", None),
            ("/endpoints/churn/invocations", Some((F::Invocations, Some("churn")))),
            ("/ping", None),
            ("/version", None),
            ("/openai/v1/rerank", Some((F::TeiRerank, None))),
            ("/api/embeddings", Some((F::OllamaEmbed, None))),
            ("//generate", Some((F::Generate, None))),
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
