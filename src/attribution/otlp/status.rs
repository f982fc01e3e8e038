//! `google.rpc.Status`: the body of an OTLP/HTTP error, and the details of an OTLP/gRPC error.
//!
//! Four small messages by hand: no crate at hand carries them without a service stack around them.

use std::time::Duration;

use prost::Message;

use super::signal::Encoding;

/// The code of a message that cannot be read.
pub(super) const INVALID_ARGUMENT: i32 = 3;
/// The code of a message that did not arrive in time.
pub(super) const DEADLINE_EXCEEDED: i32 = 4;
/// The code of a message that is too large.
pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
/// The code of an unknown method or encoding.
pub(super) const UNIMPLEMENTED: i32 = 12;

const RETRY_INFO: &str = "google.rpc.RetryInfo";

#[derive(Clone, PartialEq, Message)]
pub(super) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub(super) retry_delay: Option<Delay>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Delay {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

impl RpcStatus {
    /// Encodes a status as a response's body.
    pub(super) fn body(code: i32, message: String, encoding: Encoding) -> Vec<u8> {
        match encoding {
            Encoding::Protobuf => Self { code, message, details: Vec::new() }.encode_to_vec(),
            Encoding::Json => serde_json::json!({ "code": code, "message": message }).to_string().into_bytes(),
        }
    }
}

/// The pause that the peer asks for in a gRPC status's details, if it does.
pub(super) fn retry_delay(details: &[u8]) -> Option<Duration> {
    let status = RpcStatus::decode(details).ok()?;
    let info = status.details.iter().find(|any| any.type_url.ends_with(RETRY_INFO))?;
    let delay = RetryInfo::decode(&*info.value).ok()?.retry_delay.unwrap_or_default();
    let (seconds, nanos) = (u64::try_from(delay.seconds).unwrap_or(0), u32::try_from(delay.nanos).unwrap_or(0));
    Some(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos.into())))
}
