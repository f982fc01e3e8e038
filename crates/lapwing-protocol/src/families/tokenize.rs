//! Routes that count, split or join tokens and run no model (vLLM, SGLang, TGI, llama.cpp, TEI, Anthropic's API).

use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::tag::Tag;
use super::openai;
use lapwing_ledger::{Basis, Unit};

/// `POST /tokenize`, `/chat_tokenize`, `/apply-template`, `…/render`, `…/count_tokens`, `…/input_tokens`
pub(crate) const COUNT: ProtocolSpec = ProtocolSpec {
    request: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("inputs", Tag::Inputs),
        ("inputs[]", Tag::Input),
        ("content", Tag::Text),
        ("prompt", Tag::Inputs),
        ("prompt[]", Tag::Input),
        ("system", Tag::Text),
        ("system[].text", Tag::Text),
        ("messages[]", Tag::Message),
        ("messages[].content", Tag::Text),
        ("messages[].content[].text", Tag::Text),
        ("input", Tag::Text),
        ("input[].content", Tag::Text),
        ("input[].content[].text", Tag::Text),
        ("instructions", Tag::Text),
    ]),
    response: WatchSpec::Json(&[("input_tokens", Tag::Amount(Unit::InputToken, Basis::Reported)), ("count", Tag::TotalTokens)]),
    row_each: true,
    servers: &[],
    ..openai::EMBEDDINGS
};

/// `POST /detokenize`, `/v1/detokenize`, `/decode`
pub(crate) const DETOKENIZE: ProtocolSpec = ProtocolSpec {
    request: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("tokens", Tag::Inputs),
        ("tokens[]", Tag::Input),
        ("ids", Tag::Inputs),
        ("ids[]", Tag::Input),
    ]),
    response: WatchSpec::Nothing,
    servers: &[],
    ..openai::EMBEDDINGS
};
