//! One model's tokenizer, read from its `tokenizer.json`. Errors and panics of the library on unusual files and texts are handled here.

use std::path::Path;

use super::texts::TokenizerInput;

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
pub(super) struct ModelTokenizer(Box<tokenizers::Tokenizer>);

impl ModelTokenizer {
    /// Reads a file. Padding and truncation, which many files ask for, are ignored, because they do not describe the text.
    pub(super) fn load(path: &Path) -> Result<Self, ModelError> {
        let bytes = std::fs::read(path).map_err(ModelError::Read)?;
        let parsed = unpanicked(|| tokenizers::Tokenizer::from_bytes(&bytes));
        let mut tokenizer = match parsed {
            Some(Ok(tokenizer)) => tokenizer,
            Some(Err(error)) => return Err(ModelError::Parse(error.to_string())),
            None => return Err(ModelError::Parse("its parts do not fit together".to_owned())),
        };
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| ModelError::Parse(error.to_string()))?;
        Ok(Self(Box::new(tokenizer)))
    }

    /// The number of tokens of an input, including the special ones around it if `whole`; `None` if it cannot be determined.
    pub(super) fn count(&self, input: TokenizerInput<'_>, whole: bool) -> Option<u64> {
        let encoded = unpanicked(|| match input {
            TokenizerInput::One(text) => self.0.encode_fast(text, whole),
            TokenizerInput::Pair(first, second) => self.0.encode_fast((first, second), whole),
        });
        encoded?.ok().map(|encoding| encoding.len() as u64)
    }
}

/// The result of `of`; `None` if it panics.
fn unpanicked<T>(of: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(of)).ok()
}
