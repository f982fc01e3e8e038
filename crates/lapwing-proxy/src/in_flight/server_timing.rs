//! `respond_server_timing`: tells the client the stages known so far, in `Server-Timing` (W3C Server Timing).
//!
//! The head of every response carries the field. A stream carries it again in a trailer, then complete, if the client
//! accepts trailers. It stands after the response's own `Server-Timing`. Entries are `stage;dur=milliseconds;desc="source"`.

use http::header::{CONTENT_LENGTH, TE, TRAILER};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Version};
use http_body::Body;

use super::account::RequestAccount;
use lapwing_ledger::{Stage, Stamp, merge};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Adds the stages known at the head. Returns whether a trailer shall follow: if the body is a stream, and the client
/// accepts trailers.
pub(crate) fn announce<B: Body>(response: &mut Response<B>, account: &RequestAccount, accepts_trailers: bool) -> bool {
    append(response.headers_mut(), account);
    let is_stream = !response.headers().contains_key(CONTENT_LENGTH) && !response.body().is_end_stream();
    if !is_stream || !accepts_trailers {
        return false;
    }
    if response.version() != Version::HTTP_2 {
        response.headers_mut().append(TRAILER, HeaderValue::from_name(SERVER_TIMING));
    }
    true
}

/// Returns whether the client accepts trailers: over HTTP/2 always, else if its `TE` says so (RFC 9110, 6.5.1).
pub(crate) fn accepts_trailers<B>(request: &Request<B>) -> bool {
    let says_so = |value: &HeaderValue| value.to_str().is_ok_and(|te| te.to_ascii_lowercase().contains("trailers"));
    request.version() == Version::HTTP_2 || request.headers().get_all(TE).iter().any(says_so)
}

/// Adds the stages known now. Stages without time are left out.
pub(crate) fn append(fields: &mut HeaderMap, account: &RequestAccount) {
    let Some(ledger) = account.ledger_until(Stamp::now()) else { return };
    let exchange = merge(ledger, Vec::new());
    let stages = Stage::ALL.into_iter().filter_map(|stage| exchange.stage(stage).map(|(ns, source)| (stage, ns, Some(source))));
    if let Ok(value) = HeaderValue::try_from(lapwing_ledger::server_timing(stages)) {
        fields.append(SERVER_TIMING, value);
    }
}
