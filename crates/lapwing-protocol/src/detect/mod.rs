//! Detects the protocol of a request by its path and the format of its body.
//!
//! [`ROUTES`] has every route. Routes of two segments and more are recognised below any prefix, because servers are often mounted
//! below one (`/openai/v1/chat/completions`). Routes of a single word (`/generate`, `/embed`, `/predict`, `/predictions/M`) are
//! everyday words, so they count only if they are the whole path. For other paths the configuration can name a rule.

mod family;
mod routes;

pub(crate) use self::family::Family;
pub(crate) use self::routes::{ROUTES, Route};

/// The protocol of a POST to this path with a body other than gRPC, and the model that the path names.
pub(crate) fn detect(path: &str) -> Option<(Family, Option<&str>)> {
    let (route, model) = route_of(path)?;
    Some((route.family, model.or_else(|| deployment(path))))
}

/// The route of this path, and the model that the path names. The path's last word leads to the few routes that end with it, so that
/// paths of other services cost a few instructions: those with identifiers are examined for each request.
pub(crate) fn route_of(path: &str) -> Option<(&'static Route, Option<&str>)> {
    let trimmed = path.trim_end_matches('/');
    let last = Segments(Some(trimmed)).next().unwrap_or_default().as_bytes();
    let bucket = bucket_of(&last[last.iter().position(|byte| *byte == b':').map_or(0, |at| at + 1)..]);
    let is_open_ended = path.starts_with("/predictions/") || path.starts_with("/explanations/");
    let open_ended = if is_open_ended { &ROUTES[..OPEN_ENDED] } else { &[] };
    let by_last_word = BY_LAST_WORD.order[BY_LAST_WORD.ends[bucket]..BY_LAST_WORD.ends[bucket + 1]].iter().map(|at| &ROUTES[*at]);
    open_ended.iter().chain(by_last_word).find_map(|route| Some((route, route.fits(trimmed)?)))
}

/// How many routes come first whose last segment is a name.
const OPEN_ENDED: usize = 4;
/// How many lists of routes there are by their last word.
const BUCKETS: usize = 256;

/// The routes by their last word.
struct ByLastWord {
    /// Indices into [`ROUTES`], by bucket, in the order of the table.
    order: [usize; ROUTES.len() - OPEN_ENDED],
    /// Where in `order` the routes of the bucket before end.
    ends: [usize; BUCKETS + 1],
}

const BY_LAST_WORD: ByLastWord = {
    let mut table = ByLastWord { order: [0; ROUTES.len() - OPEN_ENDED], ends: [0; BUCKETS + 1] };
    let (mut bucket, mut filled) = (0, 0);
    while bucket < BUCKETS {
        let mut at = OPEN_ENDED;
        while at < ROUTES.len() {
            let word = last_word(ROUTES[at].path);
            assert!(word.is_empty() || word[0] != b'{', "routes that end with a name come first");
            if bucket_of(word) == bucket {
                table.order[filled] = at;
                filled += 1;
            }
            at += 1;
        }
        bucket += 1;
        table.ends[bucket] = filled;
    }
    table
};

/// What follows the last `/` or `:`.
const fn last_word(path: &str) -> &[u8] {
    let path = path.as_bytes();
    let mut from = path.len();
    while from > 0 && path[from - 1] != b'/' && path[from - 1] != b':' {
        from -= 1;
    }
    path.split_at(from).1
}

/// The bucket of a last word.
const fn bucket_of(word: &[u8]) -> usize {
    let ends = match word {
        [] => 0,
        [first, .., last] => *first as usize * 7 + *last as usize * 31,
        [only] => *only as usize,
    };
    ends.wrapping_add(word.len() * 3) % BUCKETS
}

/// The segments of a path, the last one first.
struct Segments<'p>(Option<&'p str>);

impl<'p> Iterator for Segments<'p> {
    type Item = &'p str;

    fn next(&mut self) -> Option<&'p str> {
        let path = self.0?;
        let slash = path.bytes().rposition(|byte| byte == b'/');
        let (before, segment) = slash.map_or((None, path), |at| (Some(&path[..at]), &path[at + 1..]));
        self.0 = before;
        Some(segment)
    }
}

impl Route {
    /// Compares segments from the last one on. Returns the model that the path names, if the path, which ends in no `/`, is of this route.
    fn fits<'p>(&self, path: &'p str) -> Option<Option<&'p str>> {
        let mut given = Segments(Some(path));
        let mut model = None;
        for own in Segments(Some(self.path)).filter(|own| !own.is_empty()) {
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
    let mut behind = "";
    for segment in Segments(Some(path)) {
        if segment == "deployments" {
            return Some(behind).filter(|model| !model.is_empty());
        }
        behind = segment;
    }
    None
}

/// The model of `/predictions/M`, `/predictions/M/VERSION` and the same paths below `explanations`.
pub(crate) fn torch_serve(path: &str) -> Option<&str> {
    let (route, model) = route_of(path)?;
    model.filter(|_| route.family == Family::TorchServe)
}

/// The protocol of gRPC messages to this path.
pub(crate) fn detect_grpc(path: &str) -> Option<Family> {
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

    /// The first route of the whole table that fits.
    fn first_of_all(path: &str) -> Option<&'static str> {
        ROUTES.iter().find(|route| route.fits(path.trim_end_matches('/')).is_some()).map(|route| route.path)
    }

    #[test]
    fn each_route_is_found_as_if_all_were_looked_at() {
        for route in ROUTES {
            let path = route.path.replace("{model}", "m").replace("{version}", "7");
            assert_eq!(route_of(&path).map(|(found, _)| found.path), first_of_all(&path), "{path}");
            assert!(route_of(&path).is_some_and(|(found, _)| found.family == route.family), "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_is_too_strange(path in "(/(models|v1|v2|versions|api|chat|predict|embed|infer|m:predict|:|\\PC{0,3})){0,9}") {
            let _ = detect_grpc(&path);
            let found = detect(&path).is_some();
            prop_assert_eq!(found, first_of_all(&path).is_some());
        }
    }
}
