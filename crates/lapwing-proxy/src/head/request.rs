//! The head of a client's request.

use http::header::{CONNECTION, HOST, UPGRADE};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version};
use hyper::upgrade::OnUpgrade;

use super::hop::{Coding, FieldsFound, coding, keep_trailers_only, remove_h2c, remove_hop_fields};

/// Why a request's head is not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedHead {
    /// `Transfer-Encoding` does not say where the body ends.
    #[error("Transfer-Encoding must be exactly `chunked`, in one line")]
    Framing,
    /// The body has codings beside `chunked`.
    #[error("Transfer-Encoding has codings other than `chunked`, which are not supported")]
    Coding,
    /// HTTP/1.0 has no `Transfer-Encoding`.
    #[error("HTTP/1.0 has no Transfer-Encoding")]
    CodingInHttp10,
    /// Not exactly one `Host`.
    #[error("a request has exactly one Host")]
    Host,
    /// `Host`, or the target's host, is not a host.
    #[error("Host is not a host with or without a port")]
    HostSyntax,
    /// The target has a form that its method does not have.
    #[error("a target begins with `/` or is a whole URI; `*` is for OPTIONS")]
    Target,
}

/// Checks the head of a client's request and makes it one that may be forwarded: one host, in the form that servers expect, and
/// nothing of the client's own connection.
///
/// # Errors
///
/// If two readers could understand different requests.
pub(crate) fn normalise_request<B>(request: &mut Request<B>) -> Result<(), RefusedHead> {
    if request.version() == Version::HTTP_2 {
        return normalise_h2(request);
    }
    let found = FieldsFound::of(request.headers());
    match (coding(request.headers(), found), request.version()) {
        (None, _) => {}
        (Some(Coding::Ambiguous), _) => return Err(RefusedHead::Framing),
        (Some(_), Version::HTTP_09 | Version::HTTP_10) => return Err(RefusedHead::CodingInHttp10),
        (Some(Coding::Unknown), _) => return Err(RefusedHead::Coding),
        (Some(Coding::Chunked), _) => {}
    }
    // a server must refuse a request without one `Host`; HTTP/1.0 has none (RFC 9112, 3.2)
    match found.hosts {
        1 => check_host(request.headers())?,
        0 if request.version() < Version::HTTP_11 => {}
        _ => return Err(RefusedHead::Host),
    }
    if request.uri().authority().is_some() && *request.method() != Method::CONNECT {
        to_origin_form(request)?;
    }
    check_asterisk(request)?;
    let is_current = request.version() >= Version::HTTP_11;
    let headers = request.headers_mut();
    let options = remove_hop_fields(headers, found);
    // HTTP/1.0 has no upgrades (RFC 9110, 7.8)
    let upgrades = options.upgrade && found.upgrade && is_current && remove_h2c(headers);
    if found.upgrade && !upgrades {
        headers.remove(UPGRADE);
        // an upstream that switches all the same does so unasked
        request.extensions_mut().remove::<OnUpgrade>();
    }
    let headers = request.headers_mut();
    let takes_trailers = found.te && keep_trailers_only(headers);
    let option = match (upgrades, takes_trailers) {
        (false, false) => return Ok(()),
        (true, false) => "Upgrade",
        (false, true) => "TE",
        (true, true) => "Upgrade, TE",
    };
    headers.insert(CONNECTION, HeaderValue::from_static(option));
    Ok(())
}

fn check_host(headers: &HeaderMap) -> Result<(), RefusedHead> {
    headers.get(HOST).is_none_or(is_host).then_some(()).ok_or(RefusedHead::HostSyntax)
}

/// Whether this is a host with or without a port, or empty (RFC 9110, 7.2: of a target without an authority).
fn is_host(host: &HeaderValue) -> bool {
    let host = host.as_bytes();
    let mut parts = host.splitn(2, |byte| *byte == b':');
    let is_name =
        |name: &[u8]| name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-')) && !name.is_empty();
    let is_port = |port: &[u8]| port.iter().all(u8::is_ascii_digit) && !port.is_empty();
    // nearly all are like this, and parsing one as an authority copies it
    let is_plain = parts.next().is_some_and(is_name) && parts.next().is_none_or(is_port);
    is_plain || host.is_empty() || Authority::try_from(host).is_ok_and(|host| is_host_and_port(&host))
}

