//! The figures as lines, where standard output is no terminal: every five seconds one for each series with traffic, and one when Lapwing
//! stops or begins to answer.

use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use tokio::sync::mpsc;

use super::args::TopArgs;
use super::feed::{self, Reading};
use super::rows::{Order, Sort, rows};
use super::signals::Signals;
use crate::stats::{Stats, figures_line};
use lapwing_ledger::clock;

/// Readings between lines: five seconds.
const READINGS: usize = 5;
/// The most series at once, those that took the most time.
const SERIES: usize = 20;

/// Prints until a signal comes, or the reader is gone. Returns the exit code.
///
/// # Errors
///
/// If standard output cannot be written.
pub(crate) async fn print(args: &TopArgs, mut signals: Signals) -> io::Result<u8> {
    let (sender, mut readings) = mpsc::channel(1);
    let path = args.path();
    let mut printer = Printer::default();
    let printing = async {
        while let Some(reading) = readings.recv().await {
            let text = printer.lines(&reading, clock::unix_ns());
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())?;
        }
        Ok::<u8, io::Error>(0)
    };
    tokio::select! {
        code = signals.first() => Ok(code),
        ended = printing => ended,
        () = feed::follow(&args.admin, &path, sender) => Ok(0),
    }
}

/// What was printed before.
#[derive(Debug, Default)]
struct Printer {
    lost: Option<String>,
    /// Readings since the last line.
    unread: usize,
}

impl Printer {
    /// The lines for a reading, at `now_ns` since 1970: none if it is not yet time, or nothing changed.
    fn lines(&mut self, reading: &Reading, now_ns: u64) -> String {
        let at = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_nanos(now_ns));
        match reading {
            Reading::Lost(reason) => {
                if self.lost.as_ref() == Some(reason) {
                    return String::new();
                }
                self.lost = Some(reason.clone());
                format!("{at} {reason}; trying again each second\n")
            }
            Reading::Figures(stats) => {
                let is_due = self.unread == 0 || self.lost.take().is_some();
                self.unread = if is_due { 1 } else { (self.unread + 1) % READINGS };
                if is_due { text(stats, &at.to_string()) } else { String::new() }
            }
        }
    }
}

fn text(stats: &Stats, at: &str) -> String {
    let rows = rows(stats, Order { by: Sort::Time, is_reversed: false }, "");
    if rows.is_empty() {
        return format!("{at} no requests in the window\n");
    }
    let line = |row: &super::rows::SeriesRow<'_>| format!("{at} {}: {}\n", row.title(200), figures_line(row.series, row.rate));
    let mut text: String = rows.iter().take(SERIES).map(line).collect();
    if rows.len() > SERIES {
        text += &format!("{at} {} further series\n", rows.len() - SERIES);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Reading {
        let series = serde_json::json!([
            {"route": "POST /v2", "model": "m\u{1b}c", "count": 20, "total": {"count": 20, "mean_ns": 1e6, "p50_ns": 1e6, "p99_ns": 2e6},
             "stages": {"forward": {"count": 20, "share": 0.75}}},
            {"route": "GET /", "count": 1, "errors": 1}
        ]);
        let stats = serde_json::json!({"covered_ns": 10_000_000_000_u64, "series": series});
        Reading::Figures(Box::new(serde_json::from_value(stats).unwrap()))
    }

    #[test]
    fn every_fifth_reading_is_told_and_each_change() {
        let mut printer = Printer::default();
        let wanted = "1970-01-01T00:00:01Z POST /v2, model m\\u{1b}c: 2.0 requests/s, no errors, p50 1.00 ms, p99 2.00 ms: forward 75.0 %\n\
                      1970-01-01T00:00:01Z GET /: 0.1 requests/s, 1 error, none answered: no stages yet\n";
        assert_eq!(printer.lines(&figures(), 1_000_000_000), wanted);
        let told: Vec<bool> = (0..10).map(|_| !printer.lines(&figures(), 0).is_empty()).collect();
        assert_eq!(told, [false, false, false, false, true, false, false, false, false, true]);
        let lost = || Reading::Lost("127.0.0.1:1: cannot connect".to_owned());
        assert_eq!(printer.lines(&lost(), 0), "1970-01-01T00:00:00Z 127.0.0.1:1: cannot connect; trying again each second\n");
        assert_eq!(printer.lines(&lost(), 0), "", "said before");
        assert!(!printer.lines(&figures(), 0).is_empty(), "it is back");
        let quiet = Reading::Figures(Box::default());
        assert_eq!(Printer::default().lines(&quiet, 0), "1970-01-01T00:00:00Z no requests in the window\n");
    }
}
