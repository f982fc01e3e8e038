//! The file of recorded requests (`.lwr`), what records them (`recorder`, without what `redaction` leaves out), and the file of the pairs
//! of a replay. docs/RECORDING.md describes both files.
//!
//! Both are lines of JSON. The first line names the format and its version; bodies are base64. Times are nanoseconds. Reading is
//! bounded (a line, the whole file, the number of requests), and a file that is broken anywhere is refused with the number of the
//! line.

mod exchange;
mod lines;
mod pairs_file;
mod recorder;
mod redaction;

#[cfg(test)]
mod tests;

pub use exchange::{
    MAX_AT_NS, RecordedAnswer, RecordedExchange, Recording, RecordingEnd, RecordingHeader, RecordingLine, read_recording,
};
pub use lines::{FileError, FileLimits, JsonLines, to_line};
pub use pairs_file::{PairEvent, PairsHeader, read_pairs};
pub use recorder::{RecordAccounts, RecordOptions, RecordedLines, Recorder};
