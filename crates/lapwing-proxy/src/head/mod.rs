//! The one step each way that makes a message's head one that may be forwarded: its framing is unambiguous, its host is one, and
//! what belongs to a single connection stays there (RFC 9110, 7.6; RFC 9112, 3 and 6; RFC 9113, 8).

mod hop;
mod request;
mod response;

use http::HeaderMap;

pub(crate) use hop::remove_connection_fields;
pub use request::RefusedHead;
pub(crate) use request::normalise_request;
pub use response::UpstreamHeadError;
pub(crate) use response::normalise_response;

/// The approximate size of fields on the wire, in bytes. Hyper bounds a head only by its buffer, which has to be larger for bodies.
pub(crate) fn fields_bytes(headers: &HeaderMap) -> u64 {
    headers.iter().map(|(name, value)| (name.as_str().len() + value.len() + 4) as u64).sum()
}
