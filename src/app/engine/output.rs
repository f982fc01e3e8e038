//! What the commands have in common in their output.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use super::error::ToolError;
use lapwing_console::printable::printable;

/// The name of a model in rows: its file's name without the extension.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// What a file or a library has in its words, in one line of at most 4,096 columns: what would move a terminal's cursor is escaped.
pub(crate) fn shown(text: impl Display) -> String {
    printable(&text.to_string(), 4096)
}

/// Writes a value as one line of JSON.
pub(crate) fn line(out: &mut dyn Write, value: &impl serde::Serialize) -> Result<(), ToolError> {
    let text = serde_json::to_string(value).map_err(io::Error::from)?;
    writeln!(out, "{text}")?;
    // a row may take seconds, and a reader at the other end of a pipe wants each one at once
    Ok(out.flush()?)
}
