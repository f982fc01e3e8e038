//! Secrets in queries and bodies, by the names of parameters and members; and what is left of a request for its copies.
//!
//! A copy's query loses them. A body is not changed, because a target that gets another body answers another question: a request with
//! a secret in its body is not copied. In records they are replaced.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue};
use memchr::memchr2;
use percent_encoding::percent_decode_str;

use super::{KeptHeaders, NameRules};
use crate::config::{Config, CopyRule};
use crate::header_names::SHADOW_FIELD;
use lapwing_compare::outputs::whole_body;
use lapwing_compare::secret_names::{NamePlace, is_secret};
use lapwing_protocol::Media;

/// What stands for a secret in a record.
const HIDDEN: &str = "***";

/// What of a request goes into its copies: the headers of a list, and everything else but secrets.
#[derive(Clone, Debug)]
pub(crate) struct CopiedParts {
    pub(crate) headers: KeptHeaders,
    pub(crate) secrets: Secrets,
}

impl CopiedParts {
    /// By `config`, and by `protocol`, whose rules read headers.
    pub(crate) fn new(config: &Config, protocol: &lapwing_protocol::Config) -> Self {
        Self { headers: KeptHeaders::new(config, protocol), secrets: Secrets::new(config) }
    }

    /// The headers of the copies of a request with `headers`.
    pub(crate) fn headers(&self, headers: &HeaderMap) -> HeaderMap {
        let mut copied = self.headers.of(headers);
        copied.insert(SHADOW_FIELD, HeaderValue::from_static("1"));
        copied
    }

    /// Where the copies of a request to `path` go.
    pub(crate) fn path(&self, path: &PathAndQuery) -> PathAndQuery {
        self.secrets.without(path)
    }
}

/// Which parameters and members are secrets.
#[derive(Clone, Debug)]
pub struct Secrets {
    rules: NameRules,
    /// How many bytes of a body are read at most, once it is decompressed.
    limit: usize,
}

/// A body that cannot be searched for secrets: it is compressed in a way that is not read, or larger than the limit when it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsearchable;

