//! One body of an exchange as it passes: its content coding is decoded, and what it says is read from its pieces, in whatever format it is. A
//! body that cannot be decoded is not read further, and says why.

use std::sync::Arc;

use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::facts::ExchangeFacts;
use super::media::Media;
use super::plan::WatchedFields;
use super::tag::{Tag, TagValue};
use super::wire::{
    CsvReader, FormField, FormReader, Frame, FrameReader, JsonItem, JsonPaths, JsonReader, JsonValue, ProtoReader, ProtoValue,
    SsePiece, SseReader,
};
use lapwing_compression::{BodyDecoder, Codings, DecodeError, DecoderMemory};

/// Why a body is not read, or not to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadBody {
    /// Its content coding is not known.
    Coding,
    /// It is not in the coding that its head names.
    Corrupt,
    /// It unpacks to too much for its size.
    TooLarge,
    /// It needs a larger window than is kept, or the decoders of all bodies hold too much.
    Memory,
}

/// A body, and what decodes its coding.
#[derive(Debug)]
pub(crate) struct PassingBody {
    pub(crate) reader: BodyReader,
    decoder: Option<Box<BodyDecoder>>,
    pub(crate) unread: Option<UnreadBody>,
}

impl PassingBody {
    /// A body in no coding.
    pub(crate) const fn plain(reader: BodyReader) -> Self {
        Self { reader, decoder: None, unread: None }
    }

    /// Decodes the body as its head says.
    pub(crate) fn decode(&mut self, headers: &HeaderMap, memory: &DecoderMemory) {
        match Codings::of(headers) {
            Ok(codings) if codings.is_plain() => {}
            Ok(codings) => match BodyDecoder::new(&codings, memory) {
                Ok(decoder) => self.decoder = Some(Box::new(decoder)),
                Err(error) => self.stop(error.into()),
            },
            Err(_) => self.stop(UnreadBody::Coding),
        }
    }

    /// Calls `read` with the reader and each decoded part of a piece. Returns false if the piece could not be decoded to its end; the
    /// body is then read no further.
    pub(crate) fn feed(&mut self, piece: &[u8], mut read: impl FnMut(&mut BodyReader, &[u8])) -> bool {
        let Some(decoder) = &mut self.decoder else {
            read(&mut self.reader, piece);
            return true;
        };
        let reader = &mut self.reader;
        let result = decoder.feed(piece, &mut |part| read(reader, part));
        result.map_err(|error| self.stop(error.into())).is_ok()
    }

    fn stop(&mut self, why: UnreadBody) {
        (self.reader, self.decoder, self.unread) = (BodyReader::Off, None, Some(why));
    }
}

impl From<DecodeError> for UnreadBody {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Corrupt => Self::Corrupt,
            DecodeError::TooLarge => Self::TooLarge,
            DecodeError::Memory => Self::Memory,
        }
    }
}

/// A reader of one body.
#[derive(Debug)]
pub(crate) enum BodyReader {
    /// Nothing is read.
    Off,
    /// One document.
    Json(JsonReader<Tag>),
    /// One document of this many bytes, then tensors.
    JsonBefore(JsonReader<Tag>, u64),
    /// One document per event.
    Events(SseReader, JsonReader<Tag>, Mark),
    /// Documents one after another.
    Lines(JsonReader<Tag>),
    /// One protobuf message per gRPC message.
    Grpc(FrameReader, ProtoReader<Tag>),
    /// A form, whose fields are read as keys of a document.
    Form(Box<FormReader>, Arc<JsonPaths<Tag>>),
    /// A table.
    Csv(CsvReader),
    /// One document that may say that the request failed, and this many further bytes of it at most.
    Errors(JsonReader<Tag>, usize),
}

/// How much is read of a document that may say that the request failed.
const ERROR_BYTES: usize = 64 * 1024;

