//! The headers of every message to a collector: checked once, marked as sensitive, never logged.

use std::collections::BTreeMap;

use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, TE, TRANSFER_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};

use lapwing_settings::Secret;

const OURS: [HeaderName; 7] = [CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, TE, TRANSFER_ENCODING];

/// Why messages cannot be sent to the collector as configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The name is not a header name, or belongs to the protocol's framing.
    #[error("header name {name:?}: {reason}")]
    HeaderName {
        /// As configured.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The value has line breaks or other control characters. The error does not show it.
    #[error("the value of header {name:?} has characters that no header may have")]
    HeaderValue {
        /// The header.
        name: String,
    },
    /// The collector's address is not a URI.
    #[error("collector {address:?} cannot be connected to: {reason}")]
    Address {
        /// As configured.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Checks the headers, and adds Lapwing's `user-agent` unless they have one.
pub(crate) fn checked(headers: BTreeMap<String, Secret>) -> Result<HeaderMap, Error> {
    let mut out = HeaderMap::with_capacity(headers.len() + 1);
    out.insert(USER_AGENT, HeaderValue::from_static(concat!("lapwing/", env!("CARGO_PKG_VERSION"))));
    for (name, secret) in headers {
        let fault = |reason| Error::HeaderName { name: name.clone(), reason };
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| fault("is not a header name"))?;
        if OURS.contains(&key) || key.as_str().starts_with("grpc-") {
            return Err(fault("is set by the protocol itself"));
        }
        if key.as_str().ends_with("-bin") {
            return Err(fault("would have to be binary in gRPC, which is not supported"));
        }
        let mut value = HeaderValue::from_str(secret.expose()).map_err(|_| Error::HeaderValue { name: name.clone() })?;
        value.set_sensitive(true);
        out.insert(key, value);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, value: &str) -> Result<HeaderMap, Error> {
        checked(BTreeMap::from([(name.to_owned(), Secret::new(value))]))
    }

    #[test]
    fn good_headers_are_kept_as_secrets_and_bad_ones_named_without_their_value() {
        let headers = check("Authorization", "Bearer s3cret").unwrap();
        assert_eq!(headers["authorization"], "Bearer s3cret");
        assert!(!format!("{headers:?}").contains("s3cret"));
        assert!(check("a b", "x").unwrap_err().to_string().contains("a b"));
        assert!(check("content-type", "text/plain").is_err() && check("grpc-timeout", "1S").is_err());
        let error = check("authorization", "s3cret\n").unwrap_err().to_string();
        assert!(error.contains("authorization") && !error.contains("s3cret"), "{error}");
    }
}