/// Whether an authority has no user and, after its host, nothing or a port of digits (RFC 3986, 3.2.3), which `http` does not check.
fn is_host_and_port(authority: &Authority) -> bool {
    let (text, host) = (authority.as_str(), authority.host());
    let port = text.strip_prefix(host);
    !host.is_empty()
        && port.is_some_and(|port| {
            port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
        })
}

/// A target with a scheme and a host, as proxies are asked: its host counts, whatever `Host` says (RFC 9112, 3.2.2). A host without a
/// scheme is the target of CONNECT only (RFC 9112, 3.2.3).
fn to_origin_form<B>(request: &mut Request<B>) -> Result<(), RefusedHead> {
    let uri = std::mem::take(request.uri_mut()).into_parts();
    if uri.scheme.is_none() {
        return Err(RefusedHead::Target);
    }
    let host = uri.authority.as_ref().filter(|host| is_host_and_port(host)).map(Authority::as_str);
    let host = host.and_then(|host| HeaderValue::from_str(host).ok()).ok_or(RefusedHead::HostSyntax)?;
    request.headers_mut().insert(HOST, host);
    *request.uri_mut() = Uri::from(uri.path_and_query.unwrap_or(PathAndQuery::from_static("/")));
    Ok(())
}

/// `*` asks about the server as a whole, which only OPTIONS does (RFC 9112, 3.2.4; RFC 9113, 8.3.1).
fn check_asterisk<B>(request: &Request<B>) -> Result<(), RefusedHead> {
    let is_asterisk = request.uri().path_and_query().is_some_and(|target| target.as_str() == "*");
    if is_asterisk && *request.method() != Method::OPTIONS { Err(RefusedHead::Target) } else { Ok(()) }
}

