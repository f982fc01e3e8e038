//! The responses that Lapwing itself gives for errors. No other file chooses a status.
//!
//! Each carries `x-lapwing-error: <token>` and a plain-text reason, so that it cannot be mistaken for the upstream's.

use std::io;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use crate::error::Error;
use crate::head::RefusedHead;
use lapwing_hydrate::HydrateRefused;
use lapwing_ledger::Outcome;
use lapwing_net::error_text;

/// The header field that marks a response as Lapwing's own.
pub const ERROR_FIELD: &str = "x-lapwing-error";

/// [`ERROR_FIELD`] as a name.
const OWN_ERROR: HeaderName = HeaderName::from_static(ERROR_FIELD);
/// gRPC's status of what the server does not support, which clients do not try again.
const UNIMPLEMENTED: &str = "12";
/// Of what there is no room for now.
const RESOURCE_EXHAUSTED: &str = "8";
/// Of what is not there.
const UNAVAILABLE: &str = "14";
/// Of what took too long.
const DEADLINE_EXCEEDED: &str = "4";
/// When a gRPC client may ask again, in milliseconds (gRFC A6).
const PUSHBACK: &str = "grpc-retry-pushback-ms";
/// What [`ERROR_FIELD`] is called in a response of the upstream.
const UPSTREAM_ERROR: HeaderName = HeaderName::from_static("x-lapwing-upstream-error");

/// How an error looks to the client, and how it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorResponse {
    /// The response's status.
    pub status: StatusCode,
    /// The value of [`ERROR_FIELD`].
    pub token: &'static str,
    /// How the request is counted.
    pub outcome: Outcome,
}

impl Error {
    /// How this error looks to the client, and how it is counted.
    #[must_use]
    pub fn response(&self) -> ErrorResponse {
        let (status, token, outcome) = match self {
            Self::Connect { cause, .. } if cause.kind() == io::ErrorKind::ConnectionRefused => {
                (StatusCode::BAD_GATEWAY, "connect_refused", Outcome::Unreachable)
            }
            // no fault of the upstream's
            Self::Connect { cause, .. } if is_out_of_descriptors(cause) => {
                (StatusCode::SERVICE_UNAVAILABLE, "out_of_descriptors", Outcome::Shed)
            }
            Self::Connect { .. } => (StatusCode::BAD_GATEWAY, "connect_failed", Outcome::Unreachable),
            Self::ConnectTimeout { .. } => (StatusCode::GATEWAY_TIMEOUT, "connect_timeout", Outcome::TimedOut),
            Self::HeaderTimeout { .. } => (StatusCode::GATEWAY_TIMEOUT, "header_timeout", Outcome::TimedOut),
            Self::ResponseStalled { .. } | Self::RequestUnread { .. } | Self::UpgradeStalled { .. } => {
                (StatusCode::GATEWAY_TIMEOUT, "idle_timeout", Outcome::TimedOut)
            }
            Self::RequestStalled { .. } => (StatusCode::REQUEST_TIMEOUT, "request_stalled", Outcome::Rejected),
            Self::ResponseUnread { .. } => (StatusCode::REQUEST_TIMEOUT, "response_unread", Outcome::Cancelled),
            Self::RequestSlow { .. } => (StatusCode::REQUEST_TIMEOUT, "request_slow", Outcome::Rejected),
            Self::Reset(_) | Self::H2(_) | Self::StreamCut => (StatusCode::BAD_GATEWAY, "upstream_reset", Outcome::Broken),
            Self::Garbage(_) | Self::RefusedAnswer(_) | Self::SwitchedUnasked => {
                (StatusCode::BAD_GATEWAY, "upstream_garbage", Outcome::Broken)
            }
            Self::WrongProtocol(_) | Self::GrpcOverHttp1 { .. } => {
                (StatusCode::BAD_GATEWAY, "upstream_protocol", Outcome::Broken)
            }
            Self::RequestCut(_) => (StatusCode::BAD_REQUEST, "request_cut", Outcome::Cancelled),
            Self::RequestBody(_) => (StatusCode::BAD_REQUEST, "malformed_body", Outcome::Rejected),
            Self::Refused(RefusedHead::Coding) => (StatusCode::NOT_IMPLEMENTED, "unsupported", Outcome::Rejected),
            Self::Refused(_) => (StatusCode::BAD_REQUEST, "malformed_request", Outcome::Rejected),
            Self::HeadTooLarge { .. } => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "header_too_large", Outcome::Rejected),
            Self::BodyTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", Outcome::Rejected),
            Self::WouldBeLate { .. } => (StatusCode::TOO_MANY_REQUESTS, "late", Outcome::Shed),
            Self::NotCached { .. } => (StatusCode::GATEWAY_TIMEOUT, "not_cached", Outcome::Rejected),
            Self::Overdue { .. } => (StatusCode::GATEWAY_TIMEOUT, "overdue", Outcome::Shed),
            // what the client names is not there: to ask again does not help (RFC 9110, 15.5.21)
            Self::NotHydrated(HydrateRefused::Missing { .. }) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "features_missing", Outcome::Rejected)
            }
            // no fault of the upstream's (RFC 9110, 15.6.3 and 15.6.5)
            Self::NotHydrated(HydrateRefused::Failed(_)) => (StatusCode::BAD_GATEWAY, "features_failed", Outcome::Shed),
            Self::NotHydrated(HydrateRefused::Late(_)) => (StatusCode::GATEWAY_TIMEOUT, "features_late", Outcome::Shed),
            Self::Shed { .. } | Self::ShedSlow { .. } => (StatusCode::SERVICE_UNAVAILABLE, "shed", Outcome::Shed),
            Self::Unsupported(_) => (StatusCode::BAD_REQUEST, "unsupported", Outcome::Rejected),
        };
        ErrorResponse { status, token, outcome }
    }

    /// Whether no further request can be expected, or told from what is left of this one, on the client's connection (HTTP/1.1).
    pub(crate) const fn ends_connection(&self) -> bool {
        match self {
            // where the next request begins is not clear (RFC 9112, 6.3)
            Self::Refused(_) | Self::RequestCut(_) | Self::RequestBody(_) => true,
            // the client is slow to send the rest
            Self::RequestStalled { .. } | Self::RequestSlow { .. } | Self::ShedSlow { .. } => true,
            // whoever balances between servers may find another one
            Self::Connect { .. } | Self::ConnectTimeout { .. } => true,
            _ => false,
        }
    }
}

