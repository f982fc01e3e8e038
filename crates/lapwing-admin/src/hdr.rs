//! `/hdr`: every histogram in full, as an HdrHistogram V2 interval log that merges across pods.
//!
//! One line for each series and measure, tagged `measure;route=…;model=…;upstream=…` with everything but letters, digits
//! and `-._~/{}:` percent-encoded. For a measure per unit of work, `;unit=…` follows the measure; for a cost class, `;from=…` and
//! `;unit=…` do, and for a debt `;optimum=…` too. Values are nanoseconds, picoseconds per unit, or millionths of a debt. The maximum
//! that each line shows in clear is divided by a million: milliseconds, microseconds per unit, or the debt itself.

use std::fmt::Write as _;
use std::io;
use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::surfaces::Surfaces;
use lapwing_ledger::Unit;
use lapwing_metrics::gather;
use lapwing_metrics::{HistogramScratch, Measure, SeriesSnapshot, Window};

/// Writes the log of `window`. Each interval begins with the window; its times are seconds since the start of the process.
///
/// # Errors
///
/// The reason, when a histogram cannot be encoded or written.
pub(crate) fn log(surfaces: &Surfaces, window: Window, out: &mut impl io::Write) -> Result<(), String> {
    let covered = Duration::from_nanos(surfaces.registry.lock().covered_ns(window));
    let began = Duration::from_nanos(surfaces.started.elapsed()).saturating_sub(covered);
    let started = UNIX_EPOCH + Duration::from_nanos(surfaces.started_unix_ns);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment(concat!(
            "lapwing ",
            env!("CARGO_PKG_VERSION"),
            "; nanoseconds; per unit: picoseconds; computational_debt: millionths"
        ))
        .with_start_time(started)
        .with_base_time(started)
        .with_max_value_divisor(1e6)
        .begin_log_with(out, &mut serializer)
        .map_err(|e| e.to_string())?;
    let mut scratch = HistogramScratch::default();
    let written = gather::series(&surfaces.registry, window, |series| {
        for measure in Measure::all().filter(|measure| series.figures.values(*measure) > 0) {
            let histogram = series.fill(measure, &mut scratch);
            let tag = tag(series, measure);
            log.write_histogram(histogram, began, covered, Tag::new(&tag)).map_err(|e| e.to_string())?;
        }
        Ok::<(), String>(())
    });
    written.into_iter().collect()
}

fn tag(series: &SeriesSnapshot, measure: Measure) -> String {
    let mut tag = measure.name().to_owned();
    let unit = match measure {
        Measure::PerUnit(slot) => series.unit(slot).map(Unit::per_name),
        Measure::Class(class) | Measure::Debt(class) => {
            let _ = write!(tag, ";from={}", 1_u64 << class);
            series.facts.primary.map(Unit::name)
        }
        _ => None,
    };
    if let Some(unit) = unit {
        let _ = write!(tag, ";unit={unit}");
    }
    let optimum = series.optimum.as_ref().filter(|_| matches!(measure, Measure::Debt(_)));
    let common = [("route", &series.route), ("model", &series.model), ("upstream", &series.upstream)];
    for (name, text) in optimum.map(|text| ("optimum", text)).into_iter().chain(common) {
        let _ = write!(tag, ";{name}=");
        for byte in text.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~/{}:".contains(&byte) {
                tag.push(char::from(byte));
            } else {
                let _ = write!(tag, "%{byte:02X}");
            }
        }
    }
    tag
}
