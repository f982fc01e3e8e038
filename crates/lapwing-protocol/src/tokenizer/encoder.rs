//! Texts as a model's input: token ids by its own `tokenizer.json`. It runs off the request path, for copies of requests.

use std::fmt;
use std::path::Path;

use super::model::{ModelError, ModelTokenizer};
use super::text::EncodedText;

/// Turns texts into tokens.
pub struct TextEncoder(ModelTokenizer);

impl fmt::Debug for TextEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // a tokenizer holds its whole vocabulary
        f.write_str("TextEncoder")
    }
}

impl TextEncoder {
    /// Reads a `tokenizer.json`. Texts are cut at their end to `max_tokens`, special tokens included; what the file itself says about padding
    /// and truncation is ignored.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if the file cannot be read, is no tokenizer, or this build has none.
    pub fn load(file: &Path, max_tokens: usize) -> Result<Self, ModelError> {
        ModelTokenizer::load(file)?.truncating(max_tokens).map(Self)
    }

    /// The tokens of a text; `None` if the tokenizer fails on it.
    #[must_use]
    pub fn encode(&self, text: &str) -> Option<EncodedText> {
        self.0.encode(text)
    }

    /// The tokens of two texts that the model reads together; `None` if the tokenizer fails on them. Of two that are too long the longer
    /// one is cut.
    #[must_use]
    pub fn encode_pair(&self, first: &str, second: &str) -> Option<EncodedText> {
        self.0.encode_pair(first, second)
    }

    /// The token that shorter texts are filled up with: the file's own, else 0.
    #[must_use]
    pub const fn pad_id(&self) -> u32 {
        self.0.pad_id()
    }
}
