//! Lines of JSON within bounds, and how they hold values of HTTP: texts as texts, header fields as pairs, bodies as base64. A line is
//! read into memory before it is parsed, and never more than one.

use std::io::{self, BufRead, Read};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::de::DeserializeOwned;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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

/// The most header fields of a message.
const MAX_FIELDS: usize = 1024;

/// Methods and paths.
pub(crate) mod text {
    use std::fmt::Display;
    use std::str::FromStr;

    use super::{Deserialize, Deserializer, Error, Serializer};

    pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Header fields in their order, as `["name", "value"]`. A value that is not ASCII text is left out.
pub(crate) mod header_fields {
    use super::{Deserialize, Deserializer, Error, HeaderMap, HeaderName, HeaderValue, MAX_FIELDS, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(fields: &HeaderMap, serializer: S) -> Result<S::Ok, S::Error> {
        let texts: Vec<_> = fields.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))).collect();
        texts.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HeaderMap, D::Error> {
        let texts = Vec::<(String, String)>::deserialize(deserializer)?;
        if texts.len() > MAX_FIELDS {
            return Err(D::Error::custom(format!("{} header fields; there may be {MAX_FIELDS}", texts.len())));
        }
        let mut fields = HeaderMap::with_capacity(texts.len());
        for (name, value) in texts {
            let name = HeaderName::try_from(&name).map_err(|_| D::Error::custom(format!("{name:?} is no header's name")))?;
            let value = HeaderValue::try_from(&value).map_err(|_| D::Error::custom(format!("{value:?} is no header's value")))?;
            fields.append(name, value);
        }
        Ok(fields)
    }
}

/// A body.
pub(crate) mod base64_body {
    use super::{BASE64_STANDARD, Bytes, Deserialize, Deserializer, Engine, Error, Serializer};

    pub(crate) fn serialize<S: Serializer>(body: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(body))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text.as_bytes()).map(Bytes::from).map_err(|error| D::Error::custom(format!("no base64: {error}")))
    }
}
