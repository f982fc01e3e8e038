//! One model's `tokenizer.json`: it counts the tokens of texts, and turns texts into a model's input. It knows no request: `tokens`
//! finds the texts of one.

mod encoder;
#[cfg(feature = "tokenizers")]
mod model;
mod text;
#[cfg(not(feature = "tokenizers"))]
mod without_tokenizers;
#[cfg(not(feature = "tokenizers"))]
use without_tokenizers as model;

pub use encoder::TextEncoder;
pub use model::ModelError;
pub(crate) use model::ModelTokenizer;
pub use text::EncodedText;
pub(crate) use text::TokenizerInput;

/// Why a tokenizer's file cannot be used; `None` if it can.
pub(crate) fn fault_of(file: &std::path::Path) -> Option<ModelError> {
    ModelTokenizer::load(file).err()
}
