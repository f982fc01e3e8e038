//! A recording: its lines, and how a whole one is read.

use std::collections::BTreeMap;
use std::io::BufRead;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};

use super::lines::{FileError, FileLimits, JsonLines, base64_body, header_fields, text};
use crate::SideAccount;

/// The latest arrival, from the start of a recording: 7 days, in nanoseconds.
pub const MAX_AT_NS: u64 = 7 * 24 * 3600 * 1_000_000_000;

/// The first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordingHeader {
    /// `lapwing-recording`.
    pub format: String,
    /// The version of the format.
    pub version: u32,
    /// The version of the Lapwing that recorded.
    pub lapwing: String,
    /// When the recording began, in nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// The upstream that answered.
    pub upstream: String,
    /// The share of requests that was recorded, `0..=1`.
    pub sample: f64,
}

impl RecordingHeader {
    /// The name of the format.
    pub const FORMAT: &'static str = "lapwing-recording";
    /// The version that is written and read.
    pub const VERSION: u32 = 1;

    /// The first line of a recording that begins now.
    #[must_use]
    pub fn new(started_unix_ns: u64, upstream: String, sample: f64) -> Self {
        let lapwing = env!("CARGO_PKG_VERSION").to_owned();
        Self { format: Self::FORMAT.to_owned(), version: Self::VERSION, lapwing, started_unix_ns, upstream, sample }
    }
}

/// A further line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingLine {
    /// A request and what became of it.
    Exchange(Box<RecordedExchange>),
    /// The last line of a recording that came to its end.
    End(RecordingEnd),
}

/// A recorded request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedExchange {
    /// When its first byte arrived, from the start of the recording.
    pub at_ns: u64,
    /// The method.
    #[serde(with = "text")]
    pub method: Method,
    /// Path and query.
    #[serde(with = "text")]
    pub path: PathAndQuery,
    /// Whether the client spoke HTTP/2.
    #[serde(default)]
    pub http2: bool,
    /// The header fields, without secrets and without those that only concern the connection.
    #[serde(with = "header_fields")]
    pub headers: HeaderMap,
    /// The body.
    #[serde(with = "base64_body")]
    pub body: Bytes,
    /// What the upstream answered; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<RecordedAnswer>,
    /// What it took at the upstream; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<SideAccount>,
}

/// A recorded answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The header fields that say how the body is to be read.
    #[serde(with = "header_fields")]
    pub headers: HeaderMap,
    /// `grpc-status` of the trailers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc_status: Option<u32>,
    /// The body.
    #[serde(with = "base64_body")]
    pub body: Bytes,
}

/// The last line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingEnd {
    /// How many requests were written.
    pub requests: u64,
    /// How many sampled requests were not, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// How many accounts came faster than they were taken. Their requests are written without one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub accounts_lost: u64,
    /// From the start to the end.
    pub duration_ns: u64,
    /// Why it ended: `time`, `requests`, `size`, `shutdown`.
    pub reason: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A whole recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The first line.
    pub header: RecordingHeader,
    /// The requests in the order of their arrival.
    pub exchanges: Vec<RecordedExchange>,
    /// The last line; `None` if the recording broke off.
    pub end: Option<RecordingEnd>,
}

/// Reads a whole recording into memory, the requests in the order of their arrival.
///
/// # Errors
///
/// If it is no recording, is broken anywhere, exceeds a limit, or has no request. A recording without its last line is read.
pub fn read_recording(reader: impl BufRead, limits: FileLimits) -> Result<Recording, FileError> {
    let mut lines = JsonLines::new(reader, limits);
    let header: RecordingHeader = first(&mut lines, RecordingHeader::FORMAT, RecordingHeader::VERSION)?;
    let (mut exchanges, mut end) = (Vec::new(), None);
    while let Some(line) = lines.next_value()? {
        if end.is_some() {
            return Err(lines.fault("stands behind the end".to_owned()));
        }
        match line {
            RecordingLine::End(last) => end = Some(last),
            RecordingLine::Exchange(exchange) => {
                let RecordedExchange { at_ns, path, answer, .. } = &*exchange;
                if *at_ns > MAX_AT_NS {
                    return Err(lines.fault(format!("at_ns: {at_ns} is later than 7 days")));
                }
                if !path.as_str().starts_with('/') {
                    return Err(lines.fault(format!("path: {path:?} does not begin with /")));
                }
                if let Some(answer) = answer.as_ref().filter(|answer| !(100..1000).contains(&answer.status)) {
                    return Err(lines.fault(format!("status: {} is none", answer.status)));
                }
                exchanges.push(*exchange);
            }
        }
    }
    if exchanges.is_empty() {
        return Err(FileError::Empty);
    }
    exchanges.sort_by_key(|exchange| exchange.at_ns);
    Ok(Recording { header, exchanges, end })
}

/// The first line, which names the format.
pub(crate) fn first<T: serde::de::DeserializeOwned>(
    lines: &mut JsonLines<impl BufRead>,
    format: &'static str,
    version: u32,
) -> Result<T, FileError> {
    let value = match lines.next_value::<serde_json::Value>() {
        Ok(Some(value)) => value,
        Err(FileError::Io(error)) => return Err(FileError::Io(error)),
        _ => return Err(FileError::OtherFormat(format)),
    };
    if value.get("format").and_then(serde_json::Value::as_str) != Some(format) {
        return Err(FileError::OtherFormat(format));
    }
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(found) if found == u64::from(version) => {}
        found => {
            let found = found.and_then(|found| u32::try_from(found).ok()).unwrap_or(0);
            return Err(FileError::OtherVersion { found, known: version });
        }
    }
    serde_json::from_value(value).map_err(|error| lines.fault(error.to_string()))
}
