//! Generated text in the forms of Anthropic's messages and of OpenAI's streamed transcriptions.

use super::document::Value;
use super::generated::{GeneratedTexts, TextPart};

/// Takes the text of one document. Returns whether it has one of these forms. A whole message with a call of a tool has not: its arguments
/// are a document, which is compared as one.
pub(crate) fn take(texts: &mut GeneratedTexts, root: Value<'_>) -> bool {
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

fn take_message(texts: &mut GeneratedTexts, root: Value<'_>) -> bool {
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
fn take_block(texts: &mut GeneratedTexts, block: Value<'_>) {
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
    use super::super::document::Document;
    use super::super::generated::from_document;
    use super::*;

    fn taken(documents: &[&str]) -> Option<Vec<(&'static str, String)>> {
        let mut texts = GeneratedTexts::default();
        for text in documents {
            if !take(&mut texts, Document::parse(text.as_bytes()).unwrap().root()) {
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
