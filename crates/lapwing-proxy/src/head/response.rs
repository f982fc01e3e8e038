//! The head of an upstream's response over HTTP/1.

use http::header::{CONNECTION, CONTENT_LENGTH, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};

use super::hop::{Coding, FieldsFound, coding, remove_hop_fields};

/// Why an upstream's response is not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamHeadError {
    /// Where the body ends can be read in two ways.
    #[error("its response has both Content-Length and Transfer-Encoding")]
    TwoLengths,
    /// Its fields take more than `max_header_bytes`.
    #[error("its head is larger than max_header_bytes = {0}")]
    TooLarge(u64),
    /// `Transfer-Encoding` does not say where the body ends, or has a coding that only this hop could undo.
    #[error("its response has a Transfer-Encoding other than `chunked`")]
    Coding,
}

/// Checks the head of a response and makes it one that may be forwarded: of our own HTTP version, and with nothing of the upstream's
/// own connection; only a client of HTTP/1.0 (`is_old`), whose connection is made for one response, is told that it ends. Returns whether
/// the upstream closes its connection after this response (RFC 9112, 9.3).
///
/// # Errors
///
/// If two readers could understand different responses (RFC 9112, 6.3), or the fields take more than `limit` bytes.
pub(crate) fn normalise_response<B>(response: &mut Response<B>, limit: u64, is_old: bool) -> Result<bool, UpstreamHeadError> {
    let headers = response.headers();
    let found = FieldsFound::of(headers);
    if found.bytes > limit {
        return Err(UpstreamHeadError::TooLarge(limit));
    }
    match coding(headers, found) {
        None => {}
        Some(Coding::Chunked) if headers.contains_key(CONTENT_LENGTH) => return Err(UpstreamHeadError::TwoLengths),
        Some(Coding::Chunked) => {}
        Some(Coding::Unknown | Coding::Ambiguous) => return Err(UpstreamHeadError::Coding),
    }
    if found.odd_length {
        keep_one_length(response.headers_mut());
    }
    let options = remove_hop_fields(response.headers_mut(), found);
    let closes = options.close || response.version() < Version::HTTP_11;
    // a body that lasts until the connection ends is passed on in chunks, so that the client sees whether it was cut off
    *response.version_mut() = Version::HTTP_11;
    let upgrades = matches!(response.status(), StatusCode::SWITCHING_PROTOCOLS | StatusCode::UPGRADE_REQUIRED);
    let headers = response.headers_mut();
    if found.upgrade && upgrades {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    } else if found.upgrade && options.upgrade {
        headers.remove(UPGRADE);
    }
    if closes && is_old {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(closes)
}

/// Replaces a list that repeats one length by that length (RFC 9110, 8.6); hyper has refused all others.
fn keep_one_length(headers: &mut HeaderMap) {
    let list = headers.get(CONTENT_LENGTH).map(HeaderValue::as_bytes).unwrap_or_default();
    let length = list.split(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
    if let Ok(length) = HeaderValue::from_bytes(length) {
        headers.insert(CONTENT_LENGTH, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalised(status: u16, fields: &[(&str, &str)]) -> Result<Vec<(String, String)>, UpstreamHeadError> {
        let mut response = Response::builder().status(status).version(Version::HTTP_10);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        let mut response = response.body(()).unwrap();
        normalise_response(&mut response, 64, false)?;
        assert_eq!(response.version(), Version::HTTP_11);
        Ok(response.headers().iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect())
    }

    #[test]
    fn a_response_has_one_length() {
        let both = [("content-length", "3"), ("transfer-encoding", "chunked")];
        assert_eq!(normalised(200, &both), Err(UpstreamHeadError::TwoLengths));
        assert_eq!(normalised(200, &[("transfer-encoding", "gzip, chunked")]), Err(UpstreamHeadError::Coding));
        assert!(normalised(200, &both[..1]).is_ok() && normalised(200, &both[1..]).is_ok());
        assert_eq!(normalised(200, &[("x-a", &"a".repeat(64))]), Err(UpstreamHeadError::TooLarge(64)));
    }

    #[test]
    fn a_list_of_one_length_becomes_that_length() {
        let of = |list| normalised(200, &[("content-length", list)]).unwrap();
        for list in ["3", "3, 3", "3,3 ,3"] {
            assert_eq!(of(list), [("content-length".to_owned(), "3".to_owned())], "{list}");
        }
    }

    #[test]
    fn the_upstreams_connection_stays_its_own() {
        let given = [("connection", "close, x-hop"), ("x-hop", "1"), ("server", "m")];
        assert_eq!(normalised(200, &given).unwrap(), [("server".to_owned(), "m".to_owned())]);
        let upgrade = [("connection", "upgrade"), ("upgrade", "h2c")];
        assert!(normalised(200, &upgrade).unwrap().is_empty());
        assert_eq!(normalised(426, &upgrade).unwrap().len(), 2);
        assert_eq!(normalised(101, &upgrade).unwrap().len(), 2);
    }
}
