//! The token by which the admin server knows who may read what users sent.

use std::fmt;
use std::hint::black_box;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::secret::MASK;

/// What the token is asked for, where there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdminTokenFor {
    /// Everything except `/`, `/livez` and `/readyz`, which show no figures.
    #[default]
    Everything,
    /// What users sent, for another machine.
    Payloads,
}

/// A token for `Authorization: Bearer`: 16 to 4,096 visible ASCII characters. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken(Box<str>);

impl AdminToken {
    /// The fewest characters: fewer could be guessed.
    pub const MIN: usize = 16;
    /// The most characters.
    pub const MAX: usize = 4096;

    /// The token in the text of a file. White space around it is no part of it.
    ///
    /// # Errors
    ///
    /// What is wrong with it, without the token.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let token = text.trim();
        match token.len() {
            0 => Err("has no token in it"),
            1..Self::MIN => Err("has a token of fewer than 16 characters, which could be guessed"),
            Self::MIN..=Self::MAX if token.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Self(token.into())),
            Self::MIN..=Self::MAX => Err("must have one token of visible ASCII characters"),
            _ => Err("has a token of more than 4096 characters"),
        }
    }

    /// Whether `given` is this token. The time it takes depends on `given` alone, so it reveals nothing about the token.
    #[must_use]
    pub fn is(&self, given: &[u8]) -> bool {
        let own = self.0.as_bytes();
        let pairs = given.iter().zip(own.iter().cycle());
        let differing = pairs.fold(given.len() ^ own.len(), |differing, (a, b)| black_box(differing | usize::from(a ^ b)));
        differing == 0
    }

    /// The value of the header `authorization` that shows it. Only for sending it.
    #[must_use]
    pub fn authorization(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    #[test]
    fn only_the_whole_token_is_it() {
        let token = AdminToken::parse(&format!(" {TOKEN}\n")).unwrap();
        assert!(token.is(TOKEN.as_bytes()));
        for other in ["", "0", "0123456789abcde", "0123456789abcdeF", "0123456789abcdef0", "0123456789abcdef0123456789abcdef"] {
            assert!(!token.is(other.as_bytes()), "{other}");
        }
        assert_eq!((token.authorization(), format!("{token:?}")), (format!("Bearer {TOKEN}"), "***".to_owned()));
    }

    #[test]
    fn what_is_no_token_is_refused_and_not_shown() {
        let (long, longest) = ("x".repeat(4097), "x".repeat(4096));
        for (text, reason) in [
            ("", "no token"),
            (" \n", "no token"),
            ("short", "fewer than 16"),
            ("0123456789 abcdef", "one token"),
            ("0123456789\nabcdef", "one token"),
            ("0123456789abcdé€", "one token"),
            (&long, "more than 4096"),
        ] {
            let error = AdminToken::parse(text).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        assert!(AdminToken::parse(&longest).is_ok());
    }
}
