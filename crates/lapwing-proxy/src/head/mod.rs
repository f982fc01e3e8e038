//! The one step each way that makes a message's head one that may be forwarded: its framing is unambiguous, its host is one, and
//! what belongs to a single connection stays there (RFC 9110, 7.6; RFC 9112, 3 and 6; RFC 9113, 8).

mod hop;
mod request;
mod response;

use http::{HeaderMap, header};

pub(crate) use hop::remove_connection_fields;
pub use request::RefusedHead;
pub(crate) use request::normalise_request;
pub use response::UpstreamHeadError;
pub(crate) use response::normalise_response;

/// The approximate size of fields on the wire, in bytes. Hyper bounds a head only by its buffer, which has to be larger for bodies.
pub(crate) fn fields_bytes(headers: &HeaderMap) -> u64 {
    headers.iter().map(|(name, value)| (name.as_str().len() + value.len() + 4) as u64).sum()
}

/// Whether a content type is gRPC's own, with or without the name of a format; gRPC-Web's is none.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let rest = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.as_bytes().strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}
