//! What W3C Trace Context, 3.3, requires of `tracestate`. A list that breaks it is dropped as a whole, and one that does not is passed as it
//! came.

use http::{HeaderMap, HeaderValue};

use super::TRACESTATE;

/// Members that a list may have.
const MEMBERS: usize = 32;
/// Characters of a key, and of a value.
const CHARACTERS: usize = 256;

/// Whether the fields `tracestate` of a head are one valid list together. No field is a valid list.
#[must_use]
pub fn is_valid_tracestate(headers: &HeaderMap) -> bool {
    let mut members = 0;
    headers.get_all(&TRACESTATE).iter().map(HeaderValue::as_bytes).flat_map(|value| value.split(|byte| *byte == b',')).all(
        |member| {
            let member = trim(member);
            if member.is_empty() {
                return true;
            }
            members += 1;
            members <= MEMBERS && is_member(member)
        },
    )
}

fn is_member(member: &[u8]) -> bool {
    let Some(at) = member.iter().position(|byte| *byte == b'=') else { return false };
    is_key(&member[..at]) && is_value(&member[at + 1..])
}

fn is_key(key: &[u8]) -> bool {
    let is_first = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_further = |byte: &u8| is_first(byte) || matches!(byte, b'_' | b'-' | b'*' | b'/' | b'@');
    key.len() <= CHARACTERS && key.split_first().is_some_and(|(first, rest)| is_first(first) && rest.iter().all(is_further))
}

fn is_value(value: &[u8]) -> bool {
    let is_allowed = |byte: &u8| matches!(byte, 0x20..=0x7e) && !matches!(byte, b',' | b'=');
    (1..=CHARACTERS).contains(&value.len()) && value.iter().all(is_allowed) && value.last() != Some(&b' ')
}

/// Without optional white space: spaces and tabs.
fn trim(mut member: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = member {
        member = rest;
    }
    member
}
