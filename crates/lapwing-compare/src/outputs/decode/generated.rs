//! Generated text, out of one document or out of all documents of a stream, so that a stream and a whole answer of the same text are
//! the same: OpenAI (chat, completions, responses, transcriptions), Anthropic, TGI, SGLang, llama.cpp, Ollama, Triton's `generate`.
//!
//! Ids, times, token counts and log probabilities are left out.

use std::collections::BTreeMap;

use super::AnswerDecodeError;
use super::document::{Document, DocumentValue, Node};
use super::events::Documents;

/// A part of what a model wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TextPart {
    Content,
    Reasoning,
    Refusal,
    ToolCalls,
    FinishReason,
    Error,
}

impl TextPart {
    /// The name of its field.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Content => "text",
            Self::Reasoning => "reasoning",
            Self::Refusal => "refusal",
            Self::ToolCalls => "tool_calls",
            Self::FinishReason => "finish_reason",
            Self::Error => "error",
        }
    }
}

/// What a model wrote, by choice (from 0) and part.
#[derive(Clone, Debug, Default)]
pub(crate) struct GeneratedTexts(pub(crate) BTreeMap<(u64, TextPart), String>);

/// The text of a whole answer; `None` if there is none that is known.
pub(crate) fn from_document(document: &Document) -> Option<GeneratedTexts> {
    let mut texts = GeneratedTexts::default();
    texts.take(document.root()).then_some(texts)
}

/// The text of a stream; `None` if no document has any that is known.
pub(crate) fn from_stream(documents: &Documents) -> Result<Option<GeneratedTexts>, AnswerDecodeError> {
    let (mut texts, mut document, mut is_known) = (GeneratedTexts::default(), Document::default(), false);
    for text in documents.iter() {
        document.clear();
        document.append(text)?;
        is_known |= texts.take(document.root());
    }
    Ok(is_known.then_some(texts))
}

impl GeneratedTexts {
    pub(crate) fn append(&mut self, choice: u64, part: TextPart, text: &str) {
        self.0.entry((choice, part)).or_default().push_str(text);
    }

    pub(crate) fn replace(&mut self, choice: u64, part: TextPart, text: &str) {
        self.0.insert((choice, part), text.to_owned());
    }

    /// Takes the text of one document. Returns whether it has a known form.
    fn take(&mut self, root: DocumentValue<'_>) -> bool {
        if let Some(list) = root.elements() {
            // TGI's `/` and SGLang with several prompts answer with a list
            let known: Vec<bool> = list.enumerate().map(|(at, item)| self.take_native(item, at as u64)).collect();
            return !known.is_empty() && known.into_iter().all(|is_known| is_known);
        }
        if let Some(error) = root.get("error").filter(|error| error.node() != Node::Null) {
            let text = error.text().or_else(|| error.get_text("message")).unwrap_or("error");
            self.append(0, TextPart::Error, text);
            return true;
        }
        self.take_choices(root) | self.take_responses(root) || take_typed(self, root) || self.take_native(root, 0)
    }

    /// OpenAI's chat and completions.
    fn take_choices(&mut self, root: DocumentValue<'_>) -> bool {
        let Some(choices) = root.get("choices").and_then(|choices| choices.elements()) else { return false };
        for (at, choice) in choices.enumerate() {
            let index = choice.get("index").and_then(DocumentValue::count).unwrap_or(at as u64);
            for message in ["message", "delta"].into_iter().filter_map(|key| choice.get(key)) {
                self.take_message(index, message);
            }
            if let Some(text) = choice.get_text("text") {
                self.append(index, TextPart::Content, text);
            }
            if let Some(reason) = choice.get_text("finish_reason") {
                self.replace(index, TextPart::FinishReason, reason);
            }
        }
        true
    }

    fn take_message(&mut self, choice: u64, message: DocumentValue<'_>) {
        for (key, part) in [
            ("content", TextPart::Content),
            ("reasoning_content", TextPart::Reasoning),
            ("reasoning", TextPart::Reasoning),
            ("thinking", TextPart::Reasoning),
            ("refusal", TextPart::Refusal),
        ] {
            if let Some(text) = message.get_text(key) {
                self.append(choice, part, text);
            }
        }
        let calls = message.get("tool_calls").and_then(|calls| calls.elements()).into_iter().flatten();
        for function in calls.filter_map(|call| call.get("function")).chain(message.get("function_call")) {
            for key in ["name", "arguments"] {
                if let Some(text) = function.get_text(key) {
                    self.append(choice, TextPart::ToolCalls, text);
                }
            }
        }
    }

