//! Converts a request's head between HTTP versions, where the upstream speaks another than the client.

use http::header::{self, HeaderMap, HeaderValue};
use http::uri::{Authority, Scheme};
use http::{Method, Request, Uri, Version};
use http_body::Body;

use crate::head::remove_connection_fields;
use lapwing_net::Target;

/// Converts HTTP/2 to HTTP/1.1: the authority becomes `Host`, split cookies are joined (RFC 9113, 8.2.3),
/// and a body without a length goes in chunks.
pub(crate) fn to_h1<B: Body>(request: &mut Request<B>) {
    if request.version() != Version::HTTP_2 {
        return;
    }
    *request.version_mut() = Version::HTTP_11;
    let uri = std::mem::take(request.uri_mut());
    let authority = uri.authority().map(Authority::as_str).and_then(|a| HeaderValue::from_str(a).ok());
    *request.uri_mut() = uri.into_parts().path_and_query.map_or_else(Uri::default, Uri::from);
    // hyper frames it so for other methods; a `GET` of which it is not told it sends without its body
    let is_taken_for_empty = matches!(*request.method(), Method::GET | Method::HEAD) && !request.body().is_end_stream();
    let headers = request.headers_mut();
    if is_taken_for_empty && !headers.contains_key(header::CONTENT_LENGTH) {
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if let Some(host) = authority {
        headers.insert(header::HOST, host);
    }
    join_cookies(headers);
}

fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(header::COOKIE, joined);
    }
}

/// Converts HTTP/1.1 to HTTP/2: `Host` becomes the authority, and the connection's own fields are removed.
pub(crate) fn to_h2<B>(request: &mut Request<B>, target: &Target) {
    if request.version() == Version::HTTP_2 && request.uri().authority().is_some() {
        return;
    }
    *request.version_mut() = Version::HTTP_2;
    let headers = request.headers_mut();
    remove_connection_fields(headers);
    let host = headers.remove(header::HOST);
    let authority = request.uri().authority().cloned();
    let authority = authority
        .or_else(|| host.as_ref().and_then(|h| Authority::try_from(h.as_bytes()).ok()))
        .or_else(|| Authority::try_from(target.authority()).ok());
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = authority;
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderName;
    use http_body_util::Empty;

    use super::*;

    #[test]
    fn an_h2_head_becomes_an_h1_head() {
        let mut r = Request::builder()
            .version(Version::HTTP_2)
            .uri("http://model:8000/v2/x?y=1")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .body(Empty::<Bytes>::new())
            .unwrap();
        to_h1(&mut r);
        assert!(!r.headers().contains_key("transfer-encoding"));
        assert_eq!((r.version(), r.uri().to_string().as_str()), (Version::HTTP_11, "/v2/x?y=1"));
        assert_eq!(r.headers()["host"], "model:8000");
        assert_eq!(r.headers()["cookie"], "a=1; b=2");
    }

    #[test]
    fn an_h1_head_becomes_an_h2_head() {
        let mut r = Request::builder()
            .uri("/v2/x?y=1")
            .header("host", "model:8000")
            .header("connection", "keep-alive, X-Hop")
            .header("x-hop", "1")
            .header("te", "gzip")
            .header("x-end", "2")
            .body(())
            .unwrap();
        to_h2(&mut r, &Target::Tcp("127.0.0.1:1".into()));
        assert_eq!(r.uri().to_string(), "http://model:8000/v2/x?y=1");
        let names: Vec<_> = r.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["x-end"]);
    }
}
