//! Finds the values of secret members in JSON text, without building a document: the text may be cut into lines or events, and need
//! not be valid.

use std::ops::Range;

use memchr::memchr2;

use lapwing_compare::secret_names::Place;

/// The places of the texts and numbers whose member's name `is_secret`, in their order.
pub(crate) fn secret_values(text: &[u8], is_secret: impl Fn(&str, Place) -> bool) -> Vec<Range<usize>> {
    let (mut found, mut depth, mut at) = (Vec::new(), 0_usize, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let end = text_end(text, at);
                let value = after_colon(text, end);
                let Some(value) = value else {
                    at = end;
                    continue;
                };
                let place = if depth <= 1 { Place::Top } else { Place::Inside };
                if key(text.get(at..end).unwrap_or_default()).is_some_and(|key| is_secret(&key, place))
                    && let Some(span) = scalar(text, value)
                {
                    at = span.end;
                    found.push(span);
                } else {
                    at = value;
                }
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Behind the closing quote of the text that begins at `start`, or the end of the bytes.
fn text_end(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(found) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if text[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    text.len()
}

/// Where the value begins, if a colon follows.
fn after_colon(text: &[u8], end: usize) -> Option<usize> {
    let colon = skip_space(text, end);
    (text.get(colon) == Some(&b':')).then(|| skip_space(text, colon + 1))
}

fn skip_space(text: &[u8], from: usize) -> usize {
    let space = text.get(from..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    from + space
}

/// The name in a quoted key.
fn key(quoted: &[u8]) -> Option<String> {
    serde_json::from_slice(quoted).ok()
}

/// A text that is not empty, or a number, at `start`.
fn scalar(text: &[u8], start: usize) -> Option<Range<usize>> {
    match text.get(start)? {
        b'"' => Some(start..text_end(text, start)).filter(|span| text[span.clone()] != *b"\"\""),
        b'-' | b'0'..=b'9' => {
            let is_number = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
            let length = text[start..].iter().take_while(is_number).count();
            Some(start..start + length)
        }
        _ => None,
    }
}