/// Whether this process, or the machine, may open no further file.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let codes = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Returns the response for `error`, and how it is counted. With `closes`, it says that the client's connection ends after it.
#[must_use]
pub(crate) fn respond(error: &Error, closes: bool) -> (Response<Bytes>, Outcome) {
    let ErrorResponse { status, token, outcome } = error.response();
    let mut response = build(status, token, &error_text(error));
    match error {
        Error::GrpcOverHttp1 { .. } => tell_grpc(&mut response, UNIMPLEMENTED),
        Error::WouldBeLate { is_grpc: true, retry_ns, .. } => {
            tell_grpc(&mut response, RESOURCE_EXHAUSTED);
            response.headers_mut().insert(PUSHBACK, HeaderValue::from(retry_ns.div_ceil(1_000_000).max(1)));
        }
        Error::WouldBeLate { retry_ns, .. } => {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry_ns.div_ceil(1_000_000_000).max(1)));
        }
        Error::NotCached { is_grpc: true } => tell_grpc(&mut response, UNAVAILABLE),
        Error::Overdue { is_grpc: true } => tell_grpc(&mut response, DEADLINE_EXCEEDED),
        // as servers of those protocols say it
        Error::NotHydrated(refused) => {
            *response.body_mut() = Bytes::from(refused.body());
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        _ => {}
    }
    if closes {
        // HTTP/2 has no such field, and hyper removes it
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    (response, outcome)
}

