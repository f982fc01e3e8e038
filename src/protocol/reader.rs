//! One body that is being read, whatever its format: pieces go in, facts come out.

use super::facts::Facts;
use super::media::Media;
use super::plan::Source;
use super::tag::{Seen, Tag};
use super::wire::{Frame, Frames, Item, Json, Proto, ProtoValue, Sse, SsePiece, Value};

/// A reader of one body.
#[derive(Debug)]
pub(super) enum Reader {
    /// Nothing is read.
    Off,
    /// One document.
    Json(Json<Tag>),
    /// One document of this many bytes, then tensors.
    JsonBefore(Json<Tag>, u64),
    /// A document an event.
    Events(Sse, Json<Tag>, Mark),
    /// Documents one behind another.
    Lines(Json<Tag>),
    /// A protobuf message each.
    Grpc(Frames, Proto<Tag>),
}

impl Reader {
    /// A reader for a body of this format that watches `source`.
    pub(super) fn new(source: &Source, media: Media) -> Self {
        match (source, media) {
            (Source::Json(paths), Media::Json) => Self::Json(Json::new(paths.clone())),
            (Source::Json(paths), Media::JsonBefore(bytes)) => Self::JsonBefore(Json::new(paths.clone()), bytes),
            (Source::Json(paths), Media::Events) => Self::Events(Sse::new(), Json::new(paths.clone()), Mark::default()),
            (Source::Json(paths), Media::Lines) => Self::Lines(Json::new(paths.clone())),
            (Source::Proto(fields), Media::Grpc) => Self::Grpc(Frames::new(), Proto::new(fields.clone())),
            _ => Self::Off,
        }
    }

    /// Whether it reads anything.
    pub(super) const fn is_on(&self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Whether the body may bring more than one document.
    pub(super) const fn streams(&self) -> bool {
        matches!(self, Self::Events(..) | Self::Lines(_) | Self::Grpc(..))
    }

    /// The next piece, read `at_ns` after the request's start.
    pub(super) fn feed(&mut self, bytes: &[u8], at_ns: u64, facts: &mut Facts) {
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
                SsePiece::Name(_) => {}
            }),
            Self::Lines(json) => json.feed_many(bytes, &mut |item| match item {
                Item::Value(tag, value) => note_json(facts, tag, value),
                Item::End => facts.end_document(at_ns),
            }),
            Self::Grpc(frames, proto) => frames.feed(bytes, &mut |frame| match frame {
                Frame::Begin { .. } => proto.restart(),
                Frame::Piece(piece) => proto.feed(piece, &mut |tag, value| note_proto(facts, tag, value)),
                Frame::End => facts.end_message(at_ns),
                Frame::Compressed { .. } => {}
            }),
        }
    }

    /// No more bytes come; the last ones were read at `at_ns`.
    pub(super) fn end(&mut self, at_ns: u64, facts: &mut Facts) {
        match self {
            Self::Json(json) | Self::JsonBefore(json, _) | Self::Events(_, json, _) | Self::Lines(json) => {
                json.end(&mut |tag, value| note_json(facts, tag, value));
                facts.end_document(at_ns);
            }
            // what came of a message that was cut counts
            Self::Grpc(..) => facts.end_message(at_ns),
            Self::Off => {}
        }
        *self = Self::Off;
    }
}

/// Looks for an event whose data is `[DONE]`, with which OpenAI's streams end: their clients leave when they have it, and
/// do not wait for the body's end.
#[derive(Debug, Default)]
pub(super) struct Mark(usize);

impl Mark {
    const DONE: &[u8] = b"[DONE]";

    fn feed(&mut self, data: &[u8]) {
        let fits = Self::DONE.get(self.0..).is_some_and(|rest| rest.starts_with(data));
        self.0 = if fits { self.0 + data.len() } else { usize::MAX }; // from there nothing fits any more
    }

    /// The event ended: whether it was the mark.
    fn end(&mut self) -> bool {
        std::mem::take(&mut self.0) == Self::DONE.len()
    }
}

fn note_json(facts: &mut Facts, tag: Tag, value: Value<'_>) {
    let seen = match value {
        // what is null is not there
        Value::Null => return,
        Value::Bool(is_true) => Seen::Bool(is_true),
        Value::Number(n) => Seen::Number(n),
        Value::Numbers { len } => Seen::Numbers(len),
        Value::Text { head, bytes } => Seen::Text { head, bytes },
        Value::Array { len } => Seen::List(len),
        Value::Object { .. } => Seen::Group,
    };
    facts.note(tag, seen);
}

#[expect(clippy::cast_precision_loss, reason = "beyond 2^53 it is no count, and not taken for one")]
fn note_proto(facts: &mut Facts, tag: Tag, value: ProtoValue<'_>) {
    let seen = match value {
        ProtoValue::Varint(n) | ProtoValue::Fixed64(n) => Seen::Number(n as f64),
        ProtoValue::Fixed32(bits) => Seen::Number(f64::from(f32::from_bits(bits))),
        ProtoValue::Double(n) => Seen::Number(n),
        ProtoValue::Text { head, bytes } => Seen::Text { head, bytes },
        ProtoValue::Message { .. } => Seen::Group,
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
