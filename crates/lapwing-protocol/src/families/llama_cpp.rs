//! llama.cpp's own routes: `/infill` and `/embedding`. Its `/completion` shares its fields with the OpenAI API's completions and
//! is read like them.

use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::tag::Tag;
use super::openai;
use lapwing_ledger::{Basis, Server, Unit};

/// `POST /infill`
pub(crate) const INFILL: ProtocolSpec = ProtocolSpec {
    row_each: true,
    request: WatchSpec::Json(&[
        ("input_prefix", Tag::Text),
        ("input_suffix", Tag::Text),
        ("prompt", Tag::Text),
        ("input_extra[].text", Tag::Text),
    ]),
    servers: &[Server::LlamaCpp],
    ..openai::COMPLETIONS
};

/// `POST /embedding`: the answer is a list
pub(crate) const EMBEDDING: ProtocolSpec = ProtocolSpec {
    response: WatchSpec::Json(&[("[].tokens_evaluated", Tag::Amount(Unit::InputToken, Basis::Reported))]),
    servers: &[Server::LlamaCpp],
    ..openai::EMBEDDINGS
};
