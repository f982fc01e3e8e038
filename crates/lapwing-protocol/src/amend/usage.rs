//! One chunk of a streamed completion: which part of it exists only because the amended request asked for usage.

use std::ops::Range;

use super::object::{MemberLookup, Object};

/// How a server treats usage in streams whose request did not ask for it, as one such stream shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageStyle {
    /// Its chunks have no `usage`; if one has it, the added option caused it.
    Plain,
    /// Its chunks have a `usage` anyway, null or not, which stays.
    Marked,
    /// It sends the chunk with the usage unasked, so the option need not be added.
    Unasked,
}

/// What to do with a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChunkAction<'t> {
    /// Pass it unchanged.
    Keep,
    /// Pass it without these bytes.
    Cut(Range<usize>),
    /// Drop it. The other member that it carries, as name and value, belongs in the chunk before it.
    Drop(Option<(&'static str, &'t str)>),
}

/// The member that llama.cpp puts into the last chunk.
const LAST: &str = "timings";

/// The relevant parts of a chunk.
struct Chunk<'t> {
    object: Object<'t>,
    /// Whether it exists only for its usage.
    is_usage: bool,
    /// The index of `usage` among its members.
    usage: Option<usize>,
    has_choices: bool,
}

fn read(json: &str) -> Option<Chunk<'_>> {
    let object = Object::read(json)?;
    let usage = match object.find("usage") {
        MemberLookup::At(at) => Some(at),
        _ => None,
    };
    let choices = object.value("choices");
    let is_empty = choices.is_some_and(|c| c.strip_prefix('[').is_some_and(|c| c.trim_ascii_start() == "]"));
    let is_usage = is_empty && object.value("usage").is_some_and(|usage| usage.starts_with('{'));
    Some(Chunk { is_usage, usage, has_choices: choices.is_some() && !is_empty, object })
}

/// Decides about a chunk of a stream whose request was amended to ask for usage. `None` if it is not a JSON object.
pub(crate) fn action_for(json: &str, style: UsageStyle) -> Option<ChunkAction<'_>> {
    let chunk = read(json)?;
    Some(match (chunk.usage, style) {
        (Some(_), UsageStyle::Plain | UsageStyle::Marked) if chunk.is_usage => {
            ChunkAction::Drop(chunk.object.value(LAST).map(|value| (LAST, value)))
        }
        (Some(at), UsageStyle::Plain) => chunk.object.cut(at).map_or(ChunkAction::Keep, ChunkAction::Cut),
        _ => ChunkAction::Keep,
    })
}

/// What a chunk shows about the style of a server that was not asked for usage; `None` if nothing.
pub(crate) fn style_of(json: &str) -> Option<UsageStyle> {
    let chunk = read(json)?;
    match (chunk.is_usage, chunk.usage, chunk.has_choices) {
        (true, ..) => Some(UsageStyle::Unasked),
        (false, Some(_), true) => Some(UsageStyle::Marked),
        (false, None, true) => Some(UsageStyle::Plain),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chunk_with_the_usage_alone_goes() {
        let usage = r#"{"id":"a","choices":[],"usage":{"prompt_tokens":3},"timings":{"prompt_ms":1.5}}"#;
        assert_eq!(action_for(usage, UsageStyle::Plain), Some(ChunkAction::Drop(Some(("timings", r#"{"prompt_ms":1.5}"#)))));
        let usage = r#"{"choices": [ ], "usage": {"prompt_tokens":3}}"#;
        assert_eq!(action_for(usage, UsageStyle::Marked), Some(ChunkAction::Drop(None)));
        // Azure's first chunk
        let filters = r#"{"choices":[],"prompt_filter_results":[]}"#;
        assert_eq!(action_for(filters, UsageStyle::Plain), Some(ChunkAction::Keep));
        assert_eq!((style_of(usage), style_of(filters)), (Some(UsageStyle::Unasked), None));
    }

    #[test]
    fn usage_beside_choices_goes_only_where_the_option_caused_it() {
        let chunk = r#"{"choices":[{"index":0}],"usage":null}"#;
        assert_eq!(action_for(chunk, UsageStyle::Plain), Some(ChunkAction::Cut(24..37)));
        assert_eq!(&chunk[24..37], r#","usage":null"#);
        assert_eq!(action_for(chunk, UsageStyle::Marked), Some(ChunkAction::Keep));
        assert_eq!(style_of(chunk), Some(UsageStyle::Marked));
        assert_eq!(style_of(r#"{"choices":[{"index":0}]}"#), Some(UsageStyle::Plain));
        assert_eq!(action_for(r#"{"error":{"message":"usage"}}"#, UsageStyle::Plain), Some(ChunkAction::Keep));
        assert_eq!((action_for("[]", UsageStyle::Plain), action_for("{", UsageStyle::Plain), style_of("{")), (None, None, None));
    }
}
