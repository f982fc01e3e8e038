//! Lines of JSON within bounds. A line is read into memory before it is parsed, and never more than one.

use std::io::{self, BufRead, Read};

use serde::Serialize;
use serde::de::DeserializeOwned;

use lapwing_net::error_text;

/// The bounds of a file that is read.
#[derive(Clone, Copy, Debug)]
pub struct FileLimits {
    /// The longest line, in bytes. Default: 64 MiB.
    pub line: usize,
    /// The whole file, in bytes. Default: 1 GiB.
    pub file: u64,
}

impl Default for FileLimits {
    fn default() -> Self {
        Self { line: 64 << 20, file: 1 << 30 }
    }
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Its first line does not name the format.
    #[error("is no {0}: its first line does not name that format")]
    OtherFormat(&'static str),
    /// It was written in a version that is unknown here.
    #[error("has version {found} of the format; this Lapwing reads version {known}")]
    OtherVersion {
        /// The version of the file.
        found: u32,
        /// The version that is known.
        known: u32,
    },
    /// A line is not what it should be.
    #[error("line {number}: {reason}")]
    Line {
        /// Counted from 1.
        number: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// It is larger than the limit.
    #[error("is larger than {0} bytes; --max-size raises the limit")]
    TooLarge(u64),
    /// There is nothing in it.
    #[error("has no requests")]
    Empty,
}

/// Reads values of one type, a line each.
#[derive(Debug)]
pub struct JsonLines<R> {
    reader: R,
    limits: FileLimits,
    /// Of the line that was read last, from 1.
    number: u64,
    read: u64,
    line: Vec<u8>,
}

impl<R: BufRead> JsonLines<R> {
    /// Reads from `reader` within `limits`.
    pub const fn new(reader: R, limits: FileLimits) -> Self {
        Self { reader, limits, number: 0, read: 0, line: Vec::new() }
    }

    /// The next value; `None` at the end. Empty lines are skipped.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, exceeds a limit, or the line is not such a value.
    pub fn next_value<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FileError> {
        loop {
            self.line.clear();
            self.number += 1;
            let most = self.limits.line as u64 + 1;
            let length = self.reader.by_ref().take(most).read_until(b'\n', &mut self.line)?;
            if length == 0 {
                return Ok(None);
            }
            if length as u64 == most && self.line.last() != Some(&b'\n') {
                return Err(self.fault(format!("is longer than {} bytes", self.limits.line)));
            }
            self.read += length as u64;
            if self.read > self.limits.file {
                return Err(FileError::TooLarge(self.limits.file));
            }
            if self.line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if self.line.last() != Some(&b'\n') {
                return Err(self.fault("is cut off".to_owned()));
            }
            return serde_json::from_slice(&self.line).map(Some).map_err(|error| {
                // the position within the line is of use, the line number of the parser is not
                let reason = error.to_string();
                let reason = reason.split(" at line ").next().unwrap_or_default();
                self.fault(format!("column {}: {reason}", error.column()))
            });
        }
    }

    /// A fault of the line that was read last.
    pub(crate) fn fault(&self, reason: String) -> FileError {
        FileError::Line { number: self.number, reason: error_text(&reason) }
    }
}

/// A value as a line of a file.
///
/// # Errors
///
/// If it cannot be written as JSON.
pub fn to_line(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}
