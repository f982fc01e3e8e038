//! How much one request may hold, and the counts by which that is known before anything is built.
//!
//! An empty message takes two bytes on the wire, three in JSON, and up to several hundred in memory. So requests are decoded a
//! span at a time, and a span only after its elements were counted: attributes, events, links, and the values in them.

use prost::DecodeError;

use super::wire::fields;

/// Spans that are decoded in one request; and resources, and scopes, that it may have. An exporter's default is 512 spans, a
/// collector's 8192.
pub(crate) const MAX_SPANS: usize = 16_384;
/// Links of one span that are followed to the requests that it was for: more than a batch has.
pub(crate) const MAX_LINKS: usize = 256;
/// Elements of one span, or of one resource or scope. Each takes about 100 bytes in memory.
pub(crate) const MAX_ELEMENTS: usize = 32_768;
/// Nesting of values in attributes.
const MAX_DEPTH: usize = 32;
/// Marks of JSON (`{`, `[`, `:` and `,`) in one span, resource, scope, metric or log record: an attribute has about seven. An
/// object takes two of them and about 700 bytes in memory.
pub(crate) const MAX_MARKS: usize = 131_072;

/// A message that may occur many times in a span or a resource, or that may contain many.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Element {
    Span,
    Resource,
    Scope,
    Attribute,
    Value,
    List,
    Map,
    Event,
    Link,
    Entity,
    /// Has nothing more in it.
    Text,
}

impl Element {
    /// The element in `field` of this one, by the numbers in OTLP's `trace.proto`, `common.proto` and `resource.proto`.
    const fn inner(self, field: u32) -> Option<Self> {
        match (self, field) {
            (Self::Span, 9) | (Self::Resource | Self::Map, 1) | (Self::Scope | Self::Event, 3) | (Self::Link, 4) => {
                Some(Self::Attribute)
            }
            (Self::Span, 11) => Some(Self::Event),
            (Self::Span, 13) => Some(Self::Link),
            (Self::Attribute, 2) | (Self::List, 1) => Some(Self::Value),
            (Self::Value, 5) => Some(Self::List),
            (Self::Value, 6) => Some(Self::Map),
            (Self::Resource, 3) => Some(Self::Entity),
            (Self::Entity, 3 | 4) => Some(Self::Text),
            _ => None,
        }
    }

    /// Whether `message`, which is one of these, has at most [`MAX_ELEMENTS`] in it, not nested too deeply.
    pub(crate) fn fits(self, message: &[u8]) -> Result<bool, DecodeError> {
        let mut left = MAX_ELEMENTS;
        self.count(message, &mut left, MAX_DEPTH)
    }

    fn count(self, message: &[u8], left: &mut usize, depth: usize) -> Result<bool, DecodeError> {
        if matches!(self, Self::Text) {
            return Ok(true);
        }
        for field in fields(message) {
            let (number, Some(bytes)) = field? else { continue };
            let Some(inner) = self.inner(number) else { continue };
            let (Some(fewer), Some(deeper)) = (left.checked_sub(1), depth.checked_sub(1)) else { return Ok(false) };
            *left = fewer;
            if !inner.count(bytes, left, deeper)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether a text of JSON has at most [`MAX_MARKS`].
pub(crate) fn fits_json(text: &str) -> bool {
    let (mut marks, mut in_text, mut is_escaped) = (0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' | b':' | b',' if !in_text => marks += 1,
            _ => {}
        }
    }
    marks <= MAX_MARKS
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};
    use opentelemetry_proto::tonic::trace::v1::Span;
    use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
    use prost::Message;

    use super::*;

    fn list(values: Vec<AnyValue>) -> AnyValue {
        AnyValue { value: Some(Value::ArrayValue(ArrayValue { values })) }
    }

    fn of_value(value: AnyValue) -> Span {
        Span { attributes: vec![KeyValue { value: Some(value), ..KeyValue::default() }], ..Span::default() }
    }

    fn fits(span: &Span) -> bool {
        Element::Span.fits(&span.encode_to_vec()).unwrap()
    }

    #[test]
    fn elements_of_every_kind_are_counted() {
        let n = MAX_ELEMENTS;
        assert!(fits(&Span { attributes: vec![KeyValue::default(); n], ..Span::default() }));
        for over in [
            Span { attributes: vec![KeyValue::default(); n + 1], ..Span::default() },
            Span { events: vec![Event::default(); n + 1], ..Span::default() },
            Span { links: vec![Link::default(); n + 1], ..Span::default() },
            Span { events: vec![Event { attributes: vec![KeyValue::default(); n], ..Event::default() }], ..Span::default() },
            Span { links: vec![Link { attributes: vec![KeyValue::default(); n], ..Link::default() }], ..Span::default() },
            of_value(list(vec![AnyValue::default(); n])),
        ] {
            assert!(!fits(&over));
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| of_value((0..depth).fold(AnyValue::default(), |value, _| list(vec![value])));
        assert!(fits(&nested(14)) && !fits(&nested(16)) && !fits(&nested(40)));
    }

    #[test]
    fn marks_in_texts_do_not_count() {
        let text = format!("{{\"a\":\"{}\\\"{}\"}}", "[,".repeat(MAX_MARKS), "{:".repeat(MAX_MARKS));
        assert!(fits_json(&text));
        assert!(fits_json(&format!("[{}0]", "0,".repeat(MAX_MARKS - 1))));
        assert!(!fits_json(&format!("[{}0]", "0,".repeat(MAX_MARKS))));
    }

    #[test]
    fn a_text_is_counted_and_not_read_as_a_message() {
        // Resource.entity_refs (3) with EntityRef.id_keys (3): no name of an attribute is protobuf
        let key = |name: &str| [&[0x1a, u8::try_from(name.len()).unwrap()], name.as_bytes()].concat();
        let entity = [key("host.id"), key("\0\x1a")].concat();
        let resource = [&[0x1a, u8::try_from(entity.len()).unwrap()], &entity[..]].concat();
        assert!(Element::Resource.fits(&resource).unwrap());
    }

    #[test]
    fn what_is_cut_is_no_message() {
        assert!(Element::Span.fits(&[0x4a, 5, 1]).is_err());
    }
}
