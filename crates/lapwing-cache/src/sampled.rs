//! Whether the answer to a request is drawn by chance, by the request's body.
//!
//! Generation is deterministic only if the request says so: the temperature is 0, or there is a seed. Servers' defaults differ,
//! so a request that names neither counts as drawn. So does one with settings of generation among its tensors (Triton's backends
//! for language models), whose values nobody reads here.

use std::sync::Arc;

use bytes::Bytes;

use crate::refusal::CacheRefusal;
use lapwing_protocol::wire::{JsonPaths, JsonReader, JsonValue, PathStep, ProtoFields, ProtoReader, ProtoShape, ProtoValue};

/// How paths of requests end that ask for generated text.
const GENERATING: &[&str] = &[
    "/completions",
    "/completion",
    "/responses",
    "/messages",
    "/generate",
    "/generate_stream",
    "/infill",
    "/api/chat",
    "/converse",
];
/// Where servers look for settings of generation: in the request itself, or in one of its members.
const PLACES: &[&str] = &["", "options", "parameters", "sampling_params", "generation_config"];
/// Members of requests that ask for generated text, whatever their path.
const MEMBERS: &[&str] =
    &["messages", "prompt", "text_input", "max_tokens", "max_new_tokens", "num_predict", "n_predict", "top_p", "top_k"];

/// Tensors of models that generate.
const TENSORS: &[&[u8]] = &[
    b"text_input",
    b"prompt",
    b"temperature",
    b"sampling_parameters",
    b"max_tokens",
    b"request_output_len",
    b"runtime_top_k",
    b"runtime_top_p",
    b"random_seed",
];
/// Where calls of the Open Inference Protocol have the names of their tensors.
const NAME_OF_TENSOR: &[u32] = &[5, 1];
/// What precedes a message of gRPC.
const GRPC_PREFIX: usize = 5;

#[derive(Clone, Copy, Debug)]
enum SamplingField {
    Temperature,
    Seed,
    Stream,
    /// Only requests that generate have it.
    Generation,
    TensorName,
}

/// Reads what requests say of chance.
#[derive(Clone, Debug)]
pub(crate) struct SamplingReader {
    json: Arc<JsonPaths<SamplingField>>,
    proto: Arc<ProtoFields<()>>,
}

impl Default for SamplingReader {
    fn default() -> Self {
        let mut paths = Vec::new();
        for place in PLACES {
            let outer = (!place.is_empty()).then(|| PathStep::Key((*place).to_owned()));
            let mut watch =
                |key: &str, field| paths.push((outer.iter().cloned().chain([PathStep::Key(key.to_owned())]).collect(), field));
            watch("temperature", SamplingField::Temperature);
            watch("seed", SamplingField::Seed);
            watch("random_seed", SamplingField::Seed);
            watch("stream", SamplingField::Stream);
            MEMBERS.iter().for_each(|key| watch(key, SamplingField::Generation));
        }
        let key = |key: &str| PathStep::Key(key.to_owned());
        paths.push((vec![key("inputs"), PathStep::Element, key("name")], SamplingField::TensorName));
        let proto = ProtoFields::new([(NAME_OF_TENSOR, (), ProtoShape::Text)]);
        Self { json: Arc::new(JsonPaths::from_steps(paths)), proto: Arc::new(proto) }
    }
}

