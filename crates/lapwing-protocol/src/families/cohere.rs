//! Cohere's second API, as vLLM has it: chats and embeddings.

use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::tag::Tag;
use super::openai;
use lapwing_ledger::{Basis, Unit};

const INPUT_TOKENS: Tag = Tag::Amount(Unit::InputToken, Basis::Reported);
const OUTPUT_TOKENS: Tag = Tag::Amount(Unit::OutputToken, Basis::Reported);

/// `POST /v2/chat`
pub(crate) const CHAT: ProtocolSpec = ProtocolSpec {
    request: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("messages[]", Tag::Message),
        ("messages[].content", Tag::Text),
        ("messages[].content[].text", Tag::Text),
    ]),
    response: WatchSpec::Json(&[
        ("message.content[].text", Tag::Content),
        ("message.content[].thinking", Tag::Content),
        ("usage.tokens.input_tokens", INPUT_TOKENS),
        ("usage.tokens.output_tokens", OUTPUT_TOKENS),
        // streams
        ("type", Tag::Event),
        ("delta.message.content.text", Tag::Content),
        ("delta.message.content.thinking", Tag::Content),
        ("delta.message.tool_plan", Tag::Content),
        ("delta.message.tool_calls.function.arguments", Tag::Content),
        ("delta.usage.tokens.input_tokens", INPUT_TOKENS),
        ("delta.usage.tokens.output_tokens", OUTPUT_TOKENS),
    ]),
    row_each: false,
    servers: &[],
    ..openai::CHAT
};

/// `POST /v2/embed`
pub(crate) const EMBED: ProtocolSpec = ProtocolSpec {
    request: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("texts", Tag::Inputs),
        ("texts[]", Tag::Input),
        ("images", Tag::Column),
        ("inputs", Tag::Column),
        ("inputs[].content[].text", Tag::Text),
    ]),
    response: WatchSpec::Json(&[("meta.billed_units.input_tokens", INPUT_TOKENS)]),
    servers: &[],
    ..openai::EMBEDDINGS
};
