//! One model's tokenizer, read from its `tokenizer.json`. Errors and panics of the library on unusual files and texts are handled here.

use std::path::Path;

use super::text::{EncodedText, TokenizerInput};

/// Why a tokenizer cannot be used. The message follows the file's name.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(std::io::Error),
    /// The file is something else.
    #[error("is not a tokenizer.json: {0}")]
    Parse(String),
}

/// A tokenizer.
pub(crate) struct ModelTokenizer {
    tokenizer: Box<tokenizers::Tokenizer>,
    pad_id: u32,
}

impl ModelTokenizer {
    /// Reads a file. Padding and truncation, which many files ask for, are ignored, because they do not describe the text.
    pub(crate) fn load(path: &Path) -> Result<Self, ModelError> {
        let bytes = std::fs::read(path).map_err(ModelError::Read)?;
        let parsed = unpanicked(|| tokenizers::Tokenizer::from_bytes(&bytes));
        let mut tokenizer = match parsed {
            Some(Ok(tokenizer)) => tokenizer,
            Some(Err(error)) => return Err(ModelError::Parse(error.to_string())),
            None => return Err(ModelError::Parse("its parts do not fit together".to_owned())),
        };
        let pad_id = tokenizer.get_padding().map_or(0, |padding| padding.pad_id);
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| ModelError::Parse(error.to_string()))?;
        Ok(Self { tokenizer: Box::new(tokenizer), pad_id })
    }

    /// The same, which cuts longer texts at their end to `max_tokens`, special tokens included.
    pub(crate) fn truncating(mut self, max_tokens: usize) -> Result<Self, ModelError> {
        let truncation = tokenizers::TruncationParams { max_length: max_tokens, ..tokenizers::TruncationParams::default() };
        let set = unpanicked(|| self.tokenizer.with_truncation(Some(truncation)).map(|_| ()).map_err(|error| error.to_string()));
        match set.unwrap_or_else(|| Err("its special tokens are more".to_owned())) {
            Ok(()) => Ok(self),
            Err(error) => Err(ModelError::Parse(format!("cannot cut texts to {max_tokens} tokens: {error}"))),
        }
    }

    /// The token that shorter texts are filled up with.
    pub(crate) const fn pad_id(&self) -> u32 {
        self.pad_id
    }

    /// The number of tokens of an input, including the special ones around it if `whole`; `None` if it cannot be determined.
    pub(crate) fn count(&self, input: TokenizerInput<'_>, whole: bool) -> Option<u64> {
        let encoded = unpanicked(|| match input {
            TokenizerInput::One(text) => self.tokenizer.encode_fast(text, whole),
            TokenizerInput::Pair(first, second) => self.tokenizer.encode_fast((first, second), whole),
        });
        encoded?.ok().map(|encoding| encoding.len() as u64)
    }

    /// The tokens of a text, special ones included; `None` if it cannot be tokenized.
    pub(crate) fn encode(&self, text: &str) -> Option<EncodedText> {
        encoded(|| self.tokenizer.encode_fast(text, true).ok())
    }

    /// The tokens of two texts, special ones included; `None` if they cannot be tokenized.
    pub(crate) fn encode_pair(&self, first: &str, second: &str) -> Option<EncodedText> {
        // `encode_fast` forgets which of the two a token is of, where the file has no post-processor
        encoded(|| self.tokenizer.encode((first, second), true).ok())
    }
}

fn encoded(of: impl FnOnce() -> Option<tokenizers::Encoding>) -> Option<EncodedText> {
    let encoding = unpanicked(of)??;
    Some(EncodedText { ids: encoding.get_ids().to_vec(), type_ids: encoding.get_type_ids().to_vec() })
}

/// The result of `of`; `None` if it panics.
fn unpanicked<T>(of: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(of)).ok()
}
