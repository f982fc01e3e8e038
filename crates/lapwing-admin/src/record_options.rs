//! What `/record` may be asked for: the share, the duration and the bounds of a recording; and what starts one.

use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use tokio::sync::mpsc;

use super::query;
use lapwing_metrics::views::QueryError;
use lapwing_settings::{Period, Share, Size};

/// What is to be recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordOptions {
    /// The share of requests. Default 1%.
    pub sample: Share,
    /// For how long. Default 10 min; at most 24 h.
    pub duration: Period,
    /// How many requests at most. Default 1,000,000.
    pub max_requests: u64,
    /// How many bytes at most. Default 1 GiB.
    pub max_size: Size,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self {
            sample: "1%".parse().unwrap_or_else(|_| unreachable!("a share")),
            duration: Period::from_secs(600),
            max_requests: 1_000_000,
            max_size: Size::mib(1024),
        }
    }
}

/// The longest recording.
const MAX_DURATION: Period = Period::from_secs(24 * 3600);

/// The lines of a recording as they come; the end of the channel is the end of the recording.
pub type RecordedLines = mpsc::Receiver<Bytes>;

/// Starts a recording, or says why none can be started now.
pub type StartRecording = Arc<dyn Fn(RecordOptions) -> Result<RecordedLines, String> + Send + Sync>;

/// What a query asks for.
pub(crate) fn options(uri: &Uri) -> Result<RecordOptions, QueryError> {
    let [sample, duration, max_requests, max_size] = query::fields(uri, ["sample", "for", "max_requests", "max_size"])?;
    let default = RecordOptions::default();
    let options = RecordOptions {
        sample: parsed("sample", sample, default.sample)?,
        duration: parsed("for", duration, default.duration)?,
        max_requests: parsed("max_requests", max_requests, default.max_requests)?,
        max_size: parsed("max_size", max_size, default.max_size)?,
    };
    if options.duration > MAX_DURATION {
        let (value, reason) = (options.duration.to_string(), "must be at most 24h".to_owned());
        return Err(QueryError::Invalid { field: "for", value, reason });
    }
    Ok(options)
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(field: &'static str, value: Option<String>, default: T) -> Result<T, QueryError> {
    let Some(value) = value else { return Ok(default) };
    value.parse().map_err(|error: T::Err| QueryError::Invalid { field, value, reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_says_what_and_for_how_long() {
        let read = |query: &str| options(&format!("/record{query}").parse().unwrap());
        assert_eq!(read(""), Ok(RecordOptions::default()));
        let wanted = RecordOptions {
            sample: "50%".parse().unwrap(),
            duration: Period::from_secs(90),
            max_requests: 7,
            max_size: Size::mib(2),
        };
        assert_eq!(read("?sample=50%25&for=1m30s&max_requests=7&max_size=2MiB"), Ok(wanted));
        for (query, reason) in [
            ("?sample=7", "sample=\"7\""),
            ("?for=25h", "at most 24h"),
            ("?for=ten", "for=\"ten\""),
            ("?max_requests=-1", "max_requests=\"-1\""),
            ("?rate=5", "no such field"),
        ] {
            let error = read(query).unwrap_err().to_string();
            assert!(error.contains(reason), "{query}: {error}");
        }
    }
}