impl Secrets {
    /// By `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let limit = usize::try_from(config.compare.max_decoded.get().max(config.max_body.get())).unwrap_or(usize::MAX);
        Self { rules: NameRules::new(&config.fields), limit }
    }

    /// The path and its query, without the parameters that are secrets.
    #[must_use]
    pub fn without(&self, path: &PathAndQuery) -> PathAndQuery {
        let Some(query) = path.query() else { return path.clone() };
        if !pairs(query).any(|pair| self.is_secret_pair(pair, NamePlace::Query)) {
            return path.clone();
        }
        let kept: Vec<&str> = pairs(query).filter(|pair| !self.is_secret_pair(pair, NamePlace::Query)).collect();
        let mark = if kept.is_empty() { "" } else { "?" };
        let shorter = format!("{}{mark}{}", path.path(), kept.join("&"));
        shorter.parse().unwrap_or_else(|_| PathAndQuery::from_static("/"))
    }

    /// Whether there is a secret in the body of a message with these headers.
    ///
    /// # Errors
    ///
    /// If nobody can say so.
    pub fn are_in(&self, headers: &HeaderMap, pieces: &[Bytes]) -> Result<bool, Unsearchable> {
        Ok(self.search(headers, pieces)?.is_some())
    }

    /// The body of a message with these headers, as it is recorded: each secret is replaced.
    ///
    /// # Errors
    ///
    /// If it cannot be: the body cannot be searched, or has a secret and is compressed, binary or in parts.
    pub fn hidden(&self, headers: &HeaderMap, body: Bytes) -> Result<Bytes, Unsearchable> {
        let Some(form) = self.search(headers, std::slice::from_ref(&body))? else { return Ok(body) };
        // a length that the head gives, or a coding, would no longer be right
        if !matches!(Media::of(headers), Media::Json | Media::Lines | Media::Events) {
            return Err(Unsearchable);
        }
        match form {
            BodyForm::Json => {
                let (mut hidden, mut at) = (Vec::with_capacity(body.len()), 0);
                for span in self.values(&body) {
                    hidden.extend_from_slice(&body[at..span.start]);
                    hidden.extend_from_slice(format!("\"{HIDDEN}\"").as_bytes());
                    at = span.end;
                }
                hidden.extend_from_slice(&body[at..]);
                Ok(hidden.into())
            }
            BodyForm::Form => {
                let hide = |pair: &str| match pair.split_once('=') {
                    Some((name, _)) if self.is_secret_pair(pair, NamePlace::Top) => format!("{name}={HIDDEN}"),
                    _ => pair.to_owned(),
                };
                Ok(pairs(&text(&body)).map(hide).collect::<Vec<_>>().join("&").into())
            }
            BodyForm::Parts | BodyForm::Other => Err(Unsearchable),
        }
    }

    /// The form of a body that has a secret.
    fn search(&self, headers: &HeaderMap, pieces: &[Bytes]) -> Result<Option<BodyForm>, Unsearchable> {
        let form = BodyForm::of(headers);
        if form == BodyForm::Other || pieces.iter().all(Bytes::is_empty) {
            return Ok(None);
        }
        let body = whole_body(headers, pieces, self.limit).map_err(|_| Unsearchable)?;
        // JSON as curl sends it unless it is told otherwise
        let is_json = form == BodyForm::Form && matches!(body.trim_ascii_start().first(), Some(b'{' | b'['));
        let form = if is_json { BodyForm::Json } else { form };
        let has_secret = match form {
            BodyForm::Json => !self.values(&body).is_empty(),
            BodyForm::Form => pairs(&text(&body)).any(|pair| self.is_secret_pair(pair, NamePlace::Top)),
            BodyForm::Parts => self.has_secret_part(&body),
            BodyForm::Other => false,
        };
        Ok(has_secret.then_some(form))
    }

    fn values(&self, body: &[u8]) -> Vec<Range<usize>> {
        secret_values(body, |name, place| self.is_secret(name, place))
    }

    fn is_secret(&self, name: &str, place: NamePlace) -> bool {
        self.rules.of(name).map_or_else(|| is_secret(name, place), |rule| rule == CopyRule::Remove)
    }

    fn is_secret_pair(&self, pair: &str, place: NamePlace) -> bool {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        !value.is_empty() && self.is_secret(&decoded(name), place)
    }

    /// Whether a part of a multipart body has the name of a secret.
    fn has_secret_part(&self, body: &[u8]) -> bool {
        const NAME: &[u8] = b"name=";
        memchr::memmem::find_iter(body, NAME).any(|at| {
            let rest = &body[at + NAME.len()..];
            let rest = rest.strip_prefix(b"\"").unwrap_or(rest);
            let length = rest.iter().take(128).take_while(|byte| !matches!(byte, b'"' | b';' | b'\r' | b'\n')).count();
            self.is_secret(&text(&rest[..length]), NamePlace::Top)
        })
    }
}

/// How the names of a body's members are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyForm {
    Json,
    /// `application/x-www-form-urlencoded`.
    Form,
    /// `multipart/*`.
    Parts,
    /// Without names.
    Other,
}

impl BodyForm {
    fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let begins = |name: &[u8]| kind.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        match Media::of(headers) {
            _ if begins(b"multipart/") => Self::Parts,
            _ if begins(b"application/x-www-form-urlencoded") => Self::Form,
            Media::Json | Media::JsonBefore(_) | Media::Lines | Media::Events => Self::Json,
            _ => Self::Other,
        }
    }
}

fn pairs(query: &str) -> impl Iterator<Item = &str> {
    query.split('&')
}

/// The name of a parameter, which may be encoded, and be an element of another: `user[password]`.
fn decoded(name: &str) -> Cow<'_, str> {
    let plus = if name.contains('+') { Cow::Owned(name.replace('+', " ")) } else { Cow::Borrowed(name) };
    let name = percent_decode_str(&plus).decode_utf8_lossy().into_owned();
    let last = name.strip_suffix(']').and_then(|name| name.rsplit_once('[')).map(|(_, last)| last.to_owned());
    Cow::Owned(last.filter(|last| !last.is_empty()).unwrap_or(name))
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The places of the texts and numbers whose member's name `is_secret`, in their order.
pub(crate) fn secret_values(text: &[u8], is_secret: impl Fn(&str, NamePlace) -> bool) -> Vec<Range<usize>> {
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
                let place = if depth <= 1 { NamePlace::Top } else { NamePlace::Inside };
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
