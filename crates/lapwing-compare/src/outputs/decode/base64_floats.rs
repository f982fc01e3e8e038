//! Embeddings as base64 of little-endian single floats, which is what OpenAI's clients ask for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The floats; `None` if the text is not base64, or not of whole floats.
pub(crate) fn floats(text: &str) -> Option<Vec<f64>> {
    let bytes = STANDARD.decode(text).ok()?;
    let (floats, []) = bytes.as_chunks::<4>() else { return None };
    Some(floats.iter().map(|bytes| f32::from_le_bytes(*bytes).into()).collect())
}
