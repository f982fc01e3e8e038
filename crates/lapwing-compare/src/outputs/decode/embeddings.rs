//! Embeddings as lists of numbers, or as base64 of little-endian single floats, which is what OpenAI's clients ask for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::document::{Document, DocumentValue};

/// Vectors, in the order of the inputs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Embeddings(pub(crate) Vec<Vec<f64>>);

/// The vectors of an answer; `None` if it does not have the form of one.
pub(crate) fn decode(document: &Document) -> Option<Embeddings> {
    let root = document.root();
    let mut vectors = Vec::new();
    if let Some(data) = root.get("data").and_then(|data| data.elements()) {
        let mut indexed = Vec::new();
        for (at, item) in data.enumerate() {
            let index = item.get("index").and_then(DocumentValue::count).unwrap_or(at as u64);
            let from = vectors.len();
            take(item.get("embedding")?, &mut vectors)?;
            indexed.extend(vectors.drain(from..).map(|vector| (index, vector)));
        }
        // by index, because the order of the list is not promised
        indexed.sort_by_key(|(index, _)| *index);
        vectors.extend(indexed.into_iter().map(|(_, vector)| vector));
    } else if let Some(value) = root.get("embeddings").or_else(|| root.get("embedding")) {
        take(value, &mut vectors)?;
    } else {
        for item in root.elements()? {
            take(item.get("embedding").unwrap_or(item), &mut vectors)?;
        }
    }
    (!vectors.is_empty()).then_some(Embeddings(vectors))
}

/// Appends a vector, or a list of vectors (of one input, where tokens are not pooled); `None` for another value.
fn take(value: DocumentValue<'_>, vectors: &mut Vec<Vec<f64>>) -> Option<()> {
    if let Some(text) = value.text() {
        vectors.push(floats(text)?);
        return Some(());
    }
    let mut elements = value.elements()?.peekable();
    if elements.peek()?.elements().is_some() {
        return elements.try_for_each(|inner| {
            let vector: Option<Vec<f64>> = inner.elements()?.map(|n| Some(n.number()?.as_f64())).collect();
            vectors.push(vector?);
            Some(())
        });
    }
    let vector: Option<Vec<f64>> = elements.map(|n| Some(n.number()?.as_f64())).collect();
    vectors.push(vector?);
    Some(())
}

/// The floats; `None` if the text is not base64, or not of whole floats.
pub(crate) fn floats(text: &str) -> Option<Vec<f64>> {
    let bytes = STANDARD.decode(text).ok()?;
    let (floats, []) = bytes.as_chunks::<4>() else { return None };
    Some(floats.iter().map(|bytes| f32::from_le_bytes(*bytes).into()).collect())
}
