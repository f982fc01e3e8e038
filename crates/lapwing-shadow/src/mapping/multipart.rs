//! One part of a form (`multipart/form-data`), found by its name. The body is in memory and bounded; a part is a slice of it.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use memchr::memmem;

/// The most bytes of a boundary, by RFC 2046.
const MAX_BOUNDARY: usize = 70;

/// The content of the part of this name.
///
/// # Errors
///
/// Why there is none.
pub(crate) fn part(headers: &HeaderMap, body: &Bytes, name: &str) -> Result<Bytes, &'static str> {
    let boundary = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).and_then(boundary);
    let boundary = boundary.ok_or("the request is no form in parts")?;
    let delimiter = format!("\r\n--{boundary}");
    // the first delimiter may have no line before it
    let mut at = match body.strip_prefix(&delimiter.as_bytes()[2..]) {
        Some(_) => delimiter.len() - 2,
        None => memmem::find(body, delimiter.as_bytes()).ok_or("the form has no parts")? + delimiter.len(),
    };
    let finder = memmem::Finder::new(delimiter.as_bytes());
    loop {
        let rest = &body[at..];
        if rest.starts_with(b"--") {
            return Err("the form has no such part");
        }
        let end = finder.find(rest).ok_or("the form is cut off")?;
        let head_end = memmem::find(&rest[..end], b"\r\n\r\n").ok_or("a part has no head")?;
        if is_named(&rest[..head_end], name) {
            return Ok(body.slice(at + head_end + 4..at + end));
        }
        at += end + delimiter.len();
    }
}

/// The boundary in a `Content-Type`.
fn boundary(kind: &str) -> Option<&str> {
    let (media, parameters) = kind.split_once(';')?;
    if !media.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let value = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.trim().split_once('=')?;
        name.eq_ignore_ascii_case("boundary").then_some(value.trim_matches('"'))
    })?;
    (1..=MAX_BOUNDARY).contains(&value.len()).then_some(value)
}

/// Whether the head of a part has this name in its `Content-Disposition`.
fn is_named(head: &[u8], name: &str) -> bool {
    let is_disposition = |line: &&str| line.to_ascii_lowercase().starts_with("content-disposition:");
    let head = String::from_utf8_lossy(head);
    let mut parameters = head.split("\r\n").filter(is_disposition).flat_map(|line| line.split(';').skip(1));
    parameters.any(|parameter| parameter.trim().strip_prefix("name=").is_some_and(|own| own.trim_matches('"') == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kind: &str, body: &str) -> Result<String, &'static str> {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())]);
        part(&headers, &Bytes::copy_from_slice(body.as_bytes()), "file").map(|part| String::from_utf8(part.to_vec()).unwrap())
    }

    #[test]
    fn a_part_is_found_by_its_name() {
        let form = "--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n1\r\n--b\r\ncontent-disposition: form-data; \
            filename=\"name=x\"; name=\"file\"\r\nContent-Type: image/png\r\n\r\nab\r\n\r\ncd\r\n--b--\r\n";
        for kind in ["multipart/form-data; boundary=b", "Multipart/Form-Data; charset=x; BOUNDARY=\"b\""] {
            assert_eq!(found(kind, form), Ok("ab\r\n\r\ncd".to_owned()));
            assert_eq!(found(kind, &format!("preamble\r\n{form}")), Ok("ab\r\n\r\ncd".to_owned()));
        }
        for (kind, body, expected) in [
            ("application/json", form, "the request is no form in parts"),
            ("multipart/form-data", form, "the request is no form in parts"),
            ("multipart/form-data; boundary=c", form, "the form has no parts"),
            ("multipart/form-data; boundary=b", &form.replace("\"file\"", "\"files\""), "the form has no such part"),
            ("multipart/form-data; boundary=b", &form[..form.len() - 10], "the form is cut off"),
            ("multipart/form-data; boundary=b", "--b\r\nx\r\n--b--", "a part has no head"),
        ] {
            assert_eq!(found(kind, body), Err(expected), "{kind}");
        }
        // a megabyte of empty parts takes a moment
        assert_eq!(found("multipart/form-data; boundary=b", &"--b\r\n\r\n\r\n\r\n".repeat(100_000)), Err("the form is cut off"));
    }
}
