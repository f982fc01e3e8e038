//! Fields that belong to one connection (RFC 9110, 7.6.1).

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Frames and addresses a message: a `Connection` that names one of these does not remove it, or the next hop would read another message.
const NEVER_REMOVED: [HeaderName; 3] = [CONTENT_LENGTH, HOST, TRANSFER_ENCODING];

/// What `Connection` says beside the names of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectionOptions {
    /// `upgrade`: the field `Upgrade` is meant.
    pub(super) upgrade: bool,
}

/// Removes `Connection`, the fields that it names, and those that belong to a connection by themselves, except `TE`, `Transfer-Encoding`
/// and `Upgrade`. Returns what it said.
pub(super) fn remove_hop_fields(headers: &mut HeaderMap) -> ConnectionOptions {
    let mut options = ConnectionOptions::default();
    if headers.contains_key(CONNECTION) {
        let fields: Vec<HeaderValue> = headers.get_all(CONNECTION).iter().cloned().collect();
        headers.remove(CONNECTION);
        for option in fields.iter().flat_map(|field| field.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii) {
            options.upgrade |= option.eq_ignore_ascii_case(UPGRADE.as_str().as_bytes());
            match HeaderName::from_bytes(option) {
                Ok(name) if name != UPGRADE && name != TE && !NEVER_REMOVED.contains(&name) => drop(headers.remove(name)),
                _ => {}
            }
        }
    }
    headers.remove(KEEP_ALIVE);
    headers.remove(PROXY_CONNECTION);
    options
}

/// Removes everything that belongs to one HTTP/1 connection and means nothing in HTTP/2 (RFC 9113, 8.2.2).
pub(crate) fn remove_connection_fields(headers: &mut HeaderMap) {
    remove_hop_fields(headers);
    headers.remove(TRANSFER_ENCODING);
    headers.remove(UPGRADE);
    keep_trailers_only(headers);
}

/// Leaves of `TE` what a proxy can pass on: that the sender takes trailers. Returns whether it does.
pub(super) fn keep_trailers_only(headers: &mut HeaderMap) -> bool {
    if !headers.contains_key(TE) {
        return false;
    }
    let options = headers.get_all(TE).iter().flat_map(|field| field.as_bytes().split(|byte| *byte == b','));
    let takes_trailers = options.map(<[u8]>::trim_ascii).any(|option| option.eq_ignore_ascii_case(b"trailers"));
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    } else {
        headers.remove(TE);
    }
    takes_trailers
}

/// How the body of a message with these fields is delimited, as far as `Transfer-Encoding` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// There is none.
    None,
    /// Exactly `chunked`.
    Chunked,
    /// Other codings, `chunked` the last of them and there once.
    Unknown,
    /// Anything else: where the body ends is anybody's guess.
    Ambiguous,
}

/// Reads `Transfer-Encoding` (RFC 9112, 6.1 and 6.3). Lists over several lines are refused: peers differ in how they join them.
pub(super) fn coding(headers: &HeaderMap) -> Coding {
    let mut fields = headers.get_all(TRANSFER_ENCODING).iter();
    let Some(field) = fields.next() else { return Coding::None };
    if fields.next().is_some() {
        return Coding::Ambiguous;
    }
    if field.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Coding::Chunked;
    }
    let codings: Vec<&[u8]> = field.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect();
    let is_chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let is_token = |coding: &&[u8]| HeaderName::from_bytes(coding).is_ok() && !coding.eq_ignore_ascii_case(b"identity");
    match codings.split_last() {
        Some((last, others)) if is_chunked(last) && !others.iter().any(is_chunked) && others.iter().all(is_token) => {
            Coding::Unknown
        }
        _ => Coding::Ambiguous,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
        of.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn what_connection_names_stays_here() {
        let mut given = headers(&[
            ("connection", "close, X-Hop, content-length"),
            ("connection", "host, upgrade,,authorization"),
            ("x-hop", "1"),
            ("content-length", "3"),
            ("host", "m"),
            ("upgrade", "websocket"),
            ("authorization", "Bearer x"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("trailer", "grpc-status"),
        ]);
        assert!(remove_hop_fields(&mut given).upgrade);
        assert_eq!(
            given,
            headers(&[("content-length", "3"), ("host", "m"), ("upgrade", "websocket"), ("trailer", "grpc-status")])
        );
    }

    #[test]
    fn only_one_plain_chunked_is_clear() {
        let of = |fields: &[&'static str]| {
            coding(&headers(&fields.iter().map(|field| ("transfer-encoding", *field)).collect::<Vec<_>>()))
        };
        assert_eq!(of(&[]), Coding::None);
        assert_eq!((of(&["chunked"]), of(&["Chunked"])), (Coding::Chunked, Coding::Chunked));
        assert_eq!((of(&["gzip, chunked"]), of(&["deflate,gzip ,chunked"])), (Coding::Unknown, Coding::Unknown));
        for field in ["identity", "identity, chunked", "chunked, chunked", ",chunked", "chunked,", "gzip", "chunked, gzip", ""] {
            assert_eq!(of(&[field]), Coding::Ambiguous, "{field:?}");
        }
        assert_eq!(of(&["chunked", "chunked"]), Coding::Ambiguous);
        assert_eq!(of(&["gzip", "chunked"]), Coding::Ambiguous);
    }

    #[test]
    fn of_te_only_trailers_pass() {
        let of = |field| {
            let mut headers = headers(&[("te", field)]);
            (keep_trailers_only(&mut headers), headers.get(TE).map(|te| te.to_str().unwrap().to_owned()))
        };
        assert_eq!(of("trailers"), (true, Some("trailers".to_owned())));
        assert_eq!(of("gzip, Trailers"), (true, Some("trailers".to_owned())));
        assert_eq!(of("gzip;q=0.5"), (false, None));
    }
}