impl BodyReader {
    /// A reader for a body with this head, of this format, that watches `source`.
    pub(crate) fn new(source: &WatchedFields, media: Media, headers: &HeaderMap) -> Self {
        match (source, media) {
            (WatchedFields::Json(paths), Media::Form) => {
                let form = headers.get(CONTENT_TYPE).and_then(|kind| FormReader::new(kind.as_bytes()));
                form.map_or(Self::Off, |form| Self::Form(Box::new(form), paths.clone()))
            }
            (WatchedFields::Json(_), Media::Csv) => Self::Csv(CsvReader::default()),
            (WatchedFields::Json(paths), Media::Json) => Self::Json(JsonReader::new(paths.clone())),
            (WatchedFields::Json(paths), Media::JsonBefore(bytes)) => Self::JsonBefore(JsonReader::new(paths.clone()), bytes),
            (WatchedFields::Json(paths), Media::Events) => {
                Self::Events(SseReader::new(), JsonReader::new(paths.clone()), Mark::default())
            }
            (WatchedFields::Json(paths), Media::Lines) => Self::Lines(JsonReader::new(paths.clone())),
            (WatchedFields::Proto(fields), Media::Grpc) => Self::Grpc(FrameReader::new(), ProtoReader::new(fields.clone())),
            _ => Self::Off,
        }
    }

    /// A reader of a document that may say that the request failed.
    pub(crate) fn errors(watched: &WatchedFields) -> Self {
        match watched {
            WatchedFields::Json(paths) => Self::Errors(JsonReader::new(paths.clone()), ERROR_BYTES),
            _ => Self::Off,
        }
    }

    /// Whether it reads anything.
    pub(crate) const fn is_on(&self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Whether the body may contain more than one document.
    pub(crate) const fn streams(&self) -> bool {
        matches!(self, Self::Events(..) | Self::Lines(_) | Self::Grpc(..))
    }

    /// Reads the next piece, which arrived `at_ns` after the request's start.
    pub(crate) fn feed(&mut self, bytes: &[u8], at_ns: u64, facts: &mut ExchangeFacts) {
        match self {
            Self::Off => {}
            Self::Json(json) => {
                json.feed(bytes, &mut |tag, value| note_json(facts, tag, value));
                if json.is_done() || json.is_broken() {
                    facts.end_document(at_ns);
                    *self = Self::Off;
                }
            }
            Self::JsonBefore(json, left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                json.feed(&bytes[..here], &mut |tag, value| note_json(facts, tag, value));
                *left -= here as u64;
                if *left == 0 {
                    facts.end_document(at_ns);
                    *self = Self::Off;
                }
            }
            Self::Events(sse, json, mark) => sse.feed(bytes, &mut |piece| match piece {
                SsePiece::Data(data) => {
                    mark.feed(data);
                    json.feed(data, &mut |tag, value| note_json(facts, tag, value));
                }
                SsePiece::End => {
                    if mark.end() {
                        facts.complete();
                    }
                    facts.end_document(at_ns);
                    json.restart();
                }
                SsePiece::Name(b"error") | SsePiece::Error => facts.errors().fail(),
                SsePiece::Name(_) => {}
            }),
            Self::Lines(json) => json.feed_many(bytes, &mut |item| match item {
                JsonItem::Value(tag, value) => note_json(facts, tag, value),
                JsonItem::End => facts.end_document(at_ns),
            }),
            Self::Grpc(frames, proto) => frames.feed(bytes, &mut |frame| match frame {
                Frame::Begin { .. } => proto.restart(),
                Frame::Piece(piece) => proto.feed(piece, &mut |tag, value| note_proto(facts, tag, value)),
                Frame::End => facts.end_message(at_ns),
                Frame::Compressed { .. } => {}
            }),
            Self::Errors(json, left) => {
                let here = bytes.len().min(*left);
                json.feed(&bytes[..here], &mut |tag, value| note_json(facts, tag, value));
                *left -= here;
                if json.is_done() {
                    facts.end_document(at_ns);
                }
                if json.is_done() || json.is_broken() || *left == 0 {
                    *self = Self::Off;
                }
            }
            Self::Form(form, paths) => {
                form.feed(bytes, &mut |field| note_form(facts, paths, field));
                if form.is_done() {
                    facts.end_document(at_ns);
                    *self = Self::Off;
                }
            }
            Self::Csv(csv) => csv.feed(bytes),
        }
    }

    /// Ends the body; its last bytes arrived at `at_ns`.
    pub(crate) fn end(&mut self, at_ns: u64, facts: &mut ExchangeFacts) {
        match self {
            Self::Json(json) | Self::JsonBefore(json, _) | Self::Events(_, json, _) => {
                json.end(&mut |tag, value| note_json(facts, tag, value));
                facts.end_document(at_ns);
            }
            // what follows the last whole document is none
            Self::Lines(json) => {
                if json.end(&mut |tag, value| note_json(facts, tag, value)) {
                    facts.end_document(at_ns);
                } else {
                    facts.end_message(at_ns);
                }
            }
            // values of a message that was cut off count
            Self::Grpc(..) => facts.end_message(at_ns),
            Self::Csv(csv) => {
                csv.end();
                facts.end_table(csv.records());
            }
            // a part of a document says nothing
            Self::Form(..) | Self::Errors(..) | Self::Off => {}
        }
        *self = Self::Off;
    }
}

/// Looks for an event whose data is `[DONE]`, which ends OpenAI's streams. Clients leave when they receive it and do not wait for
/// the end of the body.
#[derive(Debug, Default)]
pub(crate) struct Mark(usize);

impl Mark {
    const DONE: &[u8] = b"[DONE]";

