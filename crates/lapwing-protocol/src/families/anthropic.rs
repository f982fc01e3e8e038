//! Anthropic's Messages API (vLLM, SGLang, llama.cpp, Ollama, MLflow's gateway). A conversation is a row.
//!
//! What the server cached is left out of `input_tokens`, so the input is the sum of three fields; of each the last value counts,
//! because a stream's first event and its last have them, as totals. The output is taken from the end only: what the first event
//! states of it is not the answer's.

use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::tag::{InputPart, Tag};
use lapwing_ledger::{Basis, Unit};

const OUTPUT_TOKENS: Tag = Tag::Amount(Unit::OutputToken, Basis::Reported);

/// `POST /v1/messages`
pub(crate) const MESSAGES: ProtocolSpec = ProtocolSpec {
    primary: Unit::OutputToken,
    primary_otherwise: None,
    row_each: false,
    request: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("system", Tag::Text),
        ("system[].text", Tag::Text),
        ("messages[]", Tag::Message),
        ("messages[].content", Tag::Text),
        ("messages[].content[].text", Tag::Text),
        // a tool's result
        ("messages[].content[].content", Tag::Text),
        ("messages[].content[].content[].text", Tag::Text),
    ]),
    response: WatchSpec::Json(&[
        // whole
        ("model", Tag::Model),
        ("content[].text", Tag::Content),
        ("content[].thinking", Tag::Content),
        ("usage.input_tokens", Tag::InputPart(InputPart::Computed)),
        ("usage.cache_read_input_tokens", Tag::InputPart(InputPart::CacheRead)),
        ("usage.cache_creation_input_tokens", Tag::InputPart(InputPart::CacheWrite)),
        ("usage.output_tokens", OUTPUT_TOKENS),
        // streams
        ("type", Tag::Event),
        ("message.model", Tag::Model),
        ("message.usage.input_tokens", Tag::InputPart(InputPart::Computed)),
        ("message.usage.cache_read_input_tokens", Tag::InputPart(InputPart::CacheRead)),
        ("message.usage.cache_creation_input_tokens", Tag::InputPart(InputPart::CacheWrite)),
        ("content_block.text", Tag::Content),
        ("content_block.thinking", Tag::Content),
        ("delta.text", Tag::Content),
        ("delta.thinking", Tag::Content),
        ("delta.partial_json", Tag::Content),
    ]),
    servers: &[],
};
