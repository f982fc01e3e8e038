//! `Server-Timing` (W3C): durations in the head or the trailers of a response.
//!
//! Durations on the wire are milliseconds with a fraction; here they are nanoseconds, from 0 to 24 h. An entry that violates the
//! grammar, or whose `dur` is not such a number, is counted as malformed and skipped; reading continues with the next entry. See
//! <https://www.w3.org/TR/server-timing/#the-server-timing-header-field>.

use arrayvec::ArrayVec;
use http::{HeaderMap, HeaderName};

use super::rules::Rules;
use lapwing_ledger::{Ledger, Report, ReportPlace};

/// The field's name.
pub const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// Longer durations are treated as mistakes.
const MAX_MS: f64 = 86_400_000.0;
const NS_PER_MS: f64 = 1e6;

/// Records what `headers` report in the ledger: entries with a duration and a name that `rules` map to a stage. `place` says
/// whether these are the head's or the trailers' fields. Returns the number of malformed entries.
pub fn report(headers: &HeaderMap, rules: &Rules, place: ReportPlace, ledger: &mut Ledger) -> usize {
    let read = |value: &http::HeaderValue| {
        parse(value.as_bytes(), |name, dur_ns| {
            if let Some((duration_ns, stage)) = dur_ns.zip(rules.server_timing(name)) {
                ledger.report(Report::of(stage, duration_ns, place));
            }
        })
    };
    headers.get_all(SERVER_TIMING).iter().map(read).sum()
}

/// Reads one field value: calls `entry` with the name and, if there is one, the duration in nanoseconds of each well-formed entry
/// in turn. Returns the number of malformed entries.
pub fn parse(value: &[u8], mut entry: impl FnMut(&str, Option<u64>)) -> usize {
    let mut rest = Cursor { rest: value, never_closes: false };
    let mut malformed = 0;
    while !rest.rest.is_empty() {
        rest.skip_space();
        if rest.take(b',') {
            continue; // empty list elements are allowed
        }
        if rest.rest.is_empty() {
            break;
        }
        match rest.entry() {
            Some((name, dur_ns)) => entry(name, dur_ns),
            None => {
                malformed += 1;
                rest.skip_entry();
            }
        }
    }
    malformed
}

/// Reads the value from left to right.
struct Cursor<'a> {
    /// The unread rest.
    rest: &'a [u8],
    /// Whether an opening quote without a closing one was met. Every later quote is then an escaped one of that string, so none
    /// is searched for again, and the time stays linear in the value's length.
    never_closes: bool,
}

impl<'a> Cursor<'a> {
    /// `name *( OWS ";" OWS param )`, including the comma after it.
    fn entry(&mut self) -> Option<(&'a str, Option<u64>)> {
        let name = std::str::from_utf8(self.token()?).ok()?;
        let mut dur_ns = None;
        loop {
            self.skip_space();
            if self.rest.is_empty() || self.take(b',') {
                return Some((name, dur_ns));
            }
            if !self.take(b';') {
                return None;
            }
            self.skip_space();
            if let Some(found) = self.param()? {
                dur_ns.get_or_insert(found);
            }
        }
    }

    /// `token OWS "=" OWS ( token / quoted-string )`; a bare `token` or nothing is accepted, as browsers do. The outer `None`
    /// means malformed; the inner one a parameter other than `dur`.
    fn param(&mut self) -> Option<Option<u64>> {
        let Some(key) = self.token() else { return Some(None) };
        self.skip_space();
        let is_dur = key.eq_ignore_ascii_case(b"dur");
        if !self.take(b'=') {
            return if is_dur { None } else { Some(None) };
        }
        self.skip_space();
        let mut unquoted = ArrayVec::<u8, 64>::new();
        let value = if self.take(b'"') {
            let quoted = self.quoted()?;
            if is_dur && quoted.contains(&b'\\') {
                unescape(quoted, &mut unquoted)?;
                unquoted.as_slice()
            } else {
                quoted
            }
        } else {
            self.token()?
        };
        if is_dur { duration_ns(value).map(Some) } else { Some(None) }
    }

    /// Bytes of a token, at least one; they are ASCII.
    fn token(&mut self) -> Option<&'a [u8]> {
        let length = self.rest.iter().position(|b| !IS_TOKEN[usize::from(*b)]).unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(length);
        self.rest = rest;
        (!token.is_empty()).then_some(token)
    }

    /// The content of a quoted string whose opening quote was read; `None` if it is never closed.
    fn quoted(&mut self) -> Option<&'a [u8]> {
        if self.never_closes {
            return None;
        }
        let mut at = 0;
        loop {
            match self.rest.get(at) {
                Some(b'"') => break,
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
                None => {
                    self.never_closes = true;
                    return None;
                }
            }
        }
        let inside = &self.rest[..at];
        self.rest = &self.rest[at + 1..];
        Some(inside)
    }

    /// Skips past the next comma that is not quoted.
    fn skip_entry(&mut self) {
        while let Some((first, rest)) = self.rest.split_first() {
            self.rest = rest;
            match first {
                b',' => return,
                b'"' => {
                    let before = self.rest;
                    if self.quoted().is_none() {
                        self.rest = before; // a stray quote, not a string
                    }
                }
                _ => {}
            }
        }
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn take(&mut self, byte: u8) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }
}

/// By byte: whether it may occur in a token (RFC 9110, 5.6.2).
const IS_TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut other = b"!#$%&'*+-.^_`|~".as_slice();
    while let [byte, rest @ ..] = other {
        table[*byte as usize] = true;
        other = rest;
    }
    table
};

fn unescape(quoted: &[u8], out: &mut ArrayVec<u8, 64>) -> Option<()> {
    let mut bytes = quoted.iter();
    while let Some(b) = bytes.next() {
        let b = if *b == b'\\' { bytes.next()? } else { b };
        out.try_push(*b).ok()?;
    }
    Some(())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked first")]
fn duration_ns(text: &[u8]) -> Option<u64> {
    let ms: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (0.0..=MAX_MS).contains(&ms).then(|| (ms * NS_PER_MS).round() as u64)
}

#[cfg(test)]
mod tests;