    /// OpenAI's responses: a whole answer has `output`, the events of a stream have a type and their piece in `delta`.
    fn take_responses(&mut self, root: DocumentValue<'_>) -> bool {
        if let Some(event) = root.get_text("type").filter(|event| event.starts_with("response.")) {
            let part = if event.contains("reasoning") {
                TextPart::Reasoning
            } else if event.contains("refusal") {
                TextPart::Refusal
            } else if event.contains("arguments") {
                TextPart::ToolCalls
            } else {
                TextPart::Content
            };
            if let Some(delta) = root.get_text("delta").filter(|_| event.ends_with(".delta")) {
                self.append(root.get("output_index").and_then(DocumentValue::count).unwrap_or(0), part, delta);
            }
            return true;
        }
        let Some(items) = root.get("output").and_then(|output| output.elements()) else { return false };
        for (index, item) in items.enumerate() {
            let is_reasoning = item.get_text("type") == Some("reasoning");
            let part = if is_reasoning { TextPart::Reasoning } else { TextPart::Content };
            let content = item.get("content").and_then(|content| content.elements()).into_iter().flatten();
            for text in content.filter_map(|content| content.get_text("text")) {
                self.append(index as u64, part, text);
            }
            if let Some(arguments) = item.get_text("arguments") {
                self.append(index as u64, TextPart::ToolCalls, arguments);
            }
        }
        true
    }

    /// The servers' own routes.
    fn take_native(&mut self, root: DocumentValue<'_>, choice: u64) -> bool {
        let before = self.0.len();
        let mut is_known = false;
        // pieces, which follow each other: llama.cpp, Triton, Ollama
        for (key, part) in [
            ("content", TextPart::Content),
            ("text_output", TextPart::Content),
            ("response", TextPart::Content),
            ("thinking", TextPart::Reasoning),
        ] {
            if let Some(text) = root.get_text(key) {
                let index = root.get("index").and_then(DocumentValue::count).unwrap_or(choice);
                self.append(index, part, text);
                is_known = true;
            }
        }
        if let Some(message) = root.get("message") {
            self.take_message(choice, message);
            is_known = true;
        }
        if let Some(token) = root.get("token").filter(|token| token.get("special").is_none_or(|special| !is_true(special))) {
            // TGI streams tokens
            self.append(choice, TextPart::Content, token.get_text("text").unwrap_or_default());
            is_known = true;
        }
        // the whole text: TGI at the end, SGLang in every event
        for text in [root.get_text("generated_text"), root.get_text("text")].into_iter().flatten() {
            self.replace(choice, TextPart::Content, text);
            is_known = true;
        }
        for (index, text) in root.get("text").and_then(|texts| texts.elements()).into_iter().flatten().enumerate() {
            self.replace(index as u64, TextPart::Content, text.text().unwrap_or_default());
            is_known = true;
        }
        let details = root.get("details").and_then(|details| details.get_text("finish_reason"));
        for reason in [details, root.get_text("stop_type"), root.get_text("done_reason")].into_iter().flatten() {
            self.replace(choice, TextPart::FinishReason, reason);
        }
        is_known || self.0.len() > before || root.get("token").is_some()
    }
}

fn is_true(value: DocumentValue<'_>) -> bool {
    value.node() == Node::Bool(true)
}

