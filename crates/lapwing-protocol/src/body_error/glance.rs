//! A glance at the first bytes of a JSON answer that is not read otherwise: may it be an error? Servers write an error before
//! anything long, so the members before the first container are examined, within [`PREFIX`] bytes. Only an answer that has such a
//! member is read on, so that a glance costs an ordinary answer about a hundred instructions.

use memchr::memchr2;

/// How many bytes are examined.
const PREFIX: usize = 512;
/// How many members are examined.
const MEMBERS: usize = 12;

/// Members with which good answers begin: none that begins so is an error.
const GOOD: [&[u8]; 5] = [b"model_name", b"outputs", b"predictions", b"embeddings", b"choices"];
/// How most of them begin: a few comparisons find them.
const GOOD_STARTS: [&[u8]; 3] = [br#"{"model_name""#, br#"{"outputs""#, br#"{"predictions""#];

/// What is seen of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Glimpse {
    /// More bytes are needed.
    Unfinished,
    /// It has a member that may be an error: it must be read, from its first byte.
    MayFail,
    /// It is none.
    Fine,
}

/// The glance at one answer.
#[derive(Debug, Default)]
pub enum Glance {
    /// Nothing is examined.
    #[default]
    Off,
    /// Nothing has come yet, or these bytes did not decide it.
    On(Vec<u8>),
}

impl Glance {
    /// A glance at an answer.
    #[must_use]
    pub const fn on() -> Self {
        Self::On(Vec::new())
    }

    /// Whether another piece is needed.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        matches!(self, Self::On(_))
    }

    /// Reads the next piece. Returns the bytes before this piece if the answer must be read.
    pub fn feed(&mut self, piece: &[u8]) -> Option<Vec<u8>> {
        let Self::On(before) = self else { return None };
        let seen = if before.is_empty() {
            glimpse(piece)
        } else {
            let room = PREFIX.saturating_sub(before.len()).min(piece.len());
            let all = [before, &piece[..room]].concat();
            glimpse(&all)
        };
        match seen {
            Glimpse::Unfinished => {
                before.extend_from_slice(piece); // shorter than PREFIX, or it would be decided
                None
            }
            Glimpse::MayFail => {
                let before = std::mem::take(before);
                *self = Self::Off;
                Some(before)
            }
            Glimpse::Fine => {
                *self = Self::Off;
                None
            }
        }
    }
}

/// What the first bytes of an answer show. More bytes do not change what is decided.
fn glimpse(bytes: &[u8]) -> Glimpse {
    if GOOD_STARTS.iter().any(|start| bytes.starts_with(start)) {
        return Glimpse::Fine;
    }
    let is_cut = bytes.len() < PREFIX;
    let mut rest = Rest(&bytes[..bytes.len().min(PREFIX)]);
    match members(&mut rest) {
        Some(true) => Glimpse::MayFail,
        Some(false) => Glimpse::Fine,
        None if is_cut => Glimpse::Unfinished,
        None => Glimpse::Fine,
    }
}

/// Whether a member may be an error; `None` if the bytes end before that is known.
fn members(rest: &mut Rest<'_>) -> Option<bool> {
    let mut first = rest.next()?;
    if first == b'[' {
        first = rest.next()?;
    }
    if first != b'{' {
        return Some(false);
    }
    for _ in 0..MEMBERS {
        if rest.next()? != b'"' {
            return Some(false);
        }
        let key = rest.text()?;
        if rest.next()? != b':' {
            return Some(false);
        }
        if matches!(key, b"error" | b"errors" | b"detail") {
            return Some(true);
        }
        if GOOD.contains(&key) {
            return Some(false);
        }
        let (begins, of_code) = (rest.next()?, key == b"code");
        match begins {
            b'"' => {
                let value = rest.text()?;
                if value == b"error" && matches!(key, b"object" | b"type") {
                    return Some(true);
                }
            }
            // the code of an error as TorchServe writes it
            b'4' | b'5' if of_code => return Some(true),
            b'{' | b'[' => return Some(false),
            _ => rest.scalar()?,
        }
        if rest.next()? != b',' {
            return Some(false);
        }
    }
    Some(false)
}

/// The bytes that are left.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// The next byte but white space.
    fn next(&mut self) -> Option<u8> {
        let at = self.0.iter().position(|byte| !byte.is_ascii_whitespace())?;
        let byte = self.0[at];
        self.0 = &self.0[at + 1..];
        Some(byte)
    }

    /// A text up to its closing quote, which is consumed.
    fn text(&mut self) -> Option<&'a [u8]> {
        let mut from = 0;
        loop {
            let at = from + memchr2(b'"', b'\\', self.0.get(from..)?)?;
            if self.0[at] == b'"' {
                let text = &self.0[..at];
                self.0 = &self.0[at + 1..];
                return Some(text);
            }
            from = at + 2;
        }
    }

    /// A number or a word, without the byte after it.
    fn scalar(&mut self) -> Option<()> {
        let at = self.0.iter().position(|byte| matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace())?;
        self.0 = &self.0[at..];
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_be_an_error_is_read_on() {
        for text in [
            r#"{"error": "x"}"#,
            "\n{ \"error\" :",
            r#"{"result":null,"error":{"code":-1"#,
            r#"{"jsonrpc":"2.0","id":"a\"b","error":"#,
            r#"{"jsonrpc":"2.0","id":7 , "error":null"#,
            r#"{"object":"error","message""#,
            r#"{"type":"error","#,
            "{\n  \"code\": 503,",
            r#"{"detail":"#,
            r#"[{"id":1,"error":"#,
        ] {
            assert_eq!(glimpse(text.as_bytes()), Glimpse::MayFail, "{text}");
        }
        for text in [
            r#"{"model_name":"m","outputs":["#,
            r#"{"predictions": ["#,
            r#"{"id":"chat-1","object":"list","data":["#,
            r#"{"text":"error"}"#,
            "[[0.1",
            "[]",
            "\x1f\u{8b}",
            "\"error\"",
            "{}",
            r#"{"code":200,"ok":true}"#,
        ] {
            assert_eq!(glimpse(text.as_bytes()), Glimpse::Fine, "{text}");
        }
        let long = format!(r#"{{"text":"{}"#, "x".repeat(PREFIX));
        assert_eq!(glimpse(long.as_bytes()), Glimpse::Fine);
        assert_eq!(glimpse(br#"{"text":"xx"#), Glimpse::Unfinished);
    }

    #[test]
    fn where_an_answer_is_cut_does_not_matter() {
        for (text, must_be_read) in [(r#"{"id":1,"error":{"message":"x"}}"#, true), (r#"{"id":1,"result":{"error":1}}"#, false)] {
            for length in 1..text.len() {
                let (mut glance, mut read) = (Glance::on(), None);
                let mut passed = 0;
                for piece in text.as_bytes().chunks(length) {
                    if let Some(before) = glance.feed(piece) {
                        assert_eq!(before, &text.as_bytes()[..passed]);
                        read = Some(());
                    }
                    passed += piece.len();
                }
                assert_eq!(read.is_some(), must_be_read, "{text} by {length}");
            }
        }
    }
}
