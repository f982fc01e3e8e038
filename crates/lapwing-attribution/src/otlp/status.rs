//! The bodies of answers: what was taken only in part, and `google.rpc.Status` for an OTLP/HTTP error, in the request's encoding.

use opentelemetry_proto::tonic::collector::trace::v1::{ExportTracePartialSuccess, ExportTraceServiceResponse};
use prost::Message;
use tonic::Code;
use tonic_types::Status;

use super::decode::{MAX_ELEMENTS, MAX_SPANS};
use super::export_handler::Taken;
use crate::collector::Encoding;

/// Encodes a status as a response's body.
pub(crate) fn body(code: Code, message: String, encoding: Encoding) -> Vec<u8> {
    let code = i32::from(code);
    match encoding {
        Encoding::Protobuf => Status { code, message, details: Vec::new() }.encode_to_vec(),
        Encoding::Json => serde_json::json!({ "code": code, "message": message }).to_string().into_bytes(),
    }
}

/// Encodes the answer to a request that was taken. Each service answers an empty message when it took everything; a partial success
/// says how many spans are lost, or, if the collector still gets them, warns with a count of zero.
pub(crate) fn success(taken: Taken, encoding: Encoding) -> Vec<u8> {
    if taken.rejected == 0 {
        return if encoding == Encoding::Json { b"{}".to_vec() } else { Vec::new() };
    }
    let rejected_spans = if taken.is_forwarded { 0 } else { i64::try_from(taken.rejected).unwrap_or(i64::MAX) };
    let error_message = format!(
        "{} spans were not joined to requests: at most {MAX_SPANS} of one message are, and none with more than {MAX_ELEMENTS} attributes, \
         events, links and values",
        taken.rejected
    );
    match encoding {
        Encoding::Protobuf => {
            let partial_success = Some(ExportTracePartialSuccess { rejected_spans, error_message });
            ExportTraceServiceResponse { partial_success }.encode_to_vec()
        }
        Encoding::Json => {
            let partial = serde_json::json!({ "rejectedSpans": rejected_spans.to_string(), "errorMessage": error_message });
            serde_json::json!({ "partialSuccess": partial }).to_string().into_bytes()
        }
    }
}
