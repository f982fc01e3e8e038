//! Fields that belong to one connection (RFC 9110, 7.6.1).

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Frames and addresses a message: a `Connection` that names one of these does not remove it, or the next hop would read another message.
const NEVER_REMOVED: [HeaderName; 3] = [CONTENT_LENGTH, HOST, TRANSFER_ENCODING];

/// What one pass over the fields finds, so that what is not there is not looked for again: most messages have none of these.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FieldsFound {
    /// The approximate size of all fields on the wire.
    pub(crate) bytes: u64,
    pub(crate) hosts: usize,
    /// A `Connection` that says more than `keep-alive`, or one of several.
    connection: bool,
    /// One `Connection: keep-alive`.
    persists: bool,
    /// `Keep-Alive` or `Proxy-Connection`.
    keeps_alive: bool,
    pub(crate) te: bool,
    transfer_encoding: bool,
    pub(crate) upgrade: bool,
    /// A `Content-Length` that is more than digits: hyper takes a list of one length, repeated, from an upstream.
    pub(crate) odd_length: bool,
}

impl FieldsFound {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        for (name, value) in headers {
            let name = name.as_str();
            found.bytes += (name.len() + value.len() + 4) as u64;
            match name {
                "host" => found.hosts += 1,
                // most of those that there are: no need to take it apart
                "connection" if !found.persists && value.as_bytes().eq_ignore_ascii_case(b"keep-alive") => found.persists = true,
                "connection" => found.connection = true,
                "content-length" => found.odd_length |= !value.as_bytes().iter().all(u8::is_ascii_digit),
                "keep-alive" | "proxy-connection" => found.keeps_alive = true,
                "te" => found.te = true,
                "transfer-encoding" => found.transfer_encoding = true,
                "upgrade" => found.upgrade = true,
                _ => {}
            }
        }
        found
    }
}

/// What `Connection` says beside the names of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionOptions {
    /// `close`: the connection ends after this message.
    pub(crate) close: bool,
    /// `upgrade`: the field `Upgrade` is meant.
    pub(crate) upgrade: bool,
}

/// Removes `Connection`, the fields that it names, and those that belong to a connection by themselves, except `TE`, `Transfer-Encoding`
/// and `Upgrade`. Returns what it said.
pub(crate) fn remove_hop_fields(headers: &mut HeaderMap, found: FieldsFound) -> ConnectionOptions {
    let mut options = ConnectionOptions::default();
    if found.connection {
        let fields: Vec<HeaderValue> = headers.get_all(CONNECTION).iter().cloned().collect();
        headers.remove(CONNECTION);
        for option in fields.iter().flat_map(|field| field.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii) {
            options.close |= option.eq_ignore_ascii_case(b"close");
            options.upgrade |= option.eq_ignore_ascii_case(UPGRADE.as_str().as_bytes());
            match HeaderName::from_bytes(option) {
                Ok(name) if name != UPGRADE && name != TE && !NEVER_REMOVED.contains(&name) => drop(headers.remove(name)),
                _ => {}
            }
        }
    }
    if found.persists && !found.connection {
        headers.remove(CONNECTION);
    }
    if found.keeps_alive {
        headers.remove("keep-alive");
        headers.remove("proxy-connection");
    }
    options
}

/// Removes everything that belongs to one HTTP/1 connection and means nothing in HTTP/2 (RFC 9113, 8.2.2).
pub(crate) fn remove_connection_fields(headers: &mut HeaderMap) {
    remove_hop_fields(headers, FieldsFound::of(headers));
    headers.remove(TRANSFER_ENCODING);
    headers.remove(UPGRADE);
    keep_trailers_only(headers);
}

/// Leaves of `TE` what a proxy can pass on: that the sender takes trailers. Returns whether it does.
pub(crate) fn keep_trailers_only(headers: &mut HeaderMap) -> bool {
    let options = headers.get_all(TE).iter().flat_map(|field| field.as_bytes().split(|byte| *byte == b','));
    let takes_trailers = options.map(<[u8]>::trim_ascii).any(|option| option.eq_ignore_ascii_case(b"trailers"));
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    } else {
        headers.remove(TE);
    }
    takes_trailers
}

