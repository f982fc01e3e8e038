//! The demo's live view of `/stats`: a table redrawn in place on a terminal, a line every five seconds elsewhere.
//!
//! It reads the admin address as any user would. If that does not answer, it shows the error and tries again. It keeps the figures
//! for the closing sentence.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::closing::{Course, First};
use super::{table, words};
use crate::client::HttpClient;
use crate::tickets::{CacheCounts, CacheReading};
use lapwing_console::stats::Stats;
use lapwing_console::units::percent;
use lapwing_ledger::Stamp;

/// The interval between readings, and between redraws on a terminal.
const EVERY: Duration = Duration::from_secs(1);
/// Readings between lines if the output is not a terminal.
const POLLS_PER_LINE: usize = 5;
/// When the first seconds are over, in seconds.
const FIRST: f64 = 2.0;
/// Readings in the window of the closing sentence, which is ten seconds.
const RECENT: usize = 10;
/// A run of fewer seconds is described as a whole, because its first and last seconds are too close to each other.
const LONG_RUN: f64 = 12.0;
/// The interval between checks whether every request is in the statistics.
const POLL: Duration = Duration::from_millis(100);
/// The number of checks: spans arrive up to 200 ms after their request, and a request is complete soon after them.
const POLLS: u32 = 30;

/// The figures recorded while the demo ran.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    first: Option<First>,
    /// The cache's counts at the last readings, the newest last.
    readings: VecDeque<CacheReading>,
    /// How long the demo ran, in seconds.
    seconds: f64,
}

/// Draws until `stop`: a table each second, in place, if standard output is a terminal; else a line every five seconds.
///
/// # Errors
///
/// If standard output cannot be written. If the admin address does not answer, the error is shown, and it is asked again.
pub(crate) async fn show(admin: SocketAddr, cache: &CacheCounts, stop: CancellationToken) -> io::Result<Watched> {
    let is_terminal = io::stdout().is_terminal();
    let (client, mut screen, mut watched) = (HttpClient::new(admin), Screen::default(), Watched::default());
    let began = Stamp::now();
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    for poll in 1.. {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => break,
        }
        let recent = tokio::select! {
            recent = watched.poll_stats(&client, cache, began) => recent,
            () = stop.cancelled() => break,
        };
        let hit_rate = watched.hit_rate();
        let mut out = io::stdout().lock();
        if is_terminal {
            screen.draw(&mut out, &frame(recent.as_ref(), watched.seconds, hit_rate))?;
        } else if poll % POLLS_PER_LINE == 0 {
            let seconds = watched.seconds;
            let line = match &recent {
                Ok(stats) => words::line(stats, seconds, hit_rate),
                Err(reason) => format!("{seconds:4.0} s  no statistics: {reason}"),
            };
            writeln!(out, "{line}")?;
            out.flush()?;
        }
    }
    watched.seconds = began.elapsed() as f64 / 1e9;
    Ok(watched)
}

impl Watched {
    /// Reads the cache and the statistics of the last ten seconds; keeps the first ones.
    async fn poll_stats(&mut self, client: &HttpClient, cache: &CacheCounts, began: Stamp) -> Result<Stats, String> {
        self.seconds = began.elapsed() as f64 / 1e9;
        let reading = cache.read();
        if self.readings.len() > RECENT {
            self.readings.pop_front();
        }
        self.readings.push_back(reading);
        let recent = fetch(client, "/stats?window=10s").await;
        if let (Ok(stats), true, true) = (&recent, self.first.is_none(), self.seconds >= FIRST)
            && stats.count() > 0
        {
            let hit_rate = reading.hit_rate_since(CacheReading::default());
            self.first = Some(First { seconds: self.seconds, stats: stats.clone(), hit_rate });
        }
        recent
    }

    /// The cache's hit rate between the last two readings.
    fn hit_rate(&self) -> Option<f64> {
        let last = self.readings.back()?;
        let before = self.readings.iter().rev().nth(1).copied().unwrap_or_default();
        last.hit_rate_since(before)
    }

