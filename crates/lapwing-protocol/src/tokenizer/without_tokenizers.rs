//! What replaces `model` in a build without the feature `tokenizers`: a configured tokenizer is an error that says so.

use std::path::Path;

use super::text::{EncodedText, TokenizerInput};

/// Why a tokenizer cannot be used. The message follows the file's name.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// This build has no tokenizers.
    #[error("cannot be used: this Lapwing was built without the feature tokenizers")]
    Absent,
}

/// A tokenizer; this build cannot create one.
pub(crate) enum ModelTokenizer {}

impl ModelTokenizer {
    /// Always returns the error that says why.
    pub(crate) fn load(_: &Path) -> Result<Self, ModelError> {
        Err(ModelError::Absent)
    }

    /// Never called.
    pub(crate) fn truncating(self, _: usize) -> Result<Self, ModelError> {
        match self {}
    }

    /// Never called.
    pub(crate) const fn pad_id(&self) -> u32 {
        match *self {}
    }

    /// Never called.
    pub(crate) fn encode(&self, _: &str) -> Option<EncodedText> {
        match *self {}
    }

    /// Never called.
    pub(crate) fn encode_pair(&self, _: &str, _: &str) -> Option<EncodedText> {
        match *self {}
    }

    /// Never called.
    pub(crate) fn count(&self, _: TokenizerInput<'_>, _: bool) -> Option<u64> {
        match *self {}
    }
}
