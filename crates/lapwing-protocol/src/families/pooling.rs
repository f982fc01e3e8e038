//! Routes of pooling models: scores of pairs, classes, hidden states (vLLM, SGLang). A pair or a text is a row. A usage that has
//! only a total is that of the input, because nothing is written.

use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::tag::Tag;
use super::openai;
use lapwing_ledger::{Basis, Server, Unit};

const INPUT_TOKENS: Tag = Tag::Amount(Unit::InputToken, Basis::Reported);
const USAGE: WatchSpec =
    WatchSpec::Json(&[("model", Tag::Model), ("usage.prompt_tokens", INPUT_TOKENS), ("usage.total_tokens", Tag::TotalTokens)]);

/// `POST /score`, `/v1/score`: the longer of both sides has the pairs. The shorter one is read again with each, so texts are not
/// estimated
pub(crate) const SCORE: ProtocolSpec = ProtocolSpec {
    request: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("text_1", Tag::Column),
        ("text_2", Tag::Column),
        ("data_1", Tag::Column),
        ("data_2", Tag::Column),
        ("queries", Tag::Column),
        ("documents", Tag::Column),
        // SGLang's query is one, also where it is a list of ids
        ("items", Tag::Column),
    ]),
    response: USAGE,
    ..openai::EMBEDDINGS
};

/// `POST /classify`, `/v1/classify`, and SGLang's decisions: a text, a chat, or SGLang's own inputs
pub(crate) const CLASSIFY: ProtocolSpec = ProtocolSpec {
    request: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("input", Tag::Inputs),
        ("input[]", Tag::Input),
        ("messages[]", Tag::Message),
        ("messages[].content", Tag::Text),
        ("messages[].content[].text", Tag::Text),
        ("text", Tag::Inputs),
        ("text[]", Tag::Input),
        ("input_ids", Tag::Inputs),
        ("input_ids[]", Tag::Input),
        ("state", Tag::Inputs),
    ]),
    response: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("usage.prompt_tokens", INPUT_TOKENS),
        ("usage.total_tokens", Tag::TotalTokens),
        // SGLang: one object for each of several inputs
        ("[].meta_info.prompt_tokens", INPUT_TOKENS),
    ]),
    servers: &[Server::Sglang],
    ..openai::EMBEDDINGS
};

/// `POST /pooling`: a text, a chat, or what a plug-in takes, which is one row
pub(crate) const POOLING: ProtocolSpec = ProtocolSpec {
    row_each: true,
    request: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("input", Tag::Inputs),
        ("input[]", Tag::Input),
        ("messages[]", Tag::Message),
        ("messages[].content", Tag::Text),
        ("messages[].content[].text", Tag::Text),
    ]),
    response: USAGE,
    ..openai::EMBEDDINGS
};