/// Takes `h2c` out of `Upgrade`: what followed would be HTTP/2 that nobody here reads, so requests in it would be neither checked nor
/// counted; who speaks HTTP/2 to Lapwing begins with it (RFC 9113, 3.1 and 3.3). Returns whether anything else is left to upgrade to.
pub(crate) fn remove_h2c(headers: &mut HeaderMap) -> bool {
    let is_h2c = |protocol: &[u8]| protocol.trim_ascii().eq_ignore_ascii_case(b"h2c");
    let protocols = |field: &HeaderValue| field.as_bytes().split(|byte| *byte == b',').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let fields = headers.get_all(UPGRADE);
    if !fields.iter().any(|field| field.as_bytes().split(|byte| *byte == b',').any(is_h2c)) {
        return true;
    }
    let mut others = fields.iter().flat_map(protocols).filter(|protocol| !is_h2c(protocol)).collect::<Vec<_>>().join(&b","[..]);
    let begin = others.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    others.drain(..begin);
    headers.remove("http2-settings");
    match HeaderValue::from_bytes(&others) {
        Ok(others) if !others.is_empty() => drop(headers.insert(UPGRADE, others)),
        _ => return false,
    }
    true
}

/// How the body of a message with these fields is delimited, as far as `Transfer-Encoding` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Exactly `chunked`.
    Chunked,
    /// Other codings, `chunked` the last of them and there once.
    Unknown,
    /// Anything else: where the body ends is anybody's guess.
    Ambiguous,
}

/// Reads `Transfer-Encoding`, if it is there (RFC 9112, 6.1 and 6.3). Lists over several lines are refused: peers differ in how they join
/// them.
pub(crate) fn coding(headers: &HeaderMap, found: FieldsFound) -> Option<Coding> {
    if !found.transfer_encoding {
        return None;
    }
    let mut fields = headers.get_all(TRANSFER_ENCODING).iter();
    let field = fields.next()?;
    if fields.next().is_some() {
        return Some(Coding::Ambiguous);
    }
    if field.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Some(Coding::Chunked);
    }
    let codings: Vec<&[u8]> = field.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect();
    let is_chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let is_token = |coding: &&[u8]| HeaderName::from_bytes(coding).is_ok() && !coding.eq_ignore_ascii_case(b"identity");
    Some(match codings.split_last() {
        Some((last, others)) if is_chunked(last) && !others.iter().any(is_chunked) && others.iter().all(is_token) => {
            Coding::Unknown
        }
        _ => Coding::Ambiguous,
    })
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
        let found = FieldsFound::of(&given);
        assert_eq!((found.hosts, found.te), (1, false));
        assert_eq!(remove_hop_fields(&mut given, found), ConnectionOptions { close: true, upgrade: true });
        assert_eq!(
            given,
            headers(&[("content-length", "3"), ("host", "m"), ("upgrade", "websocket"), ("trailer", "grpc-status")])
        );
    }

    #[test]
    fn a_connection_that_persists_leaves_nothing_and_hides_nothing() {
        let of = |fields: &[(&'static str, &'static str)]| {
            let mut given = headers(fields);
            let found = FieldsFound::of(&given);
            (remove_hop_fields(&mut given, found).close, given.len())
        };
        let (persists, closes, hop) = (("connection", "Keep-Alive"), ("connection", "close, x-hop"), ("x-hop", "1"));
        assert_eq!(of(&[persists, hop]), (false, 1));
        assert_eq!(of(&[persists, ("keep-alive", "timeout=5"), hop]), (false, 1));
        assert_eq!(of(&[persists, persists, hop]), (false, 1));
        assert_eq!(of(&[persists, closes, hop]), (true, 0));
        assert_eq!(of(&[closes, persists, hop]), (true, 0));
    }

    #[test]
    fn only_one_plain_chunked_is_clear() {
        let of = |fields: &[&'static str]| {
            let given = headers(&fields.iter().map(|field| ("transfer-encoding", *field)).collect::<Vec<_>>());
            coding(&given, FieldsFound::of(&given))
        };
        assert_eq!(of(&[]), None);
        assert_eq!((of(&["chunked"]), of(&["Chunked"])), (Some(Coding::Chunked), Some(Coding::Chunked)));
        assert_eq!((of(&["gzip, chunked"]), of(&["deflate,gzip ,chunked"])), (Some(Coding::Unknown), Some(Coding::Unknown)));
        for field in ["identity", "identity, chunked", "chunked, chunked", ",chunked", "chunked,", "gzip", "chunked, gzip", ""] {
            assert_eq!(of(&[field]), Some(Coding::Ambiguous), "{field:?}");
        }
        assert_eq!(of(&["chunked", "chunked"]), Some(Coding::Ambiguous));
        assert_eq!(of(&["gzip", "chunked"]), Some(Coding::Ambiguous));
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
