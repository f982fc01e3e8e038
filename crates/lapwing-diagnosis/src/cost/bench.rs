//! A calibration: what `lapwing engine bench --json` printed of one model, read as the engine's cost line of that model.
//!
//! A line is fitted to the median forward passes over the units of each case: tokens of all sequences, or rows where a model has
//! none. Times are nanoseconds.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;

use super::line::{self, CostLine};
use super::machine::processor_name;
use super::optimum::MemoryTraffic;
use lapwing_ledger::Unit;

/// The largest file that is read. A benchmark of some cases has some kilobytes, with all samples some megabytes.
const MAX_BYTES: u64 = 16 << 20;

/// Why a file is no calibration.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// It is too large.
    #[error("is larger than 16 MiB")]
    TooLarge,
    /// A line is not a row of a benchmark.
    #[error("line {line} is not a row of `lapwing engine bench --json`: {cause}")]
    Row {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        cause: serde_json::Error,
    },
    /// The rows were not measured alike.
    #[error(
        "line {line} differs from the rows before it in {what}: keep one model, device, precision and number of threads in a file"
    )]
    Differs {
        /// Its number, from 1.
        line: usize,
        /// What differs.
        what: &'static str,
    },
    /// There are too few sizes.
    #[error("needs cases of at least two sizes, as by --batch 1,8,32")]
    OneSize,
}

/// The engine's cost of a model, as it was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchFile {
    /// The time of a forward pass.
    pub line: CostLine,
    /// The bytes that it moves at least, over what the machine's memory delivers; `None` where the model's bytes are unknown.
    pub memory: Option<MemoryTraffic>,
    /// What ran it, where, and when.
    pub source: String,
}

/// The fields that are read. A row with a `case` is not of a batch.
#[derive(Clone, Debug, Deserialize)]
struct Row {
    case: Option<String>,
    /// Bytes a second from memory, of the peaks.
    dram_bytes_per_s: Option<f64>,
    #[serde(default)]
    model: String,
    #[serde(default)]
    device: String,
    device_name: Option<String>,
    processor: Option<String>,
    #[serde(default)]
    precision: String,
    threads: Option<u64>,
    measured_at: Option<String>,
    batch: Option<u64>,
    length: Option<u64>,
    p50_us: Option<f64>,
    min_bytes: Option<u64>,
}

impl BenchFile {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// [`BenchError`] says what is wrong with it.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        let mut text = String::new();
        File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(BenchError::TooLarge);
        }
        Self::parse(&text, processor_name().as_deref())
    }

    /// Reads the rows in `text`; `here` is this machine's processor.
    #[expect(clippy::cast_precision_loss, reason = "a fit")]
    fn parse(text: &str, here: Option<&str>) -> Result<Self, BenchError> {
        let (mut first, mut times, mut bytes, mut dram) = (None::<Row>, Vec::new(), Vec::new(), None);
        for (at, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
            let line = at + 1;
            let row: Row = serde_json::from_str(text).map_err(|cause| BenchError::Row { line, cause })?;
            dram = dram.or(row.dram_bytes_per_s.filter(|rate| *rate > 0.0));
            let (None, Some(batch), Some(p50_us)) = (&row.case, row.batch, row.p50_us.filter(|us| *us > 0.0)) else { continue };
            if let Some(what) = first.as_ref().and_then(|first| first.difference(&row)) {
                return Err(BenchError::Differs { line, what });
            }
            let units = (batch * row.length.unwrap_or(1)) as f64;
            times.push((units, p50_us * 1e3));
            bytes.extend(row.min_bytes.filter(|bytes| *bytes > 0).map(|bytes| (units, bytes as f64)));
            first.get_or_insert(row);
        }
        let (Some(first), Some((fixed_ns, ns_per_unit))) = (first, line::fit(&times)) else { return Err(BenchError::OneSize) };
        let unit = if first.length.is_some() { Unit::InputToken } else { Unit::Row };
        let memory = line::fit(&bytes).zip(dram);
        Ok(Self {
            line: CostLine { fixed_ns, ns_per_unit, unit },
            memory: memory.map(|((fixed_bytes, bytes_per_unit), bytes_per_s)| MemoryTraffic {
                fixed_bytes,
                bytes_per_unit,
                bytes_per_s,
            }),
            source: first.source(here),
        })
    }
}

