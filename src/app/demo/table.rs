//! The demo's live table: one series of `/stats`, the five main stages first, redrawn in place on a terminal.
//!
//! Durations are p50, p90 and p99 of the window as the admin address gives them; nothing is computed from quantiles here.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::stats::{Figures, Series, Stats};
use super::units::{duration, percent};
use crate::ledger::{Stage, Stamp};

/// Between redraws on a terminal.
const REDRAW: Duration = Duration::from_secs(1);
/// Redraws to one block where the output is no terminal.
const QUIET: u64 = 5;
/// The window of the live table.
const WINDOW_S: f64 = 10.0;

/// Draws the table until `stop`: each second in place if standard output is a terminal, else a block every five seconds.
///
/// # Errors
///
/// Where standard output cannot be written. An admin address that does not answer is shown, and asked again.
pub async fn show(admin: SocketAddr, stop: CancellationToken) -> io::Result<()> {
    let is_terminal = io::stdout().is_terminal();
    let mut client = Client::new(admin);
    let mut screen = Screen::default();
    let began = Stamp::now();
    let mut ticks = tokio::time::interval(REDRAW);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    for tick in 1.. {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => break,
        }
        if !is_terminal && tick % QUIET != 0 {
            continue;
        }
        let seconds = began.elapsed() as f64 / 1e9;
        let stats = tokio::select! {
            stats = fetch(&mut client, "/stats?window=10s") => stats,
            () = stop.cancelled() => break,
        };
        let body = match stats {
            Ok(stats) => render(&stats, seconds.min(WINDOW_S), "last 10 s"),
            Err(reason) => format!("no statistics: {reason}\n"),
        };
        let text = format!("lapwing demo, {seconds:.0} s; the same figures: curl 'http://{admin}/stats?window=10s'\n{body}");
        screen.draw(&mut io::stdout().lock(), &text, is_terminal)?;
    }
    Ok(())
}

/// The table of everything since the start, `seconds` ago; the reason where the admin address does not give it.
pub(super) async fn since_start(admin: SocketAddr, seconds: f64) -> String {
    match fetch(&mut Client::new(admin), "/stats?window=all").await {
        Ok(stats) => render(&stats, seconds, "since the start"),
        Err(reason) => format!("no statistics: {reason}\n"),
    }
}

async fn fetch(client: &mut Client, path: &str) -> Result<Stats, String> {
    let (status, body) = client.get(path).await.map_err(|e| e.to_string())?;
    if !status.is_success() {
        return Err(format!("{path}: status {status}"));
    }
    serde_json::from_slice(&body).map_err(|e| format!("{path}: {e}"))
}

/// Text on a terminal that replaces what it drew before.
#[derive(Debug, Default)]
struct Screen {
    lines: usize,
}

impl Screen {
    fn draw(&mut self, out: &mut impl Write, text: &str, in_place: bool) -> io::Result<()> {
        if in_place && self.lines > 0 {
            // Up to the first of our lines, and clear from there to the end of the screen.
            write!(out, "\x1b[{}F\x1b[J", self.lines)?;
        }
        self.lines = text.lines().count();
        out.write_all(text.as_bytes())?;
        if !in_place {
            out.write_all(b"\n")?;
        }
        out.flush()
    }
}

/// The busiest series as a table; `seconds` is how long its window is.
fn render(stats: &Stats, seconds: f64, window: &str) -> String {
    let Some(series) = stats.busiest() else {
        return "no requests yet\n".to_owned();
    };
    let mut out = headline(series, seconds, window);
    let others = stats.series.iter().filter(|s| s.count > 0).count() - 1;
    if others > 0 {
        let _ = writeln!(out, "({others} other series not shown)");
    }
    let _ = writeln!(out, "\n{:<15}{:>10}{:>10}{:>10}{:>9}   source", "stage", "p50", "p90", "p99", "share");
    let first = Stage::FIRST_FIVE.iter().map(|s| (s.name(), true));
    let rest = Stage::ALL.iter().filter(|s| !Stage::FIRST_FIVE.contains(s)).map(|s| (s.name(), false));
    for (stage, always) in first.chain(rest) {
        match series.stages.get(stage).filter(|f| f.count > 0) {
            Some(figures) => line(&mut out, stage, figures),
            None if always => line(&mut out, stage, &Figures::default()),
            None => {}
        }
    }
    for (stage, figures) in series.stages.iter().filter(|(s, f)| f.count > 0 && Stage::from_name(s).is_none()) {
        line(&mut out, stage, figures);
    }
    line(&mut out, "total", &series.total);
    out
}

fn headline(series: &Series, seconds: f64, window: &str) -> String {
    let route = series.route.as_deref().unwrap_or("any route");
    let model = series.model.as_deref().unwrap_or("none");
    let rate = series.count as f64 / seconds.max(1e-3);
    let coverage = series.coverage.map_or_else(|| "unknown".to_owned(), percent);
    let (count, errors) = (series.count, series.errors);
    format!("{route}, model {model}, {window}\n{rate:.1} requests/s, {count} requests, {errors} errors, coverage {coverage}\n")
}

fn line(out: &mut String, stage: &str, figures: &Figures) {
    let time = |ns: f64| if figures.count == 0 { "-".to_owned() } else { duration(ns) };
    let share = figures.share.filter(|_| figures.count > 0).map_or_else(String::new, percent);
    let source = if stage == "total" { String::new() } else { figures.source() };
    let (p50, p90, p99) = (time(figures.p50_ns), time(figures.p90_ns), time(figures.p99_ns));
    let text = format!("{stage:<15}{p50:>10}{p90:>10}{p99:>10}{share:>9}   {source}");
    let _ = writeln!(out, "{}", text.trim_end());
}

#[cfg(test)]
mod tests;