/// RFC 9113, 8.3.1: `:authority` says which host is meant; a `host` beside it would be a second one.
fn normalise_h2<B>(request: &mut Request<B>) -> Result<(), RefusedHead> {
    check_asterisk(request)?;
    if request.uri().authority().is_some() {
        request.headers_mut().remove(HOST);
        return Ok(());
    }
    match request.headers().get_all(HOST).iter().count() {
        0 | 1 => check_host(request.headers()),
        _ => Err(RefusedHead::Host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalised(version: Version, target: &str, fields: &[(&str, &str)]) -> Result<Request<()>, RefusedHead> {
        let mut request = Request::builder().method("POST").version(version).uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).unwrap();
        normalise_request(&mut request).map(|()| request)
    }

    fn fields(request: &Request<()>) -> Vec<(&str, &str)> {
        request.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect()
    }

    #[test]
    fn one_host_and_one_way_to_read_it() {
        let of = |fields: &[(&str, &str)]| normalised(Version::HTTP_11, "/x", fields).map(|_| ());
        assert_eq!(of(&[("host", "m:8000")]), Ok(()));
        assert_eq!(of(&[("host", "")]), Ok(()));
        for host in ["[::1]:80", "[::1]", "m:", "under_score:80"] {
            assert_eq!(of(&[("host", host)]), Ok(()), "{host}");
        }
        assert_eq!(of(&[]), Err(RefusedHead::Host));
        assert_eq!(of(&[("host", "a"), ("host", "a")]), Err(RefusedHead::Host));
        for host in ["a b", "a/b", "user@a", "a?b", "a,b c", "a:b", "a:1:2", ":80", "[::1]x", "[::1]:x", "a:-1", "a_b:c"] {
            assert_eq!(of(&[("host", host)]), Err(RefusedHead::HostSyntax), "{host}");
        }
        assert!(normalised(Version::HTTP_10, "/x", &[]).is_ok());
        for (coding, refused) in [("gzip, chunked", RefusedHead::Coding), ("identity", RefusedHead::Framing)] {
            assert_eq!(of(&[("host", "a"), ("transfer-encoding", coding)]), Err(refused));
        }
        let old = normalised(Version::HTTP_10, "/x", &[("transfer-encoding", "chunked")]);
        assert_eq!(old.map(|_| ()), Err(RefusedHead::CodingInHttp10));
    }

    #[test]
    fn the_targets_host_wins() {
        let request = normalised(Version::HTTP_11, "http://model:8000/v2/x?y=1", &[("host", "other")]).unwrap();
        assert_eq!((request.uri().to_string().as_str(), fields(&request)), ("/v2/x?y=1", vec![("host", "model:8000")]));
        let request = normalised(Version::HTTP_11, "http://model", &[("host", "model")]).unwrap();
        assert_eq!(request.uri().to_string(), "/");
        let request = normalised(Version::HTTP_2, "http://model/x", &[("host", "other")]).unwrap();
        assert!(fields(&request).is_empty());
    }

    #[test]
    fn a_target_has_the_form_of_its_method() {
        let of = |method, target: &str| {
            let mut request = Request::builder().method(method).uri(target).header("host", "m").body(()).unwrap();
            normalise_request(&mut request).map(|()| request.uri().to_string())
        };
        assert_eq!(of(Method::OPTIONS, "*"), Ok("*".to_owned()));
        assert_eq!(of(Method::GET, "/*"), Ok("/*".to_owned()));
        for target in ["*", "x", "m:80", "http://a:b/x", "http://u@a/x"] {
            assert!(of(Method::GET, target).is_err(), "{target}");
        }
        assert_eq!(of(Method::OPTIONS, "m:80"), Err(RefusedHead::Target));
        assert_eq!(of(Method::GET, "http://m?a=1"), Ok("/?a=1".to_owned()));
        assert!(of(Method::CONNECT, "m:80").is_ok(), "it is refused as a tunnel");
        let h2 = |method: Method| {
            let mut request = Request::builder().method(method).version(Version::HTTP_2).uri("*").body(()).unwrap();
            normalise_request(&mut request)
        };
        assert_eq!((h2(Method::OPTIONS), h2(Method::GET)), (Ok(()), Err(RefusedHead::Target)));
    }

    #[test]
    fn an_upgrade_to_h2c_stays_here() {
        let upgraded = |upgrade: &str| {
            let fields =
                [("host", "m"), ("connection", "Upgrade, HTTP2-Settings"), ("upgrade", upgrade), ("http2-settings", "AA")];
            let request = normalised(Version::HTTP_11, "/x", &fields).unwrap();
            assert!(!request.headers().contains_key("http2-settings"));
            let upgrade = request.headers().get(UPGRADE).map(|upgrade| upgrade.to_str().unwrap().to_owned());
            assert_eq!(request.headers().contains_key(CONNECTION), upgrade.is_some());
            upgrade
        };
        assert_eq!((upgraded("h2c"), upgraded("H2C"), upgraded("h2c , h2c")), (None, None, None));
        assert_eq!(upgraded("websocket,  a/1"), Some("websocket,  a/1".to_owned()), "as it came");
        assert_eq!(upgraded("h2c, websocket, a/1"), Some("websocket, a/1".to_owned()));
        let old = normalised(Version::HTTP_10, "/x", &[("connection", "upgrade"), ("upgrade", "websocket")]);
        assert!(old.unwrap().headers().is_empty(), "HTTP/1.0 has no upgrades");
    }

    #[test]
    fn the_clients_connection_stays_its_own() {
        let request = normalised(
            Version::HTTP_11,
            "/x",
            &[
                ("host", "m"),
                ("connection", "keep-alive, X-Hop, traceparent"),
                ("x-hop", "1"),
                ("upgrade", "h2c"),
                ("traceparent", "00"),
            ],
        );
        assert_eq!(fields(&request.unwrap()), [("host", "m")]);
        let request = normalised(
            Version::HTTP_11,
            "/x",
            &[
                ("host", "m"),
                ("connection", "keep-alive, upgrade"),
                ("upgrade", "websocket"),
                ("te", "trailers, gzip"),
                ("trailer", "x"),
            ],
        );
        let mut passed = request.as_ref().map(fields).unwrap();
        passed.sort_unstable();
        let expected =
            [("connection", "Upgrade, TE"), ("host", "m"), ("te", "trailers"), ("trailer", "x"), ("upgrade", "websocket")];
        assert_eq!(passed, expected);
    }
}
