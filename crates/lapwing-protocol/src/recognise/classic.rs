//! The signatures of protocols that answer with tensors, vectors, scores and labels.
//!
//! What has an effect beyond the answer: requests of a sequence, whose state the model keeps (`sequence_id`), and shared memory,
//! which the server reads and writes for one client.

use super::super::wire::ProtoShape::{Message, Text};
use super::signature::Effect::Set;
use super::signature::Need::{Each, Has, Maybe};
use super::signature::{ANY, Effect, LIST, MessageSignature, NUMBER, Need, OBJECT, Signature, TEXT, json, proto};

const EFFECTS: &[Effect] = &[
    Set("parameters.sequence_id"),
    Set("inputs[].parameters.shared_memory_region"),
    Set("outputs[].parameters.shared_memory_region"),
];

/// `POST /v2/models/M/infer`
pub(crate) const OIP_REST: Signature = Signature {
    request: json(
        &[&[
            Each("inputs", &[("inputs[].name", TEXT)]),
            Each("inputs", &[("inputs[].shape", LIST)]),
            Each("inputs", &[("inputs[].datatype", TEXT)]),
            Each("inputs", &[("inputs[].data", LIST), ("inputs[].parameters.binary_data_size", NUMBER)]),
        ]],
        EFFECTS,
    ),
    answer: json(
        &[&[
            Each("outputs", &[("outputs[].name", TEXT)]),
            Each("outputs", &[("outputs[].shape", LIST)]),
            Each("outputs", &[("outputs[].datatype", TEXT)]),
        ]],
        &[],
    ),
};

const SEQUENCE: &[&str] = &["sequence_id", "sequence_start", "sequence_end"];
const SHARED_MEMORY: &[&str] = &["shared_memory_region"];

/// `inference.GRPCInferenceService/ModelInfer`
pub(crate) const OIP_GRPC: Signature = Signature {
    // model_name, inputs[].name, inputs[].datatype
    request: proto(
        &[(&[1], Text), (&[5, 1], Text), (&[5, 2], Text)],
        // the keys of the parameters of the request, of its inputs, and of the outputs that it asks for
        &[(&[4, 1], SEQUENCE), (&[5, 4, 1], SHARED_MEMORY), (&[6, 2, 1], SHARED_MEMORY)],
    ),
    // model_name, outputs[].name, outputs[].datatype
    answer: proto(&[(&[1], Text), (&[5, 1], Text), (&[5, 2], Text)], &[]),
};

/// A protocol of which no form is known.
pub(crate) const UNKNOWN: Signature = Signature { request: MessageSignature::Unknown, answer: MessageSignature::Unknown };

/// `tensorflow.serving.PredictionService/Predict`: `model_spec.name`, and names of inputs; names of outputs
pub(crate) const TF_GRPC: Signature =
    Signature { request: proto(&[(&[1, 1], Text), (&[2, 1], Text)], &[]), answer: proto(&[(&[1, 1], Text)], &[]) };

/// KServe's first protocol, which Vertex AI's containers, TorchServe and others speak on other routes
pub(crate) const INSTANCES: &[Need] = &[Has("instances", LIST)];
pub(crate) const PREDICTIONS: &[Need] = &[Has("predictions", LIST.or(OBJECT))];

/// `POST /v1/models/M:predict`
pub(crate) const TF_REST: Signature = Signature {
    request: json(&[INSTANCES, &[Has("inputs", ANY)]], &[]),
    answer: json(&[PREDICTIONS, &[Has("outputs", ANY)]], &[]),
};

/// `POST /v1/models/M:classify`, `:regress`
pub(crate) const TF_REST_EXAMPLES: Signature =
    Signature { request: json(&[&[Has("examples", LIST)]], &[]), answer: json(&[&[Has("results", LIST)]], &[]) };

/// `POST /predictions/M`: whatever the handler takes is recognised in KServe's envelope only
pub(crate) const TORCH_SERVE: Signature = Signature { request: json(&[INSTANCES], &[]), answer: json(&[PREDICTIONS], &[]) };

/// `POST /v1/embeddings`, and llama.cpp's `/embeddings`
pub(crate) const EMBEDDINGS: Signature = Signature {
    request: json(
        &[
            &[Has("input", TEXT.or(LIST).or(OBJECT)), Maybe("model", TEXT)],
            &[Has("content", TEXT.or(LIST).or(OBJECT)), Maybe("model", TEXT)],
            // a chat, by vLLM
            &[Each("messages", &[("messages[].role", TEXT)]), Maybe("model", TEXT)],
        ],
        &[],
    ),
    answer: json(
        &[&[Each("data", &[("data[].embedding", LIST.or(TEXT))])], &[Has("[].embedding", LIST)], &[Has("embedding", LIST)]],
        &[],
    ),
};

/// `POST /embed`, `/embed_all`, `/embed_sparse`, `/tokenize` of TEI
pub(crate) const TEI_EMBED: Signature = Signature {
    request: json(&[&[Has("inputs", TEXT.or(LIST))]], &[]),
    answer: json(
        &[
            &[Has("[]", LIST), Has("[][]", NUMBER)],
            &[Has("[]", LIST), Has("[][]", LIST), Has("[][][]", NUMBER)],
            &[Has("[][].index", NUMBER), Has("[][].value", NUMBER)],
            &[Has("[][].id", NUMBER), Has("[][].text", TEXT)],
        ],
        &[],
    ),
};

/// `POST /predict` of TEI; and of a container of Vertex AI
pub(crate) const TEI_PREDICT: Signature = Signature {
    request: json(&[&[Has("inputs", TEXT.or(LIST))], INSTANCES], &[]),
    answer: json(
        &[&[Has("[].label", TEXT), Has("[].score", NUMBER)], &[Has("[][].label", TEXT), Has("[][].score", NUMBER)], PREDICTIONS],
        &[],
    ),
};

/// `POST /rerank` of TEI and SGLang; `/v1/rerank` of vLLM, llama.cpp and others
pub(crate) const RERANK: Signature = Signature {
    request: json(
        &[
            &[Has("query", TEXT), Has("texts", LIST)],
            &[Has("query", TEXT.or(LIST).or(OBJECT)), Has("documents", LIST.or(OBJECT))],
        ],
        &[],
    ),
    answer: json(
        &[
            &[Has("[].index", NUMBER), Has("[].score", NUMBER)],
            &[Each("results", &[("results[].index", NUMBER)]), Has("results[].relevance_score", NUMBER)],
        ],
        &[],
    ),
};

/// `POST /similarity` of TEI
pub(crate) const SIMILARITY: Signature = Signature {
    request: json(&[&[Has("inputs.source_sentence", TEXT), Has("inputs.sentences", LIST)]], &[]),
    answer: json(&[&[Has("[]", NUMBER)]], &[]),
};

/// `tei.v1.*`: `inputs`, and the `metadata` of every answer
pub(crate) const TEI_GRPC: Signature = Signature { request: proto(&[(&[1], Text)], &[]), answer: proto(&[(&[2], Message)], &[]) };

/// `tei.v1.Rerank/*`: `query`, `texts`
pub(crate) const TEI_GRPC_RERANK: Signature =
    Signature { request: proto(&[(&[1], Text), (&[2], Text)], &[]), answer: proto(&[(&[2], Message)], &[]) };