/// Takes the text of a document in the forms of Anthropic's messages and of OpenAI's streamed transcriptions. Returns whether it has
/// one of these forms. A whole message with a call of a tool has not: its arguments
/// are a document, which is compared as one.
fn take_typed(texts: &mut GeneratedTexts, root: DocumentValue<'_>) -> bool {
    match root.get_text("type") {
        Some("message") => take_message(texts, root),
        Some("message_start" | "message_stop" | "content_block_stop" | "ping") => true,
        Some("content_block_start") => {
            if let Some(block) = root.get("content_block") {
                take_block(texts, block);
            }
            true
        }
        Some("content_block_delta") => {
            if let Some(delta) = root.get("delta") {
                take_block(texts, delta);
            }
            true
        }
        Some("message_delta") => {
            if let Some(reason) = root.get("delta").and_then(|delta| delta.get_text("stop_reason")) {
                texts.replace(0, TextPart::FinishReason, reason);
            }
            true
        }
        Some("transcript.text.delta") => {
            texts.append(0, TextPart::Content, root.get_text("delta").unwrap_or_default());
            true
        }
        Some("transcript.text.done") => {
            texts.replace(0, TextPart::Content, root.get_text("text").unwrap_or_default());
            true
        }
        _ => false,
    }
}

fn take_message(texts: &mut GeneratedTexts, root: DocumentValue<'_>) -> bool {
    let Some(blocks) = root.get("content").and_then(|content| content.elements()) else { return false };
    if blocks.clone().any(|block| !matches!(block.get_text("type"), Some("text" | "thinking"))) {
        return false;
    }
    blocks.for_each(|block| take_block(texts, block));
    if let Some(reason) = root.get_text("stop_reason") {
        texts.replace(0, TextPart::FinishReason, reason);
    }
    true
}

/// A block of a message, or a piece of one.
fn take_block(texts: &mut GeneratedTexts, block: DocumentValue<'_>) {
    for (key, part) in [
        ("text", TextPart::Content),
        ("thinking", TextPart::Reasoning),
        ("name", TextPart::ToolCalls),
        ("partial_json", TextPart::ToolCalls),
    ] {
        if let Some(text) = block.get_text(key).filter(|text| !text.is_empty()) {
            texts.append(0, part, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(documents: &[&str]) -> Option<Vec<(&'static str, String)>> {
        let mut texts = GeneratedTexts::default();
        for text in documents {
            if !take_typed(&mut texts, Document::parse(text.as_bytes()).unwrap().root()) {
                return None;
            }
        }
        Some(texts.0.into_iter().map(|((_, part), text)| (part.name(), text)).collect())
    }

    #[test]
    fn a_stream_and_a_whole_message_of_the_same_text_are_the_same() {
        let streamed = taken(&[
            r#"{"type":"message_start","message":{"id":"a","content":[],"usage":{"input_tokens":1}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm."}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"x"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hi"}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":" you"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}"#,
            r#"{"type":"message_stop"}"#,
        ]);
        let whole = r#"{"type":"message","id":"b","content":[{"type":"thinking","thinking":"Hm.","signature":"y"},
            {"type":"text","text":"Hi you"}],"stop_reason":"end_turn"}"#;
        let expected = [("text", "Hi you"), ("reasoning", "Hm."), ("finish_reason", "end_turn")];
        assert_eq!(streamed.unwrap(), expected.map(|(part, text)| (part, text.to_owned())));
        assert_eq!(taken(&[whole]).unwrap(), expected.map(|(part, text)| (part, text.to_owned())));
        assert!(from_document(&Document::parse(whole.as_bytes()).unwrap()).is_some());
    }

    #[test]
    fn calls_of_tools_are_compared() {
        let call = |city: &str| {
            taken(&[
                r#"{"type":"content_block_start","content_block":{"type":"tool_use","name":"weather","input":{}}}"#,
                &format!(r#"{{"type":"content_block_delta","delta":{{"type":"input_json_delta","partial_json":"{city}"}}}}"#),
            ])
        };
        assert_ne!(call("Bonn"), call("Rome"));
        assert_eq!(
            taken(&[r#"{"type":"message","content":[{"type":"tool_use","name":"weather","input":{"city":"Bonn"}}]}"#]),
            None
        );
    }

    #[test]
    fn a_transcription_is_its_text() {
        let pieces = [r#"{"type":"transcript.text.delta","delta":"I"}"#, r#"{"type":"transcript.text.delta","delta":" see"}"#];
        let done = r#"{"type":"transcript.text.done","text":"I see","usage":{"type":"tokens"}}"#;
        assert_eq!(taken(&pieces), Some(vec![("text", "I see".to_owned())]));
        assert_eq!(taken(&[pieces[0], pieces[1], done]), Some(vec![("text", "I see".to_owned())]));
    }
}
