//! The signatures of protocols that generate text.
//!
//! What has an effect beyond the answer: conversations and answers that the server keeps (`store`, `previous_response_id`,
//! `conversation`, SGLang's `session_params`), work that outlives the request (`background`), tools that the server itself calls
//! (every type but `function` and `custom`, and MCP servers), blocks of a cache that another server waits to hand over
//! (`kv_transfer_params`, SGLang's `bootstrap_room`), and a model that is unloaded (`keep_alive` 0).

use super::signature::Effect::{Other, Set, Zero};
use super::signature::Need::{Each, Has, Maybe, Says};
use super::signature::{BOOL, Effect, LIST, NUMBER, Need, OBJECT, Signature, TEXT, json};

/// Tools of these types are called by the client.
pub(crate) const CLIENT_TOOLS: &[&str] = &["function", "custom"];
/// What OpenAI's API and its servers know.
pub(crate) const OPENAI_EFFECTS: &[Effect] = &[
    Set("store"),
    Set("background"),
    Set("previous_response_id"),
    Set("conversation"),
    Other("tools[].type", CLIENT_TOOLS),
    Set("mcp_servers"),
    Set("kv_transfer_params"),
    Set("bootstrap_room"),
    Set("session_params"),
];

pub(crate) const MESSAGES: Need = Each("messages", &[("messages[].role", TEXT)]);
pub(crate) const MODEL: Need = Maybe("model", TEXT);

pub(crate) const CHAT_ANSWERS: &[Need] = &[Each("choices", &[("choices[].message", OBJECT), ("choices[].delta", OBJECT)])];

/// `POST /v1/chat/completions`
pub(crate) const CHAT: Signature =
    Signature { request: json(&[&[MESSAGES, MODEL]], OPENAI_EFFECTS), answer: json(&[CHAT_ANSWERS], &[]) };

const COMPLETION_ANSWERS: &[&[Need]] = &[
    &[Each("choices", &[("choices[].text", TEXT)])],
    // llama.cpp's own, of one prompt and of several
    &[Has("content", TEXT), Has("stop", BOOL)],
    &[Has("[].content", TEXT), Has("[].stop", BOOL)],
];

/// `POST /v1/completions`, and llama.cpp's own `/completion`
pub(crate) const COMPLETIONS: Signature = Signature {
    request: json(&[&[Has("prompt", TEXT.or(LIST).or(OBJECT)), MODEL]], OPENAI_EFFECTS),
    answer: json(COMPLETION_ANSWERS, &[]),
};

/// `POST /v1/responses`
pub(crate) const RESPONSES: Signature = Signature {
    request: json(&[&[Has("input", TEXT.or(LIST)), MODEL]], OPENAI_EFFECTS),
    answer: json(
        &[&[Says("object", &["response"]), Has("output", LIST)], &[Says("type", &["response."])]],
        // without `store` in the request the server decides, and says so
        &[Set("store"), Set("response.store")],
    ),
};

/// The routes of TGI and SGLang, and the plain server of vLLM's examples
pub(crate) const GENERATE: Signature = Signature {
    request: json(
        &[
            &[Has("inputs", TEXT.or(LIST))],
            &[Has("text", TEXT.or(LIST))],
            &[Has("input_ids", LIST)],
            &[Has("prompt", TEXT.or(LIST))],
        ],
        OPENAI_EFFECTS,
    ),
    answer: json(
        &[
            &[Has("generated_text", TEXT)],
            &[Has("[].generated_text", TEXT)],
            &[Has("token.id", NUMBER), Has("token.text", TEXT)],
            &[Has("text", TEXT), Has("meta_info", OBJECT)],
            &[Has("output_ids", LIST), Has("meta_info", OBJECT)],
            &[Has("[].text", TEXT), Has("[].meta_info", OBJECT)],
            &[Has("text", LIST), Has("text[]", TEXT)],
        ],
        &[],
    ),
};

/// llama.cpp's `POST /infill`
pub(crate) const INFILL: Signature = Signature {
    request: json(&[&[Has("input_prefix", TEXT)], &[Has("input_suffix", TEXT)]], OPENAI_EFFECTS),
    answer: json(COMPLETION_ANSWERS, &[]),
};

/// Triton's `POST /v2/models/M/generate`: its answers name the model whatever it is
pub(crate) const TRITON_GENERATE: Signature = Signature {
    request: json(
        &[&[Has("text_input", TEXT.or(LIST))], &[Has("prompt", TEXT.or(LIST))]],
        &[Set("sequence_id"), Set("parameters.sequence_id")],
    ),
    answer: json(&[&[Has("model_name", TEXT), Has("model_version", TEXT.or(NUMBER))]], &[]),
};

const OLLAMA_EFFECTS: &[Effect] = &[Zero("keep_alive"), Other("tools[].type", CLIENT_TOOLS)];
const MODEL_NAMED: Need = Has("model", TEXT);

/// `POST /api/generate`
pub(crate) const OLLAMA_GENERATE: Signature = Signature {
    request: json(&[&[MODEL_NAMED, Has("prompt", TEXT)]], OLLAMA_EFFECTS),
    answer: json(&[&[MODEL_NAMED, Has("done", BOOL), Has("response", TEXT)]], &[]),
};

/// `POST /api/chat`
pub(crate) const OLLAMA_CHAT: Signature = Signature {
    request: json(&[&[MODEL_NAMED, MESSAGES]], OLLAMA_EFFECTS),
    answer: json(&[&[MODEL_NAMED, Has("done", BOOL), Has("message", OBJECT)]], &[]),
};

/// `POST /api/embed`, and the older `/api/embeddings`
pub(crate) const OLLAMA_EMBED: Signature = Signature {
    request: json(&[&[MODEL_NAMED, Has("input", TEXT.or(LIST))], &[MODEL_NAMED, Has("prompt", TEXT)]], OLLAMA_EFFECTS),
    answer: json(&[&[Has("embeddings", LIST)], &[Has("embedding", LIST)]], &[]),
};
