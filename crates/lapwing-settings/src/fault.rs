//! A fault of a setting: its path, its value, the reason, and the origin of the value.
//!
//! A fault never shows a secret: this file masks user information in URLs, the caller masks secret values.

use std::fmt;

/// A text that is not a valid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value}: {reason}")]
pub struct Invalid {
    /// The text, with user information masked.
    pub value: String,
    /// Why it is not valid, in words that fit after a colon.
    pub reason: String,
}

impl Invalid {
    /// An error for `value`, with the reason.
    #[must_use]
    pub fn new(value: &str, reason: impl Into<String>) -> Self {
        Self { value: masked(value), reason: reason.into() }
    }
}

/// One fault of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// The setting, as in `proxy.workers` or `attribution.spans[2].stage`; a file or variable where no setting is at fault.
    pub path: String,
    /// The text of its value; empty where there is none.
    pub value: String,
    /// Why it is not valid.
    pub reason: String,
    /// The origin of the value, as in `file lapwing.yaml`; empty if no source gave it.
    pub origin: String,
}

impl Fault {
    /// A fault of the setting at `path`, without an origin.
    #[must_use]
    pub fn new(path: impl Into<String>, value: impl AsRef<str>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), value: masked(value.as_ref()), reason: reason.into(), origin: String::new() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if !self.value.is_empty() {
            write!(f, ": {}", self.value)?;
        }
        write!(f, ": {}", self.reason)?;
        if !self.origin.is_empty() {
            write!(f, " ({})", self.origin)?;
        }
        Ok(())
    }
}

/// `text` without the user information of a URL.
fn masked(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}"),
        None => text.to_owned(),
    }
}
