//! Recognises whole bodies as messages of the protocol that their path suggests: whether a call to `/predict` is one of a model or of
//! something else that has that path.
//!
//! A path is only a guess. What is repeated in a client's name must not be guessed, so the request's body and the answers of the
//! route decide. Nothing here is on the request path: bodies are whole and decompressed.

mod classic;
mod document;
mod generative;
mod message;
mod others;
mod repeatable;
mod signature;
mod table;
mod verdict;

use bytes::Bytes;
use http::Method;

use self::document::JsonShape;
use self::message::ProtoForm;
use self::signature::MessageSignature;
pub use self::verdict::Recognised;
use super::detect::{Family, detect, detect_grpc};
use super::media::Media;
use super::wire::{SsePiece, SseReader};

/// A whole body, decompressed.
#[derive(Clone, Copy, Debug)]
pub enum WholeBody<'a> {
    /// Of this format.
    Document(Media, &'a [u8]),
    /// The messages of gRPC.
    Messages(&'a [Bytes]),
}

/// The signatures of all protocols, compiled.
#[derive(Clone, Debug)]
pub struct Recogniser {
    /// By [`Family`]: requests, and answers.
    forms: Vec<[MessageForm; 2]>,
}

#[derive(Clone, Debug)]
enum MessageForm {
    Unknown,
    Json(JsonShape),
    Proto(ProtoForm),
}

impl MessageForm {
    fn new(signature: MessageSignature) -> Self {
        match signature {
            MessageSignature::Unknown => Self::Unknown,
            MessageSignature::Json(signature) => Self::Json(JsonShape::new(signature)),
            MessageSignature::Proto(signature) => Self::Proto(ProtoForm::new(signature)),
        }
    }
}

impl Default for Recogniser {
    fn default() -> Self {
        let forms = |family: &Family| {
            let signature = table::signature(*family);
            [MessageForm::new(signature.request), MessageForm::new(signature.answer)]
        };
        Self { forms: Family::ALL.iter().map(forms).collect() }
    }
}

impl Recogniser {
    /// What a request is that was sent to this path, which has no query. Each of several messages must be one of the protocol.
    #[must_use]
    pub fn request(&self, method: &Method, path: &str, body: WholeBody<'_>) -> Recognised {
        let Some([form, _]) = self.forms_of(method, path, body) else { return Recognised::No };
        match form.documents(body) {
            all if all.is_empty() || all.contains(&Recognised::No) || all.contains(&Recognised::Error) => Recognised::No,
            all => most_telling(all),
        }
    }

    /// What the answer to such a request is. Of a stream, one document of the protocol is enough: others may be extensions.
    #[must_use]
    pub fn answer(&self, method: &Method, path: &str, body: WholeBody<'_>) -> Recognised {
        let Some([_, form]) = self.forms_of(method, path, body) else { return Recognised::No };
        match form.documents(body) {
            // an error ends a stream
            all if all.contains(&Recognised::Error) => Recognised::Error,
            all => most_telling(all.into_iter().filter(|one| *one != Recognised::No).collect()),
        }
    }

    fn forms_of(&self, method: &Method, path: &str, body: WholeBody<'_>) -> Option<&[MessageForm; 2]> {
        if method != Method::POST {
            return None;
        }
        let family = if matches!(body, WholeBody::Messages(_)) { detect_grpc(path)? } else { detect(path)?.0 };
        self.forms.get(family as usize)
    }
}

/// The effect, if any has one.
fn most_telling(all: Vec<Recognised>) -> Recognised {
    let effect = all.iter().copied().find(|one| matches!(one, Recognised::Effect(_)));
    effect.or(all.first().copied()).unwrap_or(Recognised::No)
}

impl MessageForm {
    /// What each document or message of the body is.
    fn documents(&self, body: WholeBody<'_>) -> Vec<Recognised> {
        match (self, body) {
            (Self::Proto(form), WholeBody::Messages(messages)) => messages.iter().map(|message| form.judge(message)).collect(),
            (Self::Json(shape), WholeBody::Document(media, body)) => json_documents(shape, media, body),
            _ => Vec::new(),
        }
    }
}

fn json_documents(shape: &JsonShape, media: Media, body: &[u8]) -> Vec<Recognised> {
    let mut reader = shape.reader();
    match media {
        Media::Json => vec![reader.whole(body)],
        Media::JsonBefore(bytes) => {
            let head = usize::try_from(bytes).ok().and_then(|bytes| body.get(..bytes));
            head.map(|head| reader.whole(head)).into_iter().collect()
        }
        Media::Lines => {
            let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
            lines.map(|line| reader.whole(line)).collect()
        }
        Media::Events => {
            let mut all = Vec::new();
            SseReader::new().feed(body, &mut |piece| match piece {
                SsePiece::Data(data) => reader.feed(data),
                SsePiece::End => all.push(reader.end()),
                SsePiece::Name(_) | SsePiece::Error => {}
            });
            // servers leave out the last blank line
            all.push(reader.end());
            all
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