impl Row {
    /// The first thing in which a row was measured differently.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        let same = [
            ("its model", self.model == other.model),
            ("its device", self.device == other.device && self.device_name == other.device_name),
            ("its precision", self.precision == other.precision),
            ("its number of threads", self.threads == other.threads),
            ("its unit", self.length.is_some() == other.length.is_some()),
        ];
        same.into_iter().find(|(_, is_same)| !is_same).map(|(what, _)| what)
    }

    /// `engine on this machine (…), calibrated …`.
    fn source(&self, here: Option<&str>) -> String {
        let is_here = self.processor.is_some() && self.processor.as_deref() == here;
        let machine = if is_here { "this machine" } else { "another machine" };
        let device = self.device_name.as_deref().or(self.processor.as_deref()).unwrap_or(&self.device);
        let threads = match self.threads {
            Some(threads) if self.device == "cpu" => format!(", {threads} thread{}", if threads == 1 { "" } else { "s" }),
            _ => String::new(),
        };
        let when = self.measured_at.as_deref().unwrap_or("at an unknown time");
        format!("engine on {machine} ({device}{threads}, {}), calibrated {when}", self.precision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "Some Processor";

    fn row(batch: u64, p50_us: f64, more: &str) -> String {
        format!(
            r#"{{"model":"m","device":"cpu","executor":"plan","precision":"fp32","threads":1,"processor":"{HERE}",
            "measured_at":"2026-11-22T15:00:00Z","batch":{batch},"p50_us":{p50_us},"min_bytes":{}{more}}}"#,
            1_000 + 40 * batch
        )
        .replace('\n', " ")
    }

    fn parsed(rows: &[String]) -> Result<BenchFile, BenchError> {
        BenchFile::parse(&rows.join("\n"), Some(HERE))
    }

    #[test]
    fn a_benchmark_is_a_cost_line() {
        let peaks = r#"{"case":"peaks","device":"cpu","threads":1,"dram_bytes_per_s":2e9}"#.to_owned();
        let cold = row(1, 900.0, r#","case":"cold_start""#);
        let bench = parsed(&[peaks, cold, row(1, 12.0, ""), String::new(), row(32, 74.0, "")]).unwrap();
        assert!((bench.line.fixed_ns - 10_000.0).abs() < 1e-3 && (bench.line.ns_per_unit - 2_000.0).abs() < 1e-3);
        assert_eq!(bench.line.unit, Unit::Row);
        let memory = bench.memory.unwrap();
        assert!((memory.fixed_bytes - 1_000.0).abs() < 1e-6 && (memory.bytes_per_unit - 40.0).abs() < 1e-6);
        assert!((memory.bytes_per_s - 2e9).abs() < 1.0);
        let source = "engine on this machine (Some Processor, 1 thread, fp32), calibrated 2026-11-22T15:00:00Z";
        assert_eq!(bench.source, source);
    }

    #[test]
    fn tokens_are_those_of_all_sequences() {
        let bench = parsed(&[row(1, 110.0, r#","length":100"#), row(4, 140.0, r#","length":100"#)]).unwrap();
        assert_eq!(bench.line.unit, Unit::InputToken);
        assert!((bench.line.ns_per_unit - 100.0).abs() < 1e-6 && (bench.line.fixed_ns - 100_000.0).abs() < 1e-3);
        assert_eq!(bench.memory, None, "nothing says what its memory delivers");
    }

    #[test]
    fn another_machine_is_named_as_such() {
        let rows = [row(1, 12.0, ""), row(32, 74.0, "")];
        let elsewhere = BenchFile::parse(&rows.join("\n"), Some("Another")).unwrap();
        assert!(elsewhere.source.starts_with("engine on another machine (Some Processor, "), "{}", elsewhere.source);
        let unnamed = BenchFile::parse(&rows.join("\n").replace("processor", "p"), None).unwrap();
        assert!(unnamed.source.starts_with("engine on another machine (cpu, "), "{}", unnamed.source);
    }

    #[test]
    fn a_file_of_something_else_is_refused_with_its_line() {
        let told = |rows: &[String]| parsed(rows).unwrap_err().to_string();
        assert!(told(&[row(1, 1.0, ""), "pip".to_owned()]).starts_with("line 2 is not a row"));
        let two = row(32, 74.0, "").replace(r#""threads":1"#, r#""threads":2"#);
        assert!(told(&[row(1, 12.0, ""), two]).starts_with("line 2 differs from the rows before it in its number of threads"));
        assert!(told(&[row(8, 12.0, ""), row(8, 13.0, "")]).starts_with("needs cases of at least two sizes"));
        assert!(told(&[]).starts_with("needs cases"));
        assert!(BenchFile::read(Path::new("/nowhere")).unwrap_err().to_string().starts_with("cannot be read"));
    }
}
