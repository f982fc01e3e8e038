//! Payloads of differing answers as text, redacted and bounded. They exist only where `keep_samples` asks for them.

use schemars::JsonSchema;
use serde::Serialize;

use super::decode::document::DocumentValue;
use super::decode::tensor::TensorData;
use super::decode::{Decoded, DecodedTensor, Node};
use super::paths::{PathPart, PathSet, PathState};
use crate::secret_names::names_secret;

/// The most bytes of one payload; the rest is cut off and replaced by `…`.
pub const SAMPLE_BYTES: usize = 16 << 10;
/// How many elements of a tensor or a vector are shown.
const ELEMENTS: usize = 64;
/// What replaces a redacted value.
const REDACTED: &str = "\"***\"";

/// Both payloads of a pair of answers, decoded and redacted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PayloadSample {
    /// What the primary answered.
    pub primary: String,
    /// What the candidate answered.
    pub candidate: String,
}

impl PayloadSample {
    pub(crate) fn new(primary: &Decoded, candidate: &Decoded, redact: &PathSet) -> Self {
        let [primary, candidate] = [primary, candidate].map(|decoded| {
            let mut writer = SampleWriter { redact, text: String::new() };
            let state = redact.start();
            writer.decoded(decoded, &state);
            writer.text
        });
        Self { primary, candidate }
    }
}

/// Writes a payload as JSON, up to [`SAMPLE_BYTES`].
struct SampleWriter<'r> {
    redact: &'r PathSet,
    text: String,
}

impl SampleWriter<'_> {
    fn decoded(&mut self, decoded: &Decoded, state: &PathState) {
        if self.redact.matches(state) {
            return self.push(REDACTED);
        }
        match decoded {
            Decoded::Json(document) => self.value(document.root(), state),
            Decoded::Tensors(tensors) => {
                self.members(tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)), state, Self::tensor)
            }
            Decoded::Generated(texts) => {
                let parts = texts.0.iter().map(|((_, part), text)| (part.name(), text));
                self.members(parts, state, |writer, text| writer.quoted(text));
            }
            Decoded::Embeddings(embeddings) => {
                let vectors = embeddings.0.iter().map(|vector| ("embedding", vector));
                self.members(vectors, state, |writer, vector| writer.list(vector.iter().map(f64::to_string), vector.len()));
            }
            Decoded::Text(text) => self.quoted(text),
            Decoded::Opaque(bytes) => self.push(&format!("\"{} bytes\"", bytes.len())),
        }
    }

    /// Writes an object of one level.
    fn members<'n, T>(&mut self, members: impl Iterator<Item = (&'n str, T)>, state: &PathState, write: impl Fn(&mut Self, T)) {
        self.push("{");
        for (at, (name, value)) in members.enumerate().take_while(|(at, _)| *at < SAMPLE_BYTES) {
            self.separator(at);
            self.quoted(name);
            self.push(": ");
            if self.redact.matches(&self.redact.step(state, &PathPart::Key(name))) {
                self.push(REDACTED);
            } else {
                write(self, value);
            }
            if self.is_full() {
                return;
            }
        }
        self.push("}");
    }

    fn tensor(&mut self, tensor: &DecodedTensor) {
        self.push(&format!("{{\"datatype\": \"{}\", \"shape\": {:?}, \"data\": ", tensor.element.name(), tensor.shape));
        match &tensor.data {
            TensorData::Numbers(..) => {
                let shown = (0..tensor.len()).filter_map(|index| tensor.number(index)).map(|number| number.as_f64().to_string());
                self.list(shown, tensor.len());
            }
            TensorData::Texts(texts) => {
                self.list(texts.iter().map(|text| quoted(&String::from_utf8_lossy(text))), texts.len());
            }
        }
        self.push("}");
    }

    fn list(&mut self, shown: impl Iterator<Item = String>, len: usize) {
        self.push("[");
        for (at, text) in shown.take(ELEMENTS).enumerate() {
            self.separator(at);
            self.push(&text);
        }
        self.push(if len > ELEMENTS { ", …]" } else { "]" });
    }

    fn value(&mut self, value: DocumentValue<'_>, state: &PathState) {
        if self.redact.matches(state) {
            return self.push(REDACTED);
        }
        if let Some(members) = value.members() {
            let is_top = self.text.is_empty();
            self.push("{");
            for (at, (key, member)) in members.enumerate() {
                self.separator(at);
                self.quoted(key);
                self.push(": ");
                let is_scalar = member.text().is_some_and(|text| !text.is_empty()) || member.number().is_some();
                if is_scalar && names_secret(key, is_top) {
                    self.push(REDACTED);
                } else {
                    self.value(member, &self.redact.step(state, &PathPart::Key(key)));
                }
                if self.is_full() {
                    return;
                }
            }
            return self.push("}");
        }
        if let Some(elements) = value.elements() {
            self.push("[");
            for (at, element) in elements.enumerate() {
                self.separator(at);
                self.value(element, &self.redact.step(state, &PathPart::Element(at)));
                if self.is_full() {
                    return;
                }
            }
            return self.push("]");
        }
        match value.node() {
            Node::Bool(is_true) => self.push(&is_true.to_string()),
            Node::Unsigned(n) => self.push(&n.to_string()),
            Node::Signed(n) => self.push(&n.to_string()),
            Node::Float(n) => self.push(&n.to_string()),
            _ => match value.text() {
                Some(text) => self.quoted(text),
                None => self.push("null"),
            },
        }
    }

    fn separator(&mut self, at: usize) {
        if at > 0 {
            self.push(", ");
        }
    }

    fn quoted(&mut self, text: &str) {
        let end = (0..=text.len().min(SAMPLE_BYTES)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.push(&quoted(&text[..end]));
    }

    fn is_full(&self) -> bool {
        self.text.len() >= SAMPLE_BYTES
    }

    fn push(&mut self, text: &str) {
        if self.is_full() {
            return;
        }
        let room = SAMPLE_BYTES - self.text.len();
        if text.len() <= room {
            return self.text.push_str(text);
        }
        let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.text.push_str(&text[..end]);
        self.text.push('…');
        // full, also where the last character did not fit
        while self.text.len() < SAMPLE_BYTES {
            self.text.push(' ');
        }
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outputs::decode::Document;

    #[test]
    fn members_with_the_name_of_a_secret_are_hidden() {
        let body =
            br#"{"token": "t", "a": {"api_key": "k", "token": "word", "password": {"min": 8}}, "secret": null, "score": 0.5}"#;
        let decoded = || Decoded::Json(Document::parse(body).unwrap());
        let sample = PayloadSample::new(&decoded(), &decoded(), &PathSet::new(&[]));
        let expected =
            r#"{"token": "***", "a": {"api_key": "***", "token": "word", "password": {"min": 8}}, "secret": null, "score": 0.5}"#;
        assert_eq!((sample.primary.as_str(), sample.candidate.as_str()), (expected, expected));
    }
}
