//! The body of an OTLP/HTTP error: `google.rpc.Status`, in the request's encoding.

use prost::Message;
use tonic::Code;
use tonic_types::Status;

use super::signal::Encoding;

/// Encodes a status as a response's body.
pub(super) fn body(code: Code, message: String, encoding: Encoding) -> Vec<u8> {
    let code = i32::from(code);
    match encoding {
        Encoding::Protobuf => Status { code, message, details: Vec::new() }.encode_to_vec(),
        Encoding::Json => serde_json::json!({ "code": code, "message": message }).to_string().into_bytes(),
    }
}
