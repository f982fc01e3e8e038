//! The OpenAI API (vLLM, SGLang, llama.cpp, TGI, TEI, Ollama, TensorRT-LLM and many more): chat, completions, embeddings,
//! responses. A prompt is a row. Token counts are those of `usage`; the first content is text, reasoning or a tool's arguments,
//! not the chunk that names the role.

use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::tag::ErrorField;
use super::super::tag::Tag;
use lapwing_ledger::{Basis, Server, Unit};

const INPUT_TOKENS: Tag = Tag::Amount(Unit::InputToken, Basis::Reported);
const OUTPUT_TOKENS: Tag = Tag::Amount(Unit::OutputToken, Basis::Reported);
const FINISH_REASON: Tag = Tag::Error(ErrorField::Reason);
const SERVERS: &[Server] = &[Server::Vllm, Server::Sglang, Server::LlamaCpp, Server::TensorRtLlm];

/// `POST /v1/chat/completions`
pub(crate) const CHAT: ProtocolSpec = ProtocolSpec {
    primary: Unit::OutputToken,
    primary_otherwise: None,
    row_each: true,
    request: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("n", Tag::Sequences),
        ("messages[].content", Tag::Text),
        ("messages[].content[].text", Tag::Text),
        ("store", Tag::Stores),
    ]),
    response: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("usage.prompt_tokens", INPUT_TOKENS),
        ("usage.completion_tokens", OUTPUT_TOKENS),
        ("choices[].index", Tag::Sequence),
        ("choices[].delta.content", Tag::Content),
        ("choices[].delta.reasoning_content", Tag::Content),
        ("choices[].delta.reasoning", Tag::Content),
        ("choices[].delta.refusal", Tag::Content),
        ("choices[].delta.tool_calls[].function.arguments", Tag::Content),
        ("choices[].delta.function_call.arguments", Tag::Content),
        ("choices[].message.content", Tag::Content),
        ("choices[].message.reasoning_content", Tag::Content),
        ("choices[].message.reasoning", Tag::Content),
        ("choices[].message.tool_calls[].function.arguments", Tag::Content),
        ("choices[].finish_reason", FINISH_REASON),
    ]),
    servers: SERVERS,
};

/// `POST /v1/completions`, and llama.cpp's own `/completion`
pub(crate) const COMPLETIONS: ProtocolSpec = ProtocolSpec {
    primary: Unit::OutputToken,
    primary_otherwise: None,
    row_each: false,
    request: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("n", Tag::Sequences),
        ("prompt", Tag::Inputs),
        ("prompt[]", Tag::Input),
        ("prompt.prompt_string", Tag::Text),
        ("prompt[].prompt_string", Tag::Text),
        ("suffix", Tag::Text),
    ]),
    response: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("usage.prompt_tokens", INPUT_TOKENS),
        ("usage.completion_tokens", OUTPUT_TOKENS),
        ("choices[].index", Tag::Sequence),
        ("choices[].text", Tag::Content),
        ("choices[].finish_reason", FINISH_REASON),
        // llama.cpp's own
        ("index", Tag::Sequence),
        ("content", Tag::Content),
        ("stop", Tag::Done),
        ("tokens_evaluated", INPUT_TOKENS),
        ("tokens_predicted", OUTPUT_TOKENS),
    ]),
    servers: SERVERS,
};

/// `POST /v1/embeddings`, and llama.cpp's own `/embeddings`
pub(crate) const EMBEDDINGS: ProtocolSpec = ProtocolSpec {
    primary: Unit::InputToken,
    primary_otherwise: None,
    row_each: false,
    request: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("input", Tag::Inputs),
        ("input[]", Tag::Input),
        ("content", Tag::Inputs),
        ("content[]", Tag::Input),
        // vLLM embeds chats too, one or a list of them
        ("messages[]", Tag::Message),
        ("messages[].content", Tag::Text),
        ("messages[].content[].text", Tag::Text),
        ("messages[][].content", Tag::Text),
    ]),
    response: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("usage.prompt_tokens", INPUT_TOKENS),
        ("usage.total_tokens", Tag::TotalTokens),
    ]),
    servers: SERVERS,
};

/// `POST /v1/responses`
pub(crate) const RESPONSES: ProtocolSpec = ProtocolSpec {
    primary: Unit::OutputToken,
    primary_otherwise: None,
    row_each: true,
    request: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("instructions", Tag::Text),
        ("input", Tag::Text),
        ("input[].content", Tag::Text),
        ("input[].content[].text", Tag::Text),
        ("input[].output", Tag::Text),
        ("previous_response_id", Tag::Predecessor),
        ("conversation", Tag::Predecessor),
        ("store", Tag::Stores),
    ]),
    response: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("usage.input_tokens", INPUT_TOKENS),
        ("usage.output_tokens", OUTPUT_TOKENS),
        ("output[].content[].text", Tag::Content),
        ("output[].arguments", Tag::Content),
        // streams: text, reasoning and arguments are in `delta`, the totals at the end in `response`
        ("type", Tag::Event),
        ("status", Tag::Error(ErrorField::Status)),
        ("delta", Tag::Content),
        ("response.model", Tag::Model),
        ("response.usage.input_tokens", INPUT_TOKENS),
        ("response.usage.output_tokens", OUTPUT_TOKENS),
    ]),
    servers: SERVERS,
};
