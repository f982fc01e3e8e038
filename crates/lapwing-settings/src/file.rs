//! Paths of files and folders, as text.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::{Invalid, text::text_serde};

/// The path of a file. The user of the setting checks whether it exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct File(PathBuf);

text_serde!(File, "the path of a file", {"title": "file", "type": ["string", "number"], "pattern": r"\S"});

impl File {
    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for File {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.trim().is_empty() {
            return Err(Invalid::new(text, "must be the path of a file"));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

/// The path of a folder. The user of the setting checks whether it exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Folder(PathBuf);

text_serde!(Folder, "the path of a folder", {"title": "folder", "type": ["string", "number"], "pattern": r"\S"});

impl Folder {
    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for Folder {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.trim().is_empty() {
            return Err(Invalid::new(text, "must be the path of a folder"));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}
