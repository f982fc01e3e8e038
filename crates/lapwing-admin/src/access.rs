//! Who may read: figures are open to all, unless there is an admin token, which is then required; what users sent (recordings,
//! kept samples) only to a process on this machine, or with the token.
//!
//! Without a token the connection must come from loopback, and neither a browser nor a proxy may be behind it, because either could
//! ask in another's name: no `Origin`, `Forwarded` and `X-Forwarded-For`, and a `Host` that is an address or `localhost` (after DNS
//! rebinding a browser sends the rebound name).

use axum::http::{HeaderMap, HeaderName, StatusCode, header};

use lapwing_net::Peer;
use lapwing_settings::AdminToken;

/// Why what users sent is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessDenied {
    /// 401 for a wrong token, 403 where there is none.
    pub(crate) status: StatusCode,
    pub(crate) reason: &'static str,
}

/// Whether `head` shows `token`; `None` if it shows nothing.
fn shows(token: &AdminToken, head: &HeaderMap) -> Option<Result<(), AccessDenied>> {
    let given = head.get(header::AUTHORIZATION)?.as_bytes();
    let bearer = given.split_at_checked(b"Bearer ".len()).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "));
    let is_right = bearer.is_some_and(|(_, given)| token.is(given));
    let reason = "the token in Authorization is not the one of admin_token or admin_token_file";
    Some(is_right.then_some(()).ok_or(AccessDenied { status: StatusCode::UNAUTHORIZED, reason }))
}

/// Whether who sent `head` may read anything, where the token is asked for everything.
pub(crate) fn may_read(token: &AdminToken, head: &HeaderMap) -> Result<(), AccessDenied> {
    let reason = "this Lapwing has an admin token: send Authorization: Bearer and the token (a command of Lapwing: --token-file FILE; \
                  Prometheus: authorization.credentials_file)";
    shows(token, head).unwrap_or(Err(AccessDenied { status: StatusCode::UNAUTHORIZED, reason }))
}

/// Whether this peer, who sent `head`, may read payloads.
pub(crate) fn may_read_payloads(token: Option<&AdminToken>, peer: Option<Peer>, head: &HeaderMap) -> Result<(), AccessDenied> {
    if let Some(shown) = token.and_then(|token| shows(token, head)) {
        return shown;
    }
    let reason = if !peer.is_some_and(|Peer(address)| address.ip().to_canonical().is_loopback()) {
        "only a process on the same machine may read what users sent, or one with the token of admin_token_file: ask 127.0.0.1, in \
         the pod or by a port-forward, or send Authorization: Bearer and the token"
    } else if is_from_afar(head) {
        "neither a browser nor a proxy may read what users sent without the token of admin_token_file"
    } else {
        return Ok(());
    };
    Err(AccessDenied { status: StatusCode::FORBIDDEN, reason })
}

/// Whether a browser or a proxy is behind the request.
fn is_from_afar(head: &HeaderMap) -> bool {
    let signs = [header::ORIGIN, header::FORWARDED, HeaderName::from_static("x-forwarded-for")];
    signs.iter().any(|name| head.contains_key(name)) || head.get(header::HOST).is_some_and(|host| !is_local(host.as_bytes()))
}

/// Whether `host` is an address or `localhost`, with or without a port.
fn is_local(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Option<Peer> {
        Some(Peer(format!("{address}:1").parse().unwrap()))
    }

    fn with(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn without_a_token_only_a_process_on_this_machine_may() {
        for own in ["127.0.0.1", "127.8.9.1", "[::1]", "[::ffff:127.0.0.1]"] {
            assert_eq!(may_read_payloads(None, peer(own), &HeaderMap::new()), Ok(()), "{own}");
        }
        for other in ["10.0.0.5", "192.168.1.2", "[::2]", "[::ffff:10.0.0.5]", "0.0.0.0"] {
            let denied = may_read_payloads(None, peer(other), &HeaderMap::new()).unwrap_err();
            assert_eq!(denied.status, StatusCode::FORBIDDEN, "{other}");
        }
        assert!(may_read_payloads(None, None, &HeaderMap::new()).is_err(), "an unknown peer");
        for behind in ["origin", "forwarded", "x-forwarded-for"] {
            assert!(may_read_payloads(None, peer("127.0.0.1"), &with(behind, "x")).is_err(), "{behind}");
        }
        for (host, is_allowed) in [
            ("127.0.0.1:9464", true),
            ("[::1]:9464", true),
            ("localhost", true),
            ("LOCALHOST:1", true),
            ("rebound.example:9464", false),
            ("localhost.example", false),
            ("", false),
        ] {
            assert_eq!(may_read_payloads(None, peer("127.0.0.1"), &with("host", host)).is_ok(), is_allowed, "{host}");
        }
    }

    #[test]
    fn where_the_token_is_asked_for_everything_nobody_reads_without() {
        let token = AdminToken::parse("0123456789abcdef").unwrap();
        assert_eq!(may_read(&token, &with("authorization", "Bearer 0123456789abcdef")), Ok(()));
        for head in [HeaderMap::new(), with("authorization", "Bearer 0123456789abcdee"), with("authorization", "Basic x")] {
            let denied = may_read(&token, &head).unwrap_err();
            assert_eq!(denied.status, StatusCode::UNAUTHORIZED);
            assert!(!denied.reason.contains("0123456789"), "{}", denied.reason);
        }
    }

    #[test]
    fn the_token_opens_from_anywhere_and_a_wrong_one_nothing() {
        let token = AdminToken::parse("0123456789abcdef").unwrap();
        let shown = |value: &str| {
            let mut head = with("authorization", value);
            head.insert("origin", "http://10.0.0.1".parse().unwrap());
            head
        };
        for right in ["Bearer 0123456789abcdef", "bearer 0123456789abcdef"] {
            assert_eq!(may_read_payloads(Some(&token), peer("10.0.0.5"), &shown(right)), Ok(()));
        }
        for wrong in [
            "Bearer 0123456789abcdee",
            "Bearer ",
            "Bearer",
            "0123456789abcdef",
            "Basic 0123456789abcdef",
            "Bearer  0123456789abcdef",
        ] {
            // also on this machine: who shows a token means it
            for address in ["10.0.0.5", "127.0.0.1"] {
                let denied = may_read_payloads(Some(&token), peer(address), &shown(wrong)).unwrap_err();
                assert_eq!(denied.status, StatusCode::UNAUTHORIZED, "{wrong}");
                assert!(!denied.reason.contains("0123456789abcdef"));
            }
        }
        assert!(may_read_payloads(Some(&token), peer("10.0.0.5"), &HeaderMap::new()).is_err());
        // without a token to compare it with, it changes nothing
        assert!(may_read_payloads(None, peer("10.0.0.5"), &with("authorization", "Bearer 0123456789abcdef")).is_err());
        assert_eq!(may_read_payloads(None, peer("127.0.0.1"), &with("authorization", "Basic x")), Ok(()));
    }
}
