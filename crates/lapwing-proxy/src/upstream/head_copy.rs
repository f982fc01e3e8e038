//! A copy of a request's head, to send it once more over HTTP/2: h2 keeps the head itself.
//!
//! Every request pays for it, and few need it. So fields are copied as bytes, one after the other: to clone name and value of each costs
//! nearly twice as much, because the first clone of a value allocates what counts them.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};

/// Bytes that the fields of most requests fit in.
const USUAL: usize = 512;
/// Of a value's length, as it is written: the value is sensitive.
const SENSITIVE: u64 = 1 << 31;

/// The copy.
#[derive(Debug)]
pub(crate) struct HeadCopy {
    method: Method,
    uri: Uri,
    /// Of each: the lengths of name and value in 32 bits each, name, value.
    fields: Vec<u8>,
}

impl HeadCopy {
    /// A copy of `head`.
    pub(crate) fn of(head: &Request<()>) -> Self {
        let mut fields = Vec::with_capacity(USUAL);
        for (name, value) in head.headers() {
            let (name, sensitive) = (name.as_str().as_bytes(), if value.is_sensitive() { SENSITIVE } else { 0 });
            let value = value.as_bytes();
            let lengths = length(name) << 32 | length(value) | sensitive;
            fields.extend_from_slice(&lengths.to_ne_bytes());
            fields.extend_from_slice(name);
            fields.extend_from_slice(value);
        }
        Self { method: head.method().clone(), uri: head.uri().clone(), fields }
    }

    /// The head; `None` if a field does not fit into a head any more, which it did.
    pub(crate) fn into_head(self) -> Option<Request<()>> {
        let mut head = Request::new(());
        *head.method_mut() = self.method;
        *head.uri_mut() = self.uri;
        *head.version_mut() = Version::HTTP_2;
        let mut rest = &self.fields[..];
        while !rest.is_empty() {
            rest = read_field(rest, head.headers_mut())?;
        }
        Some(head)
    }
}

/// Of a part of a field, which is far shorter than the greatest.
const fn length(part: &[u8]) -> u64 {
    part.len() as u64 & (SENSITIVE - 1)
}

/// Reads the first field of `fields`. Returns the others.
fn read_field<'f>(fields: &'f [u8], headers: &mut HeaderMap) -> Option<&'f [u8]> {
    let (lengths, rest) = fields.split_first_chunk()?;
    let lengths = u64::from_ne_bytes(*lengths);
    let (name, rest) = rest.split_at_checked(usize::try_from(lengths >> 32).ok()?)?;
    let (value, rest) = rest.split_at_checked(usize::try_from(lengths & (SENSITIVE - 1)).ok()?)?;
    let mut value = HeaderValue::from_bytes(value).ok()?;
    value.set_sensitive(lengths & SENSITIVE != 0);
    headers.try_append(HeaderName::from_bytes(name).ok()?, value).ok()?;
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_comes_back_whole() {
        let mut head = Request::builder()
            .method("POST")
            .uri("http://m:8000/v2/models/x/infer?y=1")
            .version(Version::HTTP_2)
            .header("te", "trailers")
            .header("x-user", &b"\xe4\xf6\xfc"[..])
            .header("x-none", "")
            .header("x-user", "second")
            .body(())
            .unwrap();
        let mut token = HeaderValue::from_static("Bearer abc");
        token.set_sensitive(true);
        head.headers_mut().insert("authorization", token);
        let again = HeadCopy::of(&head).into_head().unwrap();
        assert_eq!((again.method(), again.uri(), again.version()), (head.method(), head.uri(), head.version()));
        assert_eq!(again.headers(), head.headers());
        assert!(again.headers()["authorization"].is_sensitive() && !again.headers()["te"].is_sensitive());
    }

    #[test]
    fn no_field_is_none() {
        let head = Request::builder().uri("/").body(()).unwrap();
        assert!(HeadCopy::of(&head).into_head().unwrap().headers().is_empty());
    }
}