impl SamplingReader {
    /// Why a request to this path with this JSON is not to be answered by an earlier answer, if so.
    pub(crate) fn refusal(&self, path: &str, body: &[Bytes]) -> Option<CacheRefusal> {
        let (mut generates, mut streams) = (GENERATING.iter().any(|end| path.trim_end_matches('/').ends_with(end)), false);
        let (mut temperatures, mut is_cold, mut seeds, mut are_seeds, mut in_tensors) = (0, true, 0, true, false);
        let mut reader = JsonReader::new(self.json.clone());
        let mut note = |field, value: JsonValue<'_>| match field {
            SamplingField::Temperature => {
                temperatures += 1;
                is_cold &= value == JsonValue::Number(0.0);
                generates = true;
            }
            // to several servers, a negative one means that they draw one
            SamplingField::Seed => {
                seeds += 1;
                are_seeds &= matches!(value, JsonValue::Number(seed) if seed >= 0.0);
            }
            SamplingField::TensorName => in_tensors |= matches!(value, JsonValue::Text { head, .. } if TENSORS.contains(&head)),
            SamplingField::Stream => streams |= !matches!(value, JsonValue::Bool(false) | JsonValue::Null),
            SamplingField::Generation => generates |= value != JsonValue::Null,
        };
        body.iter().for_each(|piece| reader.feed(piece, &mut note));
        let is_read = reader.end(&mut note);
        if streams {
            return Some(CacheRefusal::Stream);
        }
        let is_told = is_read && (seeds > 0 && are_seeds || temperatures > 0 && is_cold);
        (in_tensors || generates && !is_told).then_some(CacheRefusal::Sampled)
    }

    /// The same for a call of gRPC: of the Open Inference Protocol, by the names of its tensors.
    pub(crate) fn refusal_of_call(&self, path: &str, body: &[Bytes]) -> Option<CacheRefusal> {
        if !path.starts_with("/inference.GRPCInferenceService/") {
            return None;
        }
        let (mut reader, mut in_tensors, mut before) = (ProtoReader::new(self.proto.clone()), false, GRPC_PREFIX);
        for piece in body {
            let skipped = before.min(piece.len());
            before -= skipped;
            reader.feed(piece.get(skipped..).unwrap_or_default(), &mut |(), value| {
                in_tensors |= matches!(value, ProtoValue::Text { head, .. } if TENSORS.contains(&head));
            });
        }
        in_tensors.then_some(CacheRefusal::Sampled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_seen_where_servers_look_for_it() {
        use CacheRefusal::{Sampled, Stream};
        let reader = SamplingReader::default();
        for (path, body, expected) in [
            ("/v1/chat/completions", r#"{"messages": []}"#, Some(Sampled)),
            ("/v1/chat/completions", r#"{"messages": [], "temperature": 0}"#, None),
            ("/v1/chat/completions", r#"{"messages": [], "temperature": 0.0, "stream": false}"#, None),
            ("/v1/chat/completions", r#"{"messages": [], "temperature": null}"#, Some(Sampled)),
            ("/v1/chat/completions", r#"{"messages": [], "temperature": 0, "temperature": 1}"#, Some(Sampled)),
            ("/v1/chat/completions", r#"{"messages": [], "temperature": 1e-9}"#, Some(Sampled)),
            ("/v1/chat/completions", r#"{"messages": [], "temperature": 1, "seed": 7}"#, None),
            ("/v1/chat/completions", r#"{"messages": [], "seed": null}"#, Some(Sampled)),
            ("/v1/chat/completions", r#"{"messages": [], "seed": -1}"#, Some(Sampled)),
            ("/v1/chat/completions", r#"{"messages": [{"temperature": 0, "seed": 1}]}"#, Some(Sampled)),
            ("/v1/chat/completions", r#"{"messages": [], "temperature": 0, "stream": true}"#, Some(Stream)),
            ("/v1/chat/completions", r#"{"messages": [], "temperature": 0"#, Some(Sampled)),
            ("/api/chat", r#"{"messages": [], "options": {"temperature": 0}}"#, None),
            ("/api/chat", r#"{"messages": [], "options": {"seed": 1}, "stream": true}"#, Some(Stream)),
            ("/generate", r#"{"inputs": "x", "parameters": {"max_new_tokens": 3}}"#, Some(Sampled)),
            ("/generate", r#"{"text": "x", "sampling_params": {"temperature": 0}}"#, None),
            ("/elsewhere", r#"{"prompt": "x"}"#, Some(Sampled)),
            ("/elsewhere", r#"{"temperature": 0.7}"#, Some(Sampled)),
            ("/v1/chat/completions", r#"{"messages": [], "seed": 7, "seed": null}"#, Some(Sampled)),
            ("/v2/models/m/infer", r#"{"inputs": [{"name": "input_ids", "data": [1]}]}"#, None),
            ("/v2/models/m/infer", r#"{"inputs": [{"name": "x"}, {"name": "temperature", "data": [0]}]}"#, Some(Sampled)),
            ("/v2/models/m/infer", r#"{"seed": 1, "inputs": [{"name": "prompt", "data": ["a"]}]}"#, Some(Sampled)),
            ("/invocations", r#"{"dataframe_split": {"columns": ["a"], "data": [[1]]}}"#, None),
            ("/v1/embeddings", r#"{"input": "x", "model": "m"}"#, None),
            ("/v1/models/m:predict", r#"{"instances": [{"temperature": 20.5}]}"#, None),
        ] {
            for size in [1, body.len()] {
                let pieces: Vec<Bytes> = body.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
                assert_eq!(reader.refusal(path, &pieces), expected, "{path} {body}");
            }
        }
    }

    #[test]
    fn a_call_that_generates_is_known_by_its_tensors() {
        let reader = SamplingReader::default();
        let of = |path: &str, name: &str, size: usize| {
            let tensor = [&[0x0a, name.len() as u8][..], name.as_bytes()].concat();
            let message = [&b"\x0a\x01m\x2a"[..], &[tensor.len() as u8], &tensor].concat();
            let body = [&[0, 0, 0, 0, message.len() as u8], &message[..]].concat();
            reader.refusal_of_call(path, &body.chunks(size).map(Bytes::copy_from_slice).collect::<Vec<_>>())
        };
        for size in [1, 4, 100] {
            assert_eq!(of("/inference.GRPCInferenceService/ModelInfer", "text_input", size), Some(CacheRefusal::Sampled));
            assert_eq!(of("/inference.GRPCInferenceService/ModelInfer", "input_ids", size), None);
            assert_eq!(of("/tensorflow.serving.PredictionService/Predict", "text_input", size), None);
        }
    }
}
