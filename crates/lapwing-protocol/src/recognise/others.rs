//! The signatures of routes that several APIs share: pooling, tokens, tables, images; and the APIs of Anthropic and Cohere.

use super::classic::{INSTANCES, PREDICTIONS};
use super::generative::{CHAT_ANSWERS, CLIENT_TOOLS, MESSAGES, MODEL, OPENAI_EFFECTS};
use super::signature::Effect::{Other, Set};
use super::signature::Need::{Each, Has, Says};
use super::signature::{ANY, Effect, LIST, NUMBER, Need, OBJECT, Signature, TEXT, json};

const INVOCATION_ANSWERS: &[&[Need]] = &[
    PREDICTIONS,
    CHAT_ANSWERS,
    &[Each("choices", &[("choices[].text", TEXT)])],
    &[Has("generated_text", TEXT)],
    &[Has("[].generated_text", TEXT)],
];
const INPUT: &[Need] = &[Has("input", TEXT.or(LIST))];
const CHAT: &[Need] = &[MESSAGES, MODEL];
const SGLANG_TEXT: &[Need] = &[Has("text", TEXT.or(LIST))];
const SGLANG_IDS: &[Need] = &[Has("input_ids", LIST)];
const SGLANG_VECTOR: &[Need] = &[Has("embedding", LIST), Has("meta_info", OBJECT)];
const SGLANG_VECTORS: &[Need] = &[Has("[].embedding", LIST), Has("[].meta_info", OBJECT)];

/// Tools that run on Anthropic's side, and what is kept there, have an effect.
const ANTHROPIC_EFFECTS: &[Effect] =
    &[Other("tools[].type", CLIENT_TOOLS), Set("mcp_servers"), Set("container"), Set("kv_transfer_params")];

/// `POST /v1/messages`
pub(crate) const ANTHROPIC: Signature = Signature {
    request: json(&[&[MESSAGES, Has("model", TEXT)]], ANTHROPIC_EFFECTS),
    answer: json(
        &[&[Says("type", &["message"]), Has("content", LIST)], &[Says("type", &["message_start", "content_block_"])]],
        &[],
    ),
};

/// `POST /v2/chat`
pub(crate) const COHERE_CHAT: Signature = Signature {
    request: json(&[&[MESSAGES, Has("model", TEXT)]], &[]),
    answer: json(&[&[Has("message.content", LIST)], &[Says("type", &["message-start", "content-"])]], &[]),
};

/// `POST /v2/embed`
pub(crate) const COHERE_EMBED: Signature = Signature {
    request: json(
        &[&[Has("texts", LIST)], &[Has("model", TEXT), Has("images", LIST)], &[Has("model", TEXT), Has("inputs", LIST)]],
        &[],
    ),
    answer: json(&[&[Has("embeddings", OBJECT.or(LIST))]], &[]),
};

/// `POST /score`, `/v1/score`
pub(crate) const SCORE: Signature = Signature {
    request: json(
        &[
            &[Has("text_1", ANY), Has("text_2", ANY)],
            &[Has("data_1", ANY), Has("data_2", ANY)],
            &[Has("queries", ANY), Has("documents", ANY)],
            &[Has("query", ANY), Has("items", LIST)],
        ],
        &[],
    ),
    answer: json(&[&[Each("data", &[("data[].score", NUMBER)])], &[Has("scores", LIST)]], &[]),
};

/// `POST /classify`, `/v1/classify`
pub(crate) const CLASSIFY: Signature = Signature {
    request: json(&[INPUT, CHAT, SGLANG_TEXT, SGLANG_IDS], &[]),
    answer: json(&[&[Each("data", &[("data[].probs", LIST)])], SGLANG_VECTOR, SGLANG_VECTORS], &[]),
};

/// `POST /pooling`
pub(crate) const POOLING: Signature =
    Signature { request: json(&[INPUT, CHAT], &[]), answer: json(&[&[Each("data", &[("data[].data", LIST.or(TEXT))])]], &[]) };

/// `POST /tokenize` and what counts tokens
pub(crate) const COUNT_TOKENS: Signature = Signature {
    request: json(
        &[&[Has("inputs", TEXT.or(LIST))], &[Has("content", TEXT.or(LIST))], &[Has("prompt", TEXT.or(LIST))], INPUT, CHAT],
        &[],
    ),
    answer: json(
        &[
            &[Has("tokens", LIST)],
            &[Has("input_tokens", NUMBER)],
            &[Has("[].id", NUMBER), Has("[].text", TEXT)],
            &[Has("[][].id", NUMBER), Has("[][].text", TEXT)],
        ],
        &[],
    ),
};

/// `POST /detokenize`
pub(crate) const DETOKENIZE: Signature = Signature {
    request: json(&[&[Has("tokens", LIST)], &[Has("ids", LIST)]], &[]),
    answer: json(&[&[Has("prompt", TEXT)], &[Has("content", TEXT)], &[Has("text", TEXT)], &[Has("[]", TEXT)]], &[]),
};

/// vLLM's `POST /inference/v1/generate`
pub(crate) const GENERATE_TOKENS: Signature = Signature {
    request: json(&[&[Has("token_ids", LIST), Has("sampling_params", OBJECT)]], OPENAI_EFFECTS),
    answer: json(&[&[Each("choices", &[("choices[].token_ids", LIST)])]], &[]),
};

/// SGLang's `POST /encode`
pub(crate) const ENCODE: Signature =
    Signature { request: json(&[SGLANG_TEXT, SGLANG_IDS], &[]), answer: json(&[SGLANG_VECTOR, SGLANG_VECTORS], &[]) };

/// `POST /invocations`: a table, or what a language model is asked
pub(crate) const INVOCATIONS: Signature = Signature {
    request: json(
        &[
            &[Has("dataframe_split.data", LIST)],
            &[Has("dataframe_records", LIST)],
            INSTANCES,
            &[Has("inputs", ANY)],
            CHAT,
            &[Has("prompt", TEXT.or(LIST))],
        ],
        OPENAI_EFFECTS,
    ),
    answer: json(INVOCATION_ANSWERS, &[]),
};

/// `POST /vertex`, `/vertex_generate`
pub(crate) const VERTEX: Signature = Signature { request: json(&[INSTANCES], &[]), answer: json(&[PREDICTIONS], &[]) };

/// `POST /v1/images/generations`
pub(crate) const IMAGES: Signature = Signature {
    request: json(&[&[Has("prompt", TEXT)]], &[]),
    answer: json(&[&[Each("data", &[("data[].b64_json", TEXT), ("data[].url", TEXT)])]], &[]),
};
