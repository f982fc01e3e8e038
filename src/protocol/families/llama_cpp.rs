//! llama.cpp's server where it speaks a language of its own: `/infill`, `/embedding`. Its `/completion` is read with the
//! OpenAI API's completions, whose fields it shares.

use super::super::plan::{Spec, Watch};
use super::super::tag::Tag;
use super::openai;
use crate::ledger::{Basis, Server, Unit};

/// `POST /infill`
pub(super) const INFILL: Spec = Spec {
    row_each: true,
    request: Watch::Json(&[
        ("input_prefix", Tag::Text),
        ("input_suffix", Tag::Text),
        ("prompt", Tag::Text),
        ("input_extra[].text", Tag::Text),
    ]),
    servers: &[Server::LlamaCpp],
    ..openai::COMPLETIONS
};

/// `POST /embedding`: answers a list
pub(super) const EMBEDDING: Spec = Spec {
    response: Watch::Json(&[("[].tokens_evaluated", Tag::Amount(Unit::InputToken, Basis::Reported))]),
    servers: &[Server::LlamaCpp],
    ..openai::EMBEDDINGS
};
