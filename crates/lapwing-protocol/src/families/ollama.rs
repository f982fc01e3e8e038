//! Ollama's own routes, which stream JSON lines: `/api/generate`, `/api/chat`, `/api/embed`. Counts and durations are in the last
//! line and listed in the table of servers. Routes below `/v1` are read as the OpenAI API.

use super::super::plan::{ProtocolSpec, WatchSpec};
use super::super::tag::Tag;
use lapwing_ledger::{Server, Unit};

/// `POST /api/generate`
pub(crate) const GENERATE: ProtocolSpec = ProtocolSpec {
    primary: Unit::OutputToken,
    primary_otherwise: None,
    row_each: true,
    request: WatchSpec::Json(&[("model", Tag::Model), ("prompt", Tag::Text), ("suffix", Tag::Text), ("system", Tag::Text)]),
    response: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("response", Tag::Content),
        ("thinking", Tag::Content),
        ("done", Tag::Done),
    ]),
    servers: &[Server::Ollama],
};

/// `POST /api/chat`
pub(crate) const CHAT: ProtocolSpec = ProtocolSpec {
    request: WatchSpec::Json(&[("model", Tag::Model), ("messages[].content", Tag::Text)]),
    response: WatchSpec::Json(&[
        ("model", Tag::Model),
        ("message.content", Tag::Content),
        ("message.thinking", Tag::Content),
        ("message.tool_calls[].function.name", Tag::Content),
        ("done", Tag::Done),
    ]),
    ..GENERATE
};

/// `POST /api/embed`, and the older `/api/embeddings`
pub(crate) const EMBED: ProtocolSpec = ProtocolSpec {
    primary: Unit::InputToken,
    primary_otherwise: None,
    row_each: false,
    request: WatchSpec::Json(&[("model", Tag::Model), ("input", Tag::Inputs), ("input[]", Tag::Input), ("prompt", Tag::Inputs)]),
    response: WatchSpec::Json(&[("model", Tag::Model)]),
    ..GENERATE
};
