//! The native `generate` routes of Text Generation Inference (`/`, `/generate`, `/generate_stream`) and of SGLang (`/generate`,
//! `/encode`). They share a path and are distinguished by their fields. A prompt is a row. And vLLM's route of token ids, in and out.

use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::tag::ErrorField;
use super::super::tag::Tag;
use lapwing_ledger::{Basis, Server, Unit};

const INPUT_TOKENS: Tag = Tag::Amount(Unit::InputToken, Basis::Reported);
const OUTPUT_TOKENS: Tag = Tag::Amount(Unit::OutputToken, Basis::Reported);

/// Both servers' routes.
pub(crate) const GENERATE: ProtocolSpec = ProtocolSpec {
    primary: Unit::OutputToken,
    primary_otherwise: None,
    row_each: false,
    request: WatchSpec::Json(&[
        // TGI
        ("inputs", Tag::Inputs),
        ("inputs[]", Tag::Input),
        // SGLang
        ("text", Tag::Inputs),
        ("text[]", Tag::Input),
        ("input_ids", Tag::Inputs),
        ("input_ids[]", Tag::Input),
        ("sampling_params.n", Tag::Sequences),
        // the plain server of vLLM's examples
        ("prompt", Tag::Inputs),
        ("prompt[]", Tag::Input),
    ]),
    response: WatchSpec::Json(&[
        // TGI: one token per event in a stream, else the whole text; an object, or on `/` a list of one
        ("token.text", Tag::Content),
        ("generated_text", Tag::Done),
        ("details.generated_tokens", OUTPUT_TOKENS),
        ("details.input_length", INPUT_TOKENS),
        ("[].details.generated_tokens", OUTPUT_TOKENS),
        ("[].generated_text", Tag::Content),
        // SGLang: in a stream every event has the text so far. For several prompts a list, whose counts are added
        ("text", Tag::Content),
        ("[].text", Tag::Content),
        ("[].meta_info.prompt_tokens", INPUT_TOKENS),
        ("[].meta_info.completion_tokens", OUTPUT_TOKENS),
        ("meta_info.finish_reason.type", Tag::Error(ErrorField::Reason)),
    ]),
    servers: &[Server::Sglang, Server::Tgi],
};

/// vLLM's `POST /inference/v1/generate`: ids in, ids out
pub(crate) const TOKENS: ProtocolSpec = ProtocolSpec {
    row_each: true,
    request: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("token_ids", Tag::Inputs),
        ("token_ids[]", Tag::Input),
        ("sampling_params.n", Tag::Sequences),
    ]),
    response: WatchSpec::Json(&[
        ("choices[].index", Tag::Sequence),
        ("choices[].token_ids", Tag::ContentIds),
        ("usage.prompt_tokens", INPUT_TOKENS),
        ("usage.completion_tokens", OUTPUT_TOKENS),
    ]),
    servers: &[Server::Vllm],
    ..GENERATE
};

/// SGLang's `POST /encode`: embeddings
pub(crate) const ENCODE: ProtocolSpec = ProtocolSpec {
    primary: Unit::InputToken,
    request: WatchSpec::Json(&[
        ("text", Tag::Inputs),
        ("text[]", Tag::Input),
        ("input_ids", Tag::Inputs),
        ("input_ids[]", Tag::Input),
    ]),
    response: WatchSpec::Json(&[("[].meta_info.prompt_tokens", INPUT_TOKENS)]),
    servers: &[Server::Sglang],
    ..GENERATE
};
