//! `respond_server_timing`: tells the client the stages known so far, in `Server-Timing` (W3C Server Timing).
//!
//! In the head of every response; on streams once more, complete, in a trailer, where the client can take one. The
//! response's own `Server-Timing` stays before it. Entries are `stage;dur=milliseconds;desc="source"`.

use std::fmt::Write;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, TE, TRAILER};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Version};
use http_body::Body;

use crate::attribution::merge;
use crate::ledger::{Stage, Stamp};
use crate::proxy::body::response::ResponseBody;
use crate::proxy::exchange::in_flight::Live;

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Adds what is known at the head. Whether a trailer shall follow: the body is a stream, and the client takes trailers.
pub(crate) fn announce(response: &mut Response<ResponseBody>, live: &Arc<Live>, takes_trailers: bool) -> bool {
    append(response.headers_mut(), live);
    let is_stream = !response.headers().contains_key(CONTENT_LENGTH) && !response.body().is_end_stream();
    if !is_stream || !takes_trailers {
        return false;
    }
    if response.version() != Version::HTTP_2 {
        response.headers_mut().append(TRAILER, HeaderValue::from_name(SERVER_TIMING));
    }
    true
}

/// Whether the client can take trailers: by HTTP/2 always, else by its own word (RFC 9110, 6.5.1).
pub(crate) fn takes_trailers<B>(request: &Request<B>) -> bool {
    let says_so = |value: &HeaderValue| value.to_str().is_ok_and(|te| te.to_ascii_lowercase().contains("trailers"));
    request.version() == Version::HTTP_2 || request.headers().get_all(TE).iter().any(says_so)
}

/// Adds what is known now. An account without time is left out.
pub(crate) fn append(fields: &mut HeaderMap, live: &Live) {
    let Some(ledger) = live.until(Stamp::now()) else { return };
    let exchange = merge(ledger, Vec::new());
    let mut text = String::with_capacity(160);
    for stage in Stage::ALL {
        let Some((ns, source)) = exchange.stage(stage) else { continue };
        let comma = if text.is_empty() { "" } else { ", " };
        let (ms, rest, stage, source) = (ns / 1_000_000, ns % 1_000_000, stage.name(), source.name());
        // writing to a string cannot fail
        let _ = write!(text, "{comma}{stage};dur={ms}.{rest:06};desc=\"{source}\"");
    }
    if let Ok(value) = HeaderValue::try_from(text) {
        fields.append(SERVER_TIMING, value);
    }
}
