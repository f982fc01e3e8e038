//! The pace of an answer: when its content came, how many tokens each piece brought as far as the server says so, and which of its
//! tokens never came. Nothing is guessed: a piece of which the server says nothing is one token, and where tokens may have been
//! withheld that nobody counted, the time per token is unknown.

use super::tag::{Tag, TagValue};
use lapwing_ledger::{Generation, HiddenTokens};

/// Members of answers about tokens, watched in addition to the protocol's where a request's unit is the output token. The
/// protocol's meaning of a member wins.
pub(crate) const MEMBERS: &[(&str, Tag)] = &[
    // what the output tokens are made of: chat, responses; the third is SGLang's
    ("usage.completion_tokens_details.reasoning_tokens", Tag::HiddenTokens),
    ("usage.output_tokens_details.reasoning_tokens", Tag::HiddenTokens),
    ("usage.reasoning_tokens", Tag::HiddenTokens),
    ("response.usage.output_tokens_details.reasoning_tokens", Tag::HiddenTokens),
    ("usage.completion_tokens_details.rejected_prediction_tokens", Tag::RejectedTokens),
    // Anthropic's blocks: one of thinking may come without its text
    ("content_block.type", Tag::Block),
    // the tokens of one piece: vLLM and SGLang, OpenAI's log probabilities, llama.cpp's own
    ("choices[].token_ids", Tag::PieceTokens),
    ("choices[].logprobs.content", Tag::PieceTokens),
    ("choices[].logprobs.tokens", Tag::PieceTokens),
    ("tokens", Tag::PieceTokens),
];

/// Members of requests that have the server withhold the text of its reasoning: vLLM's, and that of routers.
pub(crate) const REQUEST_MEMBERS: &[(&str, Tag)] =
    &[("include_reasoning", Tag::Withholds(false)), ("reasoning.exclude", Tag::Withholds(true))];

/// Content that is text of the reasoning.
const REASONING: [&str; 12] = [
    "choices[].delta.reasoning_content",
    "choices[].delta.reasoning",
    "choices[].message.reasoning_content",
    "choices[].message.reasoning",
    "delta.thinking",
    "content[].thinking",
    "content_block.thinking",
    "message.thinking",
    "thinking",
    "delta.message.content.thinking",
    "message.content[].thinking",
    "reasoning_content",
];

/// The meaning of a member that a protocol watches: content may be text of the reasoning.
pub(crate) fn refined(path: &str, tag: Tag) -> Tag {
    if tag == Tag::Content && REASONING.contains(&path) { Tag::Reasoning } else { tag }
}

/// What an event of a stream brings, by its type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Delta {
    #[default]
    Answer,
    /// Text of the reasoning.
    Reasoning,
    /// A summary of the reasoning: it is text, but its tokens are not those of the reasoning.
    Summary,
}

/// What is known about an answer's pace.
#[derive(Debug, Default)]
pub(crate) struct TokenPace {
    generation: Option<Box<Generation>>,
    /// What this document has in addition to content: its kind, its tokens as a list, the tokens so far, and those of them that are
    /// hidden.
    delta: Delta,
    listed: u64,
    so_far: Option<u64>,
    hidden_so_far: u64,
    /// The tokens so far at the last content.
    before: Option<u64>,
    /// The first content that is no reasoning, and in how many pieces it came.
    first_answer_ns: Option<u64>,
    answer_pieces: u64,
    has_reasoned: bool,
    withholds: bool,
    reasoning_tokens: Option<u64>,
    rejected_tokens: u64,
}

impl TokenPace {
    /// Reads a member of the kinds above.
    pub(crate) fn note(&mut self, tag: Tag, seen: TagValue<'_>) {
        match (tag, seen) {
            (Tag::Reasoning, _) => self.delta = Delta::Reasoning,
            (Tag::HiddenTokens, seen) => {
                if let Some(tokens) = seen.count() {
                    (self.reasoning_tokens, self.hidden_so_far) = (Some(tokens), tokens);
                }
            }
            (Tag::RejectedTokens, seen) => self.rejected_tokens = seen.count().unwrap_or(0),
            (Tag::Withholds(if_this), TagValue::Bool(is)) => self.withholds |= is == if_this,
            (Tag::Block, TagValue::Text { head: b"thinking" | b"redacted_thinking", .. }) => self.withholds = true,
            (Tag::PieceTokens, TagValue::List(len)) => self.listed = self.listed.max(len),
            _ => {}
        }
    }

    /// Reads the type of an event.
    pub(crate) fn event(&mut self, kind: &[u8]) {
        match kind {
            b"response.reasoning_text.delta" | b"response.reasoning.delta" => self.delta = Delta::Reasoning,
            b"response.reasoning_summary_text.delta" | b"response.reasoning_summary.delta" => self.delta = Delta::Summary,
            _ => {}
        }
    }

    /// The document says how many tokens were written so far.
    pub(crate) const fn so_far(&mut self, tokens: u64) {
        self.so_far = Some(tokens);
    }

    /// Ends a document of a stream, which came `at_ns` after the request's start.
    pub(crate) fn end_document(&mut self, at_ns: u64, has_content: bool) {
        let delta = std::mem::take(&mut self.delta);
        let hidden = std::mem::take(&mut self.hidden_so_far);
        let so_far = self.so_far.take();
        if !has_content {
            return; // its tokens come with the next content, or never
        }
        self.has_reasoned |= delta == Delta::Reasoning;
        let so_far = so_far.map(|tokens| tokens.saturating_sub(if self.has_reasoned { 0 } else { hidden }));
        let before = std::mem::replace(&mut self.before, so_far);
        let tokens = match std::mem::take(&mut self.listed) {
            0 => before.zip(so_far).map_or(1, |(before, so_far)| so_far.saturating_sub(before)),
            listed => listed,
        };
        if delta == Delta::Answer {
            self.first_answer_ns.get_or_insert(at_ns);
            self.answer_pieces += 1;
        }
        self.generation.get_or_insert_default().content_of(tokens, at_ns);
    }

    /// The timing of the answer; `None` if it was not streamed, or had no content.
    pub(crate) const fn take_generation(&mut self) -> Option<Box<Generation>> {
        self.generation.take()
    }

    /// Which of its `tokens` the client was not sent, once all of it has been read.
    pub(crate) fn hidden(&self, tokens: Option<u64>) -> HiddenTokens {
        let reasoning = self.reasoning_tokens.filter(|tokens| *tokens > 0);
        let reasoning = match reasoning {
            _ if self.has_reasoned => 0,
            // each piece is a token at least: those cannot be hidden, they came as content
            Some(hidden) if tokens.is_some_and(|all| all.saturating_sub(hidden) < self.answer_pieces) => 0,
            Some(hidden) => hidden,
            None if self.withholds && self.reasoning_tokens.is_none() => return HiddenTokens::Unknown,
            None => 0,
        };
        match (reasoning, self.rejected_tokens, self.first_answer_ns) {
            (0, 0, _) => HiddenTokens::None,
            (_, _, None) => HiddenTokens::Unknown, // nothing but a summary came
            (0, rejected, _) => HiddenTokens::Counted { tokens: rejected, first_visible_ns: None },
            (hidden, rejected, from) => HiddenTokens::Counted { tokens: hidden.saturating_add(rejected), first_visible_ns: from },
        }
    }
}

#[cfg(test)]
mod tests;