    fn feed(&mut self, data: &[u8]) {
        let fits = Self::DONE.get(self.0..).is_some_and(|rest| rest.starts_with(data));
        self.0 = if fits { self.0 + data.len() } else { usize::MAX }; // from here on nothing matches
    }

    /// Ends the event and returns whether it was the mark.
    fn end(&mut self) -> bool {
        std::mem::take(&mut self.0) == Self::DONE.len()
    }
}

/// A field of a form is a text; where an amount is due, it is a number.
fn note_form(facts: &mut ExchangeFacts, paths: &JsonPaths<Tag>, field: FormField<'_>) {
    let Some(tag) = paths.of_key(field.name) else { return };
    let text = TagValue::Text { head: field.head, bytes: field.bytes };
    let number = || std::str::from_utf8(field.head).ok()?.trim().parse().ok().map(TagValue::Number);
    let seen = match tag {
        Tag::Amount(..) | Tag::Tokens(..) | Tag::Sequences => number().unwrap_or(text),
        _ => text,
    };
    facts.note(tag, seen);
}

fn note_json(facts: &mut ExchangeFacts, tag: Tag, value: JsonValue<'_>) {
    let seen = match value {
        // null counts as absent
        JsonValue::Null => return,
        JsonValue::Bool(is_true) => TagValue::Bool(is_true),
        JsonValue::Number(n) => TagValue::Number(n),
        JsonValue::Numbers { len } => TagValue::Numbers(len),
        JsonValue::Text { head, bytes } => TagValue::Text { head, bytes },
        JsonValue::Array { len } => TagValue::List(len),
        JsonValue::Object { .. } => TagValue::Group,
    };
    facts.note(tag, seen);
}

#[expect(clippy::cast_precision_loss, reason = "beyond 2^53 it is no count, and not taken for one")]
fn note_proto(facts: &mut ExchangeFacts, tag: Tag, value: ProtoValue<'_>) {
    let seen = match value {
        ProtoValue::Varint(n) | ProtoValue::Fixed64(n) => TagValue::Number(n as f64),
        ProtoValue::Fixed32(bits) => TagValue::Number(f64::from(f32::from_bits(bits))),
        ProtoValue::Double(n) => TagValue::Number(n),
        ProtoValue::Text { head, bytes } => TagValue::Text { head, bytes },
        ProtoValue::Message { .. } => TagValue::Group,
    };
    facts.note(tag, seen);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_event_that_is_the_mark_ends_a_stream() {
        for (pieces, is_mark) in [
            (&["[DONE]"][..], true),
            (&["[DO", "", "NE]"], true),
            (&["{\"a\":\"[DONE]\"}"], false),
            (&["[DONE] "], false),
            (&["[DONE]", "x"], false),
            (&["[DON"], false),
            (&[], false),
        ] {
            let mut mark = Mark::default();
            for _ in 0..2 {
                pieces.iter().for_each(|piece| mark.feed(piece.as_bytes()));
                assert_eq!(mark.end(), is_mark, "{pieces:?}");
            }
        }
    }
}
