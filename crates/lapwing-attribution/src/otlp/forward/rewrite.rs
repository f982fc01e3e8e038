//! Removes spans from a trace request and replaces parents in it, on the wire: every other byte stays as it came, so that fields
//! which are newer than Lapwing reach the collector too.

use bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, skip_field};

use crate::otlp::decode::put_delimited;
use lapwing_ledger::SpanId;

/// What is to become of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanFate {
    /// It is forwarded as it came.
    Keep,
    /// It is forwarded with this parent.
    Reparent(SpanId),
    /// It is forwarded without a parent.
    MakeRoot,
    /// It is not forwarded.
    Withhold,
}

/// The field of the next inner message, in `ExportTraceServiceRequest`, `ResourceSpans` and `ScopeSpans`.
const INNER: [u32; 3] = [1, 2, 2];
const PARENT: u32 = 4;
const FLAGS: u32 = 16;
/// `SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK`: the parent is from another process.
const IS_REMOTE: u32 = 0x200;

/// Returns the request in `body` with every span treated as `fates` says, in the order of the spans; `None` if no span is left, or
/// if `body` is not a request with that many spans.
pub(crate) fn rewritten(body: &[u8], fates: &[SpanFate]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(body.len());
    let mut fates = fates.iter().copied();
    (containers(body, &INNER, &mut fates, &mut out)? == Left::Some).then_some(out)
}

/// Whether a message is worth sending after its spans were removed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// It had spans, and has none now.
    None,
    Some,
}

fn containers(mut from: &[u8], levels: &[u32], fates: &mut impl Iterator<Item = SpanFate>, out: &mut Vec<u8>) -> Option<Left> {
    let (inner, deeper) = levels.split_first()?;
    let (mut removed, mut kept) = (false, false);
    while from.has_remaining() {
        let whole = from;
        let (field, wire_type) = decode_key(&mut from).ok()?;
        if (field, wire_type) != (*inner, WireType::LengthDelimited) {
            skip_field(wire_type, field, &mut from, DecodeContext::default()).ok()?;
            out.extend_from_slice(&whole[..whole.len() - from.len()]);
            continue;
        }
        let message = take_delimited(&mut from)?;
        let mut rewritten = Vec::with_capacity(message.len());
        let left = if deeper.is_empty() {
            span(message, fates.next()?, &mut rewritten)?
        } else {
            containers(message, deeper, fates, &mut rewritten)?
        };
        if left == Left::None {
            removed = true;
            continue;
        }
        kept = true;
        put_delimited(field, &rewritten, out);
    }
    Some(if removed && !kept { Left::None } else { Left::Some })
}

fn span(mut from: &[u8], fate: SpanFate, out: &mut Vec<u8>) -> Option<Left> {
    let parent = match fate {
        SpanFate::Withhold => return Some(Left::None),
        SpanFate::Keep => {
            out.extend_from_slice(from);
            return Some(Left::Some);
        }
        SpanFate::Reparent(parent) => Some(parent),
        SpanFate::MakeRoot => None,
    };
    while from.has_remaining() {
        let whole = from;
        let (field, wire_type) = decode_key(&mut from).ok()?;
        if field == FLAGS && wire_type == WireType::ThirtyTwoBit && parent.is_none() {
            // a span without a parent has none of another process either
            let flags = from.try_get_u32_le().ok()? & !IS_REMOTE;
            encode_key(field, wire_type, out);
            out.extend_from_slice(&flags.to_le_bytes());
            continue;
        }
        skip_field(wire_type, field, &mut from, DecodeContext::default()).ok()?;
        if field != PARENT {
            out.extend_from_slice(&whole[..whole.len() - from.len()]);
        }
    }
    if let Some(parent) = parent {
        put_delimited(PARENT, &parent.0, out);
    }
    Some(Left::Some)
}

fn take_delimited<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(decode_varint(from).ok()?).ok()?;
    let (message, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(message)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::trace::v1::Span;
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::otlp::tests::{request, span as span_of};
    use lapwing_ledger::TraceId;

    const NEW: SpanId = SpanId([9; 8]);

    /// Two resources with the spans `0..n` and `n..m`, each with a remote parent. No resource is without spans.
    fn sample(n: u8, m: u8) -> ExportTraceServiceRequest {
        let span = |i| Span { flags: 0x301, parent_span_id: vec![7; 8], ..span_of(TraceId([1; 16]), i + 1, "forward") };
        let parts = [0..n, n..m].into_iter().filter(|ids| !ids.is_empty());
        let resource_spans = parts.flat_map(|ids| request(ids.map(span).collect()).resource_spans).collect();
        ExportTraceServiceRequest { resource_spans }
    }

    /// The same by decoding.
    fn by_definition(mut request: ExportTraceServiceRequest, fates: &[SpanFate]) -> Option<ExportTraceServiceRequest> {
        let mut fates = fates.iter();
        for resource in &mut request.resource_spans {
            for scope in &mut resource.scope_spans {
                scope.spans.retain_mut(|span| match fates.next().unwrap() {
                    SpanFate::Keep => true,
                    SpanFate::Withhold => false,
                    SpanFate::Reparent(parent) => {
                        span.parent_span_id = parent.0.to_vec();
                        true
                    }
                    SpanFate::MakeRoot => {
                        span.parent_span_id.clear();
                        span.flags &= !IS_REMOTE;
                        true
                    }
                });
            }
        }
        request.resource_spans.retain(|r| r.scope_spans.iter().any(|s| !s.spans.is_empty()));
        (!request.resource_spans.is_empty()).then_some(request)
    }

    proptest! {
        #[test]
        fn it_is_what_decoding_and_encoding_would_give(choices in prop::collection::vec(0..4_usize, 1..12), at in 0..12_u8) {
            let fates: Vec<_> =
                choices.iter().map(|i| [SpanFate::Keep, SpanFate::Reparent(NEW), SpanFate::MakeRoot, SpanFate::Withhold][*i]).collect();
            let m = u8::try_from(fates.len()).unwrap();
            let request = sample(at.min(m), m);
            let got = rewritten(&request.encode_to_vec(), &fates);
            let got = got.map(|bytes| ExportTraceServiceRequest::decode(&bytes[..]).unwrap());
            prop_assert_eq!(got, by_definition(request, &fates));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = rewritten(&bytes, &[SpanFate::MakeRoot; 4]);
        }
    }

    #[test]
    fn fields_that_are_not_known_are_kept_at_every_level() {
        let unknown = [0xf8, 0x7f, 1]; // field 2047, a varint
        let nest = |field: u32, inner: &[u8]| {
            let mut out = Vec::new();
            put_delimited(field, inner, &mut out);
            [&out[..], &unknown].concat()
        };
        let with_parent = |parent: Option<[u8; 8]>| {
            let span = Span { parent_span_id: parent.map(Vec::from).unwrap_or_default(), ..span_of(TraceId([1; 16]), 1, "a") };
            [&span.encode_to_vec()[..], &unknown].concat()
        };
        let message = |span: &[u8]| nest(1, &nest(2, &nest(2, span)));
        let got = rewritten(&message(&with_parent(Some([7; 8]))), &[SpanFate::MakeRoot]).unwrap();
        assert_eq!(got, message(&with_parent(None)));
        let body = message(&with_parent(Some([7; 8])));
        assert_eq!(rewritten(&body, &[SpanFate::Keep]).unwrap(), body);
        assert_eq!(rewritten(&body, &[SpanFate::Withhold]), None);
    }
}
