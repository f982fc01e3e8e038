//! Bodies decoded to what is compared: tensors, embeddings, generated text, JSON, plain text, or bytes.
//!
//! The protocol says what an answer should contain. A body that does not have that form is decoded by its media type instead, so
//! that an error document or an extension is compared too. Memory is bounded by the body: a document takes at most 16 bytes for
//! each byte of text, and tensors are kept as they are on the wire.

pub(crate) mod content;
pub(crate) mod document;
pub(crate) mod element;
mod embeddings;
mod events;
mod generated;
mod labelled;
mod lenient;
mod mapped;
pub(crate) mod nested;
mod oip_grpc;
mod oip_json;
mod port;
mod postprocessing;
pub(crate) mod tensor;

use bytes::Bytes;

use super::answer::FinishedAnswer;
use lapwing_protocol::{Media, OutputKind};

pub(crate) use content::AnswerDecodeError;
pub use document::Document;
pub(crate) use document::Node;
pub(crate) use element::Number;
pub(crate) use embeddings::Embeddings;
pub(crate) use generated::{GeneratedTexts, TextPart};
pub(crate) use lenient::not_finite;
pub use mapped::{MappedOutput, MappedTensor, OutputMapping};
pub use port::TensorPort;
pub use postprocessing::{OutputActivation, Pooling, Postprocessing, Selection};
pub(crate) use tensor::DecodedTensor;

/// How an answer is decoded.
#[derive(Clone, Copy, Debug)]
pub enum AnswerReading<'a> {
    /// By what the protocol of its route answers with.
    Protocol(OutputKind),
    /// The same, of a model that was given the request as it is, in place of the upstream's. Of its tensors the values are compared: numbers
    /// of the same kind in another width, and axes of length 1, are no difference.
    SameModel(OutputKind),
    /// As the fields of an API that are compared, each at its place in a JSON document.
    Mapped(&'a OutputMapping),
    /// As tensors that a model answered, of which those fields are made. The texts of the request have so many tokens.
    Model(&'a OutputMapping, &'a [u32]),
}

/// A decoded body.
#[derive(Debug)]
pub(crate) enum Decoded {
    /// Named tensors, in their order.
    Tensors(Vec<DecodedTensor>),
    /// Vectors, in their order.
    Embeddings(Embeddings),
    /// What a model wrote.
    Generated(GeneratedTexts),
    /// A document, or the documents of a stream as one array.
    Json(Document),
    /// Plain text.
    Text(String),
    /// Anything else.
    Opaque(Bytes),
}

impl Decoded {
    /// What it is, for messages.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Tensors(_) => "tensors",
            Self::Embeddings(_) => "embeddings",
            Self::Generated(_) => "generated text",
            Self::Json(_) => "a JSON document",
            Self::Text(_) => "plain text",
            Self::Opaque(_) => "bytes of an unknown format",
        }
    }
}

/// Decodes a body of at most `limit` bytes after decompression.
///
/// # Errors
///
/// [`AnswerDecodeError`]: too large, in an unknown encoding, or not in the announced format.
pub(crate) fn decode(
    answer: &FinishedAnswer<'_>,
    reading: AnswerReading<'_>,
    limit: usize,
) -> Result<Decoded, AnswerDecodeError> {
    let kind = match reading {
        AnswerReading::Protocol(kind) | AnswerReading::SameModel(kind) => kind,
        AnswerReading::Mapped(outputs) => return mapped::decode(answer, outputs, limit).map(Decoded::Tensors),
        AnswerReading::Model(outputs, tokens) => {
            return match decode(answer, AnswerReading::Protocol(OutputKind::Tensors), limit)? {
                Decoded::Tensors(tensors) => mapped::postprocess(&tensors, outputs, tokens).map(Decoded::Tensors),
                other => Ok(other),
            };
        }
    };
    let body = content::body(answer, limit)?;
    let media = Media::of(answer.headers);
    match media {
        Media::Grpc => {
            let messages = content::grpc_messages(answer, &body, limit)?;
            match kind {
                OutputKind::Tensors => oip_grpc::decode(&messages).map(Decoded::Tensors),
                _ => Ok(Decoded::Opaque(messages.concat().into())),
            }
        }
        Media::JsonBefore(bytes) => {
            let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= body.len());
            let at = bytes.ok_or_else(|| AnswerDecodeError::malformed("the JSON before binary data is longer than the body"))?;
            let document = Document::parse(&body[..at])?;
            oip_json::decode(&document, &body.slice(at..)).map(Decoded::Tensors)
        }
        Media::Events | Media::Lines => {
            let documents = events::documents(media, &body);
            if !documents.is_json() {
                return Ok(text_or_bytes(documents.concatenated()));
            }
            if kind == OutputKind::GeneratedText
                && let Some(texts) = generated::from_stream(&documents)?
            {
                return Ok(Decoded::Generated(texts));
            }
            events::as_array(&documents).map(Decoded::Json)
        }
        // words and numbers side by side are a text, not several documents
        Media::Json if !is_declared_json(answer) && !is_one_document(&body) => Ok(text_or_bytes(body)),
        Media::Json => match Document::parse(&body) {
            Ok(document) => of_document(document, kind),
            // a body without a media type, or `text/plain`, may be anything
            Err(error) if is_declared_json(answer) => Err(error),
            Err(_) => Ok(text_or_bytes(body)),
        },
        Media::Csv | Media::Form | Media::Other if is_text(answer) => Ok(text_or_bytes(body)),
        Media::Csv | Media::Form | Media::Other => Ok(Decoded::Opaque(body)),
    }
}

fn of_document(document: Document, kind: OutputKind) -> Result<Decoded, AnswerDecodeError> {
    Ok(match kind {
        OutputKind::Tensors if oip_json::has_outputs(&document) => Decoded::Tensors(oip_json::decode(&document, &Bytes::new())?),
        OutputKind::Embeddings => match embeddings::decode(&document) {
            Some(embeddings) => Decoded::Embeddings(embeddings),
            None => Decoded::Json(document),
        },
        OutputKind::GeneratedText => match generated::from_document(&document) {
            Some(texts) => Decoded::Generated(texts),
            None => Decoded::Json(document),
        },
        _ => Decoded::Json(document),
    })
}

fn text_or_bytes(body: Bytes) -> Decoded {
    match std::str::from_utf8(&body) {
        Ok(text) => Decoded::Text(text.to_owned()),
        Err(_) => Decoded::Opaque(body),
    }
}

fn media_type<'a>(answer: &FinishedAnswer<'a>) -> Option<&'a [u8]> {
    answer.headers.get(http::header::CONTENT_TYPE).map(http::HeaderValue::as_bytes)
}

fn is_text(answer: &FinishedAnswer<'_>) -> bool {
    media_type(answer).and_then(|kind| kind.get(..5)).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/"))
}

/// Whether a body of no declared type may be a document: it begins like a container, or is one word.
fn is_one_document(body: &[u8]) -> bool {
    let text = body.trim_ascii();
    matches!(text.first(), Some(b'{' | b'[')) || !text.contains(&b' ')
}

fn is_declared_json(answer: &FinishedAnswer<'_>) -> bool {
    media_type(answer).is_some() && !is_text(answer)
}

#[cfg(test)]
mod tests;
