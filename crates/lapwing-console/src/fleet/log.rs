//! Reads and writes the logs of `/hdr`: HdrHistogram's interval log, version 1.3, whose tags name the measure and the series.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};

/// A log that is longer than this is none of Lapwing's, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// The histograms of one or more logs, each measure of each series once.
#[derive(Debug, Default)]
pub(crate) struct HdrLog {
    /// In the order in which they were first read.
    lines: Vec<Line>,
    places: HashMap<String, usize>,
}

/// A measure of a series.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The whole tag, as it was read.
    pub(crate) tag: String,
    pub(crate) series: SeriesName,
    /// The measure with what distinguishes it: `total`, `forward_per_unit;unit=row`.
    pub(crate) measure: String,
    pub(crate) histogram: Histogram<u64>,
}

/// A route, model and upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SeriesName {
    pub(crate) route: String,
    pub(crate) model: String,
    pub(crate) upstream: String,
}

impl HdrLog {
    /// Adds the histograms of a file to those that are there.
    ///
    /// # Errors
    ///
    /// Why the file cannot be read, or is no log of Lapwing's; the message names the file and the entry.
    pub(crate) fn add_file(&mut self, path: &Path) -> Result<(), String> {
        let named = |reason: String| format!("{}: {reason}", path.display());
        let length = std::fs::metadata(path).map_err(|error| named(error.to_string()))?.len();
        if length > MAX_BYTES {
            return Err(named(format!("has {length} bytes, and a log at most {MAX_BYTES}")));
        }
        let text = std::fs::read(path).map_err(|error| named(error.to_string()))?;
        self.add_text(&text).map_err(named)
    }

    fn add_text(&mut self, text: &[u8]) -> Result<(), String> {
        let mut deserializer = Deserializer::new();
        let mut number = 0;
        for entry in IntervalLogIterator::new(text) {
            let entry = entry.map_err(|error| format!("is no HdrHistogram interval log: after interval {number}: {error:?}"))?;
            let LogEntry::Interval(line) = entry else { continue };
            number += 1;
            let at = |reason: &dyn std::fmt::Display| format!("interval {number}: {reason}");
            let tag = line.tag().ok_or_else(|| at(&"has no tag; only logs of Lapwing's /hdr can be read"))?;
            let encoded = STANDARD.decode(line.encoded_histogram()).map_err(|error| at(&error))?;
            let histogram = deserializer.deserialize(&mut &encoded[..]).map_err(|error| at(&format!("{error:?}")))?;
            self.add(tag.as_str(), histogram).map_err(|reason| at(&reason))?;
        }
        if number == 0 {
            return Err("has no intervals; is it a log of /hdr?".to_owned());
        }
        Ok(())
    }

    pub(crate) fn add(&mut self, tag: &str, histogram: Histogram<u64>) -> Result<(), String> {
        if let Some(place) = self.places.get(tag) {
            return self.lines[*place].histogram.add(histogram).map_err(|error| format!("{tag}: {error}"));
        }
        let (series, measure) = SeriesName::split(tag).ok_or_else(|| format!("{tag}: is no tag of Lapwing's /hdr"))?;
        self.places.insert(tag.to_owned(), self.lines.len());
        self.lines.push(Line { tag: tag.to_owned(), series, measure, histogram });
        Ok(())
    }

    /// The series, each with its measures in the order in which they were read.
    pub(crate) fn series(&self) -> Vec<(&SeriesName, Vec<&Line>)> {
        let mut found: std::collections::BTreeMap<&SeriesName, Vec<&Line>> = std::collections::BTreeMap::new();
        for line in &self.lines {
            found.entry(&line.series).or_default().push(line);
        }
        found.into_iter().collect()
    }

    /// Writes all as one log, which can be read again.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(crate) fn write(&self, out: &mut impl io::Write) -> Result<(), String> {
        let mut serializer = V2DeflateSerializer::new();
        let mut log = IntervalLogWriterBuilder::new()
            .add_comment("[Histogram log format version 1.3]")
            .add_comment(concat!("lapwing ", env!("CARGO_PKG_VERSION"), "; merged"))
            .with_max_value_divisor(1e6)
            .begin_log_with(out, &mut serializer)
            .map_err(|error| error.to_string())?;
        for line in &self.lines {
            let written = log.write_histogram(&line.histogram, Duration::ZERO, Duration::ZERO, Tag::new(&line.tag));
            written.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

impl SeriesName {
    /// The series and the measure of a tag: `measure[;…];route=…;model=…;upstream=…`.
    fn split(tag: &str) -> Option<(Self, String)> {
        let (rest, upstream) = tag.rsplit_once(";upstream=")?;
        let (rest, model) = rest.rsplit_once(";model=")?;
        let (measure, route) = rest.rsplit_once(";route=")?;
        let name = Self { route: decoded(route)?, model: decoded(model)?, upstream: decoded(upstream)? };
        Some((name, decoded(measure)?))
    }
}

/// A percent-encoded text.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        bytes.push(match first {
            b'%' => {
                let (digits, tail) = tail.split_first_chunk::<2>()?;
                rest = tail;
                u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
            }
            other => *other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: &str = "class;from=4;unit=row;route=POST%20/v2/{model};model=a%3Bb;upstream=http://127.0.0.1:8000";

    fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1_000, 3_600_000_000_000, 3).unwrap();
        values.into_iter().for_each(|value| histogram.record(value).unwrap());
        histogram
    }

    #[test]
    fn what_is_written_is_read_and_adds_up() {
        let (mut one, mut text) = (HdrLog::default(), Vec::new());
        one.add(TAG, histogram(1_000_000..1_000_100)).unwrap();
        one.write(&mut text).unwrap();
        let mut both = HdrLog::default();
        both.add_text(&text).unwrap();
        both.add_text(&text).unwrap();
        let ((name, lines),) = (both.series()[0].clone(),);
        assert_eq!((name.route.as_str(), name.model.as_str()), ("POST /v2/{model}", "a;b"));
        assert_eq!((lines[0].measure.as_str(), lines[0].histogram.len()), ("class;from=4;unit=row", 200));
        assert_eq!(lines[0].histogram.max(), one.lines[0].histogram.max());
    }

    #[test]
    fn what_is_no_log_is_named() {
        let fault = |text: &str| HdrLog::default().add_text(text.as_bytes()).unwrap_err();
        assert!(fault("").contains("no intervals"));
        assert!(fault("{\"series\": []}").contains("is no HdrHistogram interval log"));
        assert!(fault("0.0,1.0,2.0,AAAA\n").contains("interval 1: has no tag"));
        assert!(fault("Tag=total;route=a;model=b;upstream=c,0.0,1.0,2.0,AAAA\n").contains("interval 1: "));
        let mut log = HdrLog::default();
        assert!(log.add("total;route=a", histogram([])).unwrap_err().contains("is no tag"));
        assert!(log.add("total;route=%zz;model=b;upstream=c", histogram([])).is_err());
    }
}