    /// The content of the closing sentence; `all` are the statistics since the start.
    pub(crate) async fn course(self, admin: SocketAddr, cache: &CacheCounts, all: Stats) -> Course {
        let reading = cache.read();
        let recent = if self.seconds < LONG_RUN { None } else { fetch(&HttpClient::new(admin), "/stats?window=10s").await.ok() };
        match recent.filter(Stats::has_stages) {
            Some(last) => {
                let before = self.readings.front().copied().unwrap_or_default();
                Course { first: self.first, last, window: "in the last 10 s", hit_rate: reading.hit_rate_since(before) }
            }
            None => {
                let hit_rate = reading.hit_rate_since(CacheReading::default());
                Course { first: None, last: all, window: "of this run", hit_rate }
            }
        }
    }
}

/// The statistics since the start, as soon as they hold `requests` requests, or else after three seconds. The error is the
/// reason why the admin address does not return them.
pub(crate) async fn since_start(admin: SocketAddr, requests: u64) -> Result<Stats, String> {
    let client = HttpClient::new(admin);
    for _ in 1..POLLS {
        let stats = fetch(&client, "/stats?window=all").await?;
        if stats.count() >= requests {
            return Ok(stats);
        }
        tokio::time::sleep(POLL).await;
    }
    fetch(&client, "/stats?window=all").await
}

async fn fetch(client: &HttpClient, path: &str) -> Result<Stats, String> {
    let (status, body) = client.get(path).await?;
    if !status.is_success() {
        return Err(format!("{path}: status {status}"));
    }
    serde_json::from_slice(&body).map_err(|e| format!("{path}: {e}"))
}

fn frame(stats: Result<&Stats, &String>, seconds: f64, hit_rate: Option<f64>) -> String {
    let body = match stats {
        Ok(stats) => table::render(stats, seconds, "last 10 s"),
        Err(reason) => format!("no statistics: {reason}\n"),
    };
    let cache =
        hit_rate.map_or_else(String::new, |rate| format!("\nfeature cache  {} of the last second's lookups\n", percent(rate)));
    format!("\n{seconds:.0} s\n{body}{cache}")
}

/// Text on a terminal that replaces what it drew before.
#[derive(Debug, Default)]
struct Screen {
    lines: usize,
}

impl Screen {
    fn draw(&mut self, out: &mut impl Write, text: &str) -> io::Result<()> {
        if self.lines > 0 {
            // Up to the first of our lines, and clear from there to the end of the screen.
            write!(out, "\x1b[{}F\x1b[J", self.lines)?;
        }
        self.lines = text.lines().count();
        // Without wrapping: a line too long for the terminal is cut, so that each stays one line to go back over.
        write!(out, "\x1b[?7l{text}\x1b[?7h")?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use axum::Router;
    use axum::routing::get;
    use tokio::task::JoinSet;

    use super::*;

    #[test]
    fn a_terminal_is_redrawn_in_place() {
        let (mut screen, mut out) = (Screen::default(), Vec::new());
        screen.draw(&mut out, "a\nb\n").unwrap();
        screen.draw(&mut out, "c\n").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\x1b[?7la\nb\n\x1b[?7h\x1b[2F\x1b[J\x1b[?7lc\n\x1b[?7h");
    }

    #[tokio::test]
    async fn an_admin_address_that_does_not_answer_is_named() {
        let reason = since_start(SocketAddr::from(([127, 0, 0, 1], 1)), 1).await.unwrap_err();
        assert!(reason.starts_with("127.0.0.1:1: cannot connect to "), "{reason}");
        assert!(frame(Err(&reason), 1.0, None).contains("no statistics: 127.0.0.1:1: "));
    }

    #[tokio::test]
    async fn the_summary_waits_until_every_request_is_counted() {
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        let stats = move || {
            let count = 8 + count.fetch_add(1, Ordering::Relaxed);
            async move { format!(r#"{{"series": [{{"count": {count}}}]}}"#) }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let admin = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(axum::serve(listener, Router::new().route("/stats", get(stats))).into_future());
        assert_eq!(since_start(admin, 10).await.unwrap().count(), 10);
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn the_cache_is_shown_by_the_lookups_of_the_last_second() {
        let reading = |hits, lookups| CacheReading { hits, lookups };
        let mut watched = Watched { readings: [reading(10, 100)].into(), ..Watched::default() };
        assert_eq!(watched.hit_rate(), Some(0.1));
        watched.readings.push_back(reading(100, 200));
        assert_eq!(watched.hit_rate(), Some(0.9));
        let shown = frame(Ok(&Stats::default()), 2.0, watched.hit_rate());
        assert_eq!(shown, "\n2 s\nno requests yet\n\nfeature cache  90.0 % of the last second's lookups\n");
    }
}
