//! One chunk of a streamed completion: what of it is there only because usage was asked for.

use std::ops::Range;

use super::object::{MemberLookup, Object};

/// What a server does in streams for which nobody asked for usage, as one such stream shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageStyle {
    /// Its chunks have no `usage`: where they have one, the option caused it.
    Plain,
    /// Its chunks have a `usage` all the same, null or not: it stays.
    Marked,
    /// It sends the chunk with the usage unasked: there is no need to amend_request.
    Unasked,
}

/// What to do with a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChunkAction<'t> {
    /// It passes.
    Keep,
    /// It passes without these bytes.
    Cut(Range<usize>),
    /// It does not pass. What it carries besides would stand in the chunk before it: a member's name and value.
    Drop(Option<(&'static str, &'t str)>),
}

/// What llama.cpp puts into the last chunk, whichever that is.
const LAST: &str = "timings";

/// The parts of a chunk that matter here.
struct Chunk<'t> {
    object: Object<'t>,
    /// It is there for its usage only.
    is_usage: bool,
    /// Where a `usage` stands among its members.
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

/// Judges a chunk of a stream for which usage was asked for. `None`: it is no JSON object.
pub(super) fn judge(json: &str, habit: UsageStyle) -> Option<ChunkAction<'_>> {
    let chunk = read(json)?;
    Some(match (chunk.usage, habit) {
        (Some(_), UsageStyle::Plain | UsageStyle::Marked) if chunk.is_usage => {
            ChunkAction::Drop(chunk.object.value(LAST).map(|value| (LAST, value)))
        }
        (Some(at), UsageStyle::Plain) => chunk.object.cut(at).map_or(ChunkAction::Keep, ChunkAction::Cut),
        _ => ChunkAction::Keep,
    })
}

/// What a chunk shows of the habits of a server that was not asked for usage. `None`: nothing.
pub(super) fn shows(json: &str) -> Option<UsageStyle> {
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
        assert_eq!(judge(usage, UsageStyle::Plain), Some(ChunkAction::Drop(Some(("timings", r#"{"prompt_ms":1.5}"#)))));
        let usage = r#"{"choices": [ ], "usage": {"prompt_tokens":3}}"#;
        assert_eq!(judge(usage, UsageStyle::Marked), Some(ChunkAction::Drop(None)));
        // Azure's first chunk
        let filters = r#"{"choices":[],"prompt_filter_results":[]}"#;
        assert_eq!(judge(filters, UsageStyle::Plain), Some(ChunkAction::Keep));
        assert_eq!((shows(usage), shows(filters)), (Some(UsageStyle::Unasked), None));
    }

    #[test]
    fn usage_beside_choices_goes_only_where_the_option_caused_it() {
        let chunk = r#"{"choices":[{"index":0}],"usage":null}"#;
        assert_eq!(judge(chunk, UsageStyle::Plain), Some(ChunkAction::Cut(24..37)));
        assert_eq!(&chunk[24..37], r#","usage":null"#);
        assert_eq!(judge(chunk, UsageStyle::Marked), Some(ChunkAction::Keep));
        assert_eq!(shows(chunk), Some(UsageStyle::Marked));
        assert_eq!(shows(r#"{"choices":[{"index":0}]}"#), Some(UsageStyle::Plain));
        assert_eq!(judge(r#"{"error":{"message":"usage"}}"#, UsageStyle::Plain), Some(ChunkAction::Keep));
        assert_eq!((judge("[]", UsageStyle::Plain), judge("{", UsageStyle::Plain), shows("{")), (None, None, None));
    }
}
