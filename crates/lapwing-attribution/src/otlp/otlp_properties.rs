//! Properties of the receiver's readers on any bytes, shared by the replayed corpora and the fuzz targets. They read a message a second
//! time as a whole, as nothing else here may, so they are for tests only.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;

use super::decode::{self, Decoded, MAX_SPANS, Undecodable};
use super::forward::{SpanFate, rewritten};
use super::json;
use crate::Rules;
use crate::collector::Signal;

/// Names longer than this are cut: of a span, and of a service with its instance.
const MOST_NAME_BYTES: usize = 2 * 256 + 1;

/// Whether any bytes, read as a request of traces in protobuf, give spans within the bounds; the same number as a decoder of whole
/// messages finds, where it finds any; and whether forwarding all of them forwards the message.
#[must_use]
pub fn protobuf(bytes: &[u8], rules: &Rules) -> bool {
    let whole = ExportTraceServiceRequest::decode(bytes);
    match (decode::spans(bytes, rules), &whole) {
        (Ok(decoded), Ok(whole)) => {
            let spans = whole.resource_spans.iter().flat_map(|of| &of.scope_spans).map(|of| of.spans.len()).sum();
            is_bounded(&decoded) && counted(&decoded) == spans && is_kept_whole(bytes, whole, spans)
        }
        (Ok(decoded), Err(_)) => is_bounded(&decoded),
        // what a decoder of whole messages can read is read, unless there is too much of it
        (Err(error), whole) => whole.is_err() || matches!(error, Undecodable::TooMany(_)),
    }
}

/// Whether any bytes, read as JSON of each signal, are refused or become protobuf that is read as that signal.
#[must_use]
pub fn json(bytes: &[u8], rules: &Rules) -> bool {
    Signal::ALL.into_iter().all(|signal| {
        let Ok(converted) = json::to_protobuf(signal, bytes) else { return true };
        signal != Signal::Traces || {
            let is_whole = ExportTraceServiceRequest::decode(&converted.bytes[..]).is_ok();
            let read = decode::spans(&converted.bytes, rules);
            is_whole && read.map_or_else(|error| matches!(error, Undecodable::TooMany(_)), |decoded| is_bounded(&decoded))
        }
    })
}

fn counted(decoded: &Decoded) -> usize {
    let others = decoded.invalid + decoded.skipped + decoded.rejected;
    decoded.spans.len() + usize::try_from(others).unwrap_or(usize::MAX)
}

fn is_bounded(decoded: &Decoded) -> bool {
    let fits = |span: &crate::IncomingSpan| {
        span.name.len() <= MOST_NAME_BYTES && span.service.len() <= MOST_NAME_BYTES && span.start_unix_ns <= span.end_unix_ns
    };
    decoded.spans.len() <= MAX_SPANS && decoded.spans.iter().all(fits)
}

/// Whether keeping each of the `spans` of a message forwards the message, as `whole` decodes it.
fn is_kept_whole(body: &[u8], whole: &ExportTraceServiceRequest, spans: usize) -> bool {
    let Some(kept) = rewritten(body, &vec![SpanFate::Keep; spans]) else { return false };
    let is_same = ExportTraceServiceRequest::decode(&kept[..]).is_ok_and(|kept| same(&kept, whole));
    let again = rewritten(&kept, &vec![SpanFate::Keep; spans]);
    is_same && again.is_some_and(|again| again == kept)
}

/// Compared as encoded, because a NaN is not equal to itself.
fn same(one: &ExportTraceServiceRequest, other: &ExportTraceServiceRequest) -> bool {
    one.encode_to_vec() == other.encode_to_vec()
}