fn build(status: StatusCode, token: &'static str, reason: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(format!("lapwing: {reason}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(ERROR_FIELD, HeaderValue::from_static(token));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Makes a response one that a gRPC client shows: it reads no other body than its own, and its own status before that of HTTP.
fn tell_grpc(response: &mut Response<Bytes>, status: &'static str) {
    let text = std::mem::take(response.body_mut());
    let mut message = String::new();
    for byte in text.trim_ascii() {
        match byte {
            b' '..=b'~' if *byte != b'%' => message.push(char::from(*byte)),
            _ => message.push_str(&format!("%{byte:02X}")),
        }
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static(status));
    if let Ok(message) = HeaderValue::try_from(message) {
        headers.insert("grpc-message", message);
    }
}

/// Returns the bytes of the response to a head that is not a request. Hyper's parser chooses the status, unless the head comes too slowly;
/// the text is Lapwing's.
#[must_use]
pub(crate) fn refusal(status: u16) -> Vec<u8> {
    let (phrase, token, reason) = match status {
        431 => (
            "Request Header Fields Too Large",
            "header_too_large",
            "the request's head is larger than max_header_bytes, or has more than 100 fields, or a Content-Length above 2^64-3",
        ),
        408 => ("Request Timeout", "header_timeout", "the request's head was not complete within client_header_timeout"),
        414 => ("URI Too Long", "uri_too_long", "the request's target is too long"),
        _ => ("Bad Request", "malformed_request", "the request is not HTTP"),
    };
    let body = format!("lapwing: {reason}\n");
    format!(
        "HTTP/1.1 {status} {phrase}\r\n{ERROR_FIELD}: {token}\r\ncontent-type: text/plain; charset=utf-8\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The field that marks Lapwing's own responses gets another name in those of an upstream, which may be behind a Lapwing too.
pub(crate) fn keep_error_field_apart(headers: &mut HeaderMap) {
    // to pass over a few names costs less than to look one up that is hardly ever there
    if headers.keys().any(|name| *name == OWN_ERROR)
        && let Some(said) = headers.remove(OWN_ERROR)
    {
        headers.insert(UPSTREAM_ERROR, said);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_is_told_from_unreachable() {
        let error = |kind| Error::Connect { upstream: "127.0.0.1:1".into(), cause: io::Error::from(kind) };
        let (response, outcome) = respond(&error(io::ErrorKind::ConnectionRefused), false);
        assert_eq!((response.status().as_u16(), outcome), (502, Outcome::Unreachable));
        assert_eq!(response.headers()[ERROR_FIELD], "connect_refused");
        assert!(std::str::from_utf8(response.body()).unwrap().contains("127.0.0.1:1"));
        assert_eq!(error(io::ErrorKind::HostUnreachable).response().token, "connect_failed");
    }

    #[test]
    fn a_grpc_client_is_told_in_its_own_words() {
        let (response, outcome) = respond(&Error::GrpcOverHttp1 { upstream: "m:1 %\u{e9}".into() }, false);
        let said = |name| response.headers()[name].to_str().unwrap();
        assert_eq!((response.status().as_u16(), said("grpc-status"), outcome), (502, "12", Outcome::Broken));
        assert!(said("grpc-message").contains("the upstream m:1 %25%C3%A9 does not speak"), "{}", said("grpc-message"));
        assert!(response.body().is_empty() && said("content-type") == "application/grpc");
    }

    #[test]
    fn a_refusal_for_want_of_features_is_json_and_no_fault_of_the_upstreams() {
        let missing = HydrateRefused::Missing { entities: 2, missed: 1, features: Vec::new() };
        for (refused, says, outcome) in [
            (missing, (422, "features_missing"), Outcome::Rejected),
            (HydrateRefused::Failed("it is away".into()), (502, "features_failed"), Outcome::Shed),
            (HydrateRefused::Late(std::time::Duration::from_millis(5)), (504, "features_late"), Outcome::Shed),
        ] {
            let (response, counted) = respond(&Error::NotHydrated(refused), false);
            let said = |name| response.headers()[name].to_str().unwrap();
            assert_eq!(((response.status().as_u16(), said(ERROR_FIELD)), counted), (says, outcome));
            assert!(response.body().starts_with(b"{\"error\":\"lapwing: ") && said("content-type") == "application/json");
        }
    }

    #[test]
    fn a_refusal_is_a_whole_response() {
        let text = String::from_utf8(refusal(431)).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 431 "));
        assert!(head.contains(&format!("content-length: {}", body.len())));
    }
}
