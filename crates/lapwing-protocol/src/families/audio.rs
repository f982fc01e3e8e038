//! Speech to text and text to speech of the OpenAI API (vLLM, SGLang, llama.cpp, Ollama). A recording is a row, and so is a text to
//! speak. A transcription's request is a form; its fields are read as the keys of a document. Its usage is in tokens or in seconds.

use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::tag::Tag;
use super::openai;
use lapwing_ledger::{Basis, Unit};

const INPUT_TOKENS: Tag = Tag::Amount(Unit::InputToken, Basis::Reported);
const OUTPUT_TOKENS: Tag = Tag::Amount(Unit::OutputToken, Basis::Reported);

/// `POST /v1/audio/transcriptions`, `/v1/audio/translations`
pub(crate) const TRANSCRIPTION: ProtocolSpec = ProtocolSpec {
    request: WatchSpec::Json(&[("model", Tag::Model)]),
    response: WatchSpec::Json(&[
        ("model", Tag::Model),
        // an event at the end of a stream repeats the whole text
        ("text", Tag::WholeContent),
        ("duration", Tag::AudioSeconds),
        ("usage.seconds", Tag::AudioSeconds),
        ("usage.input_tokens", INPUT_TOKENS),
        ("usage.output_tokens", OUTPUT_TOKENS),
        ("type", Tag::Event),
        ("delta", Tag::Content),
        // vLLM and SGLang stream chunks as those of chats
        ("usage.prompt_tokens", INPUT_TOKENS),
        ("usage.completion_tokens", OUTPUT_TOKENS),
        ("choices[].delta.content", Tag::Content),
    ]),
    ..openai::CHAT
};

/// `POST /v1/audio/speech`: the answer is sound, or events with sound
pub(crate) const SPEECH: ProtocolSpec = ProtocolSpec {
    primary: Unit::InputToken,
    request: WatchSpec::Json(&[("model", Tag::Model), ("input", Tag::Text)]),
    response: WatchSpec::Json(&[
        ("type", Tag::Event),
        ("usage.input_tokens", INPUT_TOKENS),
        ("usage.output_tokens", OUTPUT_TOKENS),
    ]),
    servers: &[],
    ..openai::CHAT
};
