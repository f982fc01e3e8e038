//! A copy of a request's head, to send it once more over HTTP/2: h2 keeps the head itself.
//!
//! Every request pays for it, and few need it. So fields are copied as bytes, one after the other: to clone name and value of each costs
//! nearly twice as much, because the first clone of a value allocates what counts them.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};

/// Bytes that the fields of most requests fit in.
const USUAL: usize = 512;
/// Of a value's length, as it is written: the value is sensitive.
const SENSITIVE: u32 = 1 << 31;

/// The copy.
#[derive(Debug)]
pub(crate) struct HeadCopy {
    method: Method,
    uri: Uri,
    /// Of each: the lengths of name and value, name, value.
    fields: Vec<u8>,
}

impl HeadCopy {
    /// A copy of `head`.
    pub(crate) fn of(head: &Request<()>) -> Self {
        let mut fields = Vec::with_capacity(USUAL);
        for (name, value) in head.headers() {
            let (name, sensitive) = (name.as_str(), if value.is_sensitive() { SENSITIVE } else { 0 });
            fields.extend_from_slice(&length(name.as_bytes()).to_ne_bytes());
            fields.extend_from_slice(&(length(value.as_bytes()) | sensitive).to_ne_bytes());
            fields.extend_from_slice(name.as_bytes());
            fields.extend_from_slice(value.as_bytes());
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
fn length(part: &[u8]) -> u32 {
    u32::try_from(part.len()).unwrap_or(u32::MAX) & !SENSITIVE
}

/// Reads the first field of `fields`. Returns the others.
fn read_field<'f>(fields: &'f [u8], headers: &mut HeaderMap) -> Option<&'f [u8]> {
    let (name_length, rest) = fields.split_first_chunk()?;
    let (value_length, rest) = rest.split_first_chunk()?;
    let [name_length, value_length] = [name_length, value_length].map(|bytes| u32::from_ne_bytes(*bytes));
    let (name, rest) = rest.split_at_checked(usize::try_from(name_length).ok()?)?;
    let (value, rest) = rest.split_at_checked(usize::try_from(value_length & !SENSITIVE).ok()?)?;
    let mut value = HeaderValue::from_bytes(value).ok()?;
    value.set_sensitive(value_length & SENSITIVE != 0);
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
