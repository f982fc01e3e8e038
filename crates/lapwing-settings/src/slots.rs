//! How many requests a server works on at once: `auto` or a number.

use std::fmt;
use std::str::FromStr;

use super::{Invalid, text::text_serde};

/// How many requests a server works on at once. Text: `auto`, or a number from 1 to 256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slots {
    /// Found out.
    #[default]
    Auto,
    /// So many.
    Of(u32),
}

text_serde!(Slots, "`auto` or a number of slots", {
    "title": "`auto` or number", "type": ["string", "integer"], "minimum": 1, "maximum": 256,
    "pattern": r"^\s*(auto|[1-9][0-9]{0,2})\s*$", "examples": ["auto", 1]
});

impl Slots {
    /// The number, if it is given.
    #[must_use]
    pub const fn given(self) -> Option<u32> {
        match self {
            Self::Auto => None,
            Self::Of(slots) => Some(slots),
        }
    }
}

impl FromStr for Slots {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            digits => match digits.parse() {
                Ok(slots) if (1..=256).contains(&slots) => Ok(Self::Of(slots)),
                _ => Err(Invalid::new(text, "must be `auto`, or a number from 1 to 256")),
            },
        }
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Of(slots) => slots.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_and_printed() {
        for (text, slots) in [("auto", Slots::Auto), (" 1 ", Slots::Of(1)), ("256", Slots::Of(256))] {
            assert_eq!(text.parse(), Ok(slots));
            assert_eq!(slots.to_string(), text.trim());
        }
        for text in ["0", "257", "all", "", "-1", "1.5"] {
            assert!(text.parse::<Slots>().unwrap_err().to_string().contains("from 1 to 256"), "{text}");
        }
    }
}
