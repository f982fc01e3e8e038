//! The name of a header field.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;

use super::{Invalid, text::text_serde};

/// The name of a header field, in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldName(HeaderName);

text_serde!(FieldName, "a header's name, as in x-shadow", {
    "title": "header's name", "type": "string", "pattern": r"^\s*[!#$%&'*+.^_`|~0-9A-Za-z-]+\s*$", "examples": ["x-shadow"]
});

impl FieldName {
    /// The name.
    #[must_use]
    pub const fn get(&self) -> &HeaderName {
        &self.0
    }
}

impl FromStr for FieldName {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        HeaderName::try_from(text.trim()).map(Self).map_err(|_| Invalid::new(text, "is not a header's name"))
    }
}

impl fmt::Display for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
