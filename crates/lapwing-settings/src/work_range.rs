//! A range of work: `1..31`, `32..` or `..31`.

use std::fmt;
use std::str::FromStr;

use super::{Invalid, text::text_serde};

/// Amounts of work from one to another, both included. Text: `1..31`; either may be left out; a number alone is that amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRange {
    least: u64,
    most: u64,
}

text_serde!(WorkRange, "a range of work, as in 1..31 or 32..", {
    "title": "range", "type": ["string", "integer"], "minimum": 0,
    "pattern": r"^\s*([0-9]+|[0-9]+\s*\.\.\s*[0-9]*|\.\.\s*[0-9]+)\s*$", "examples": ["..31", "32..", "1..8"]
});

impl WorkRange {
    /// Whether it contains `amount`.
    #[must_use]
    pub const fn contains(self, amount: u64) -> bool {
        self.least <= amount && amount <= self.most
    }
}

impl FromStr for WorkRange {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = |reason: &str| Invalid::new(text, reason);
        let end = |text: &str, open: u64| match text.trim() {
            "" => Ok(open),
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| invalid("is more than any request has"))
            }
            _ => Err(invalid("is not a range of work, as in 1..31, 32.. or ..31")),
        };
        let trimmed = text.trim();
        let (least, most) = match trimmed.split_once("..") {
            Some(("", "")) => return Err(invalid("leaves both ends out: every request has some work")),
            Some((least, most)) => (end(least, 0)?, end(most, u64::MAX)?),
            None if trimmed.is_empty() => return Err(invalid("is not a range of work, as in 1..31, 32.. or ..31")),
            None => (end(trimmed, 0)?, end(trimmed, 0)?),
        };
        if least > most {
            return Err(invalid("has its ends the wrong way round"));
        }
        Ok(Self { least, most })
    }
}

impl fmt::Display for WorkRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least, self.most) {
            (least, most) if least == most => write!(f, "{least}"),
            (0, most) => write!(f, "..{most}"),
            (least, u64::MAX) => write!(f, "{least}.."),
            (least, most) => write!(f, "{least}..{most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_printed_and_hold_both_ends() {
        for (text, canonical, inside, outside) in [
            ("1..31", "1..31", &[1, 31][..], &[0, 32][..]),
            (" 32 .. ", "32..", &[32, u64::MAX], &[31]),
            ("..31", "..31", &[0, 31], &[32]),
            ("0..31", "..31", &[0], &[32]),
            ("8", "8", &[8], &[7, 9]),
            ("0", "0", &[0], &[1]),
        ] {
            let range: WorkRange = text.parse().unwrap();
            assert_eq!(range.to_string(), canonical);
            assert_eq!(canonical.parse::<WorkRange>().unwrap(), range);
            assert!(inside.iter().all(|amount| range.contains(*amount)), "{text}");
            assert!(!outside.iter().any(|amount| range.contains(*amount)), "{text}");
        }
    }

    #[test]
    fn faults_say_what_to_write() {
        for (text, says) in [
            ("", "is not a range of work"),
            ("..", "leaves both ends out"),
            ("a..3", "is not a range of work"),
            ("1...3", "is not a range of work"),
            ("-1..3", "is not a range of work"),
            ("+1", "is not a range of work"),
            ("9..3", "the wrong way round"),
            ("99999999999999999999..", "more than any request has"),
        ] {
            let reason = text.parse::<WorkRange>().unwrap_err().reason;
            assert!(reason.contains(says), "{text}: {reason}");
        }
    }
}
