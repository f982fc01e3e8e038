//! The demo's live view of `/stats`: a table redrawn in place on a terminal, a line every five seconds elsewhere.
//!
//! It asks the admin address as any user would; one that does not answer is shown, and asked again.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::stats::Stats;
use super::{table, words};
use crate::ledger::Stamp;

/// Between redraws on a terminal.
const REDRAW: Duration = Duration::from_secs(1);
/// Between lines where the output is no terminal.
const LINE: Duration = Duration::from_secs(5);
/// Between looks whether every request is in the statistics.
const POLL: Duration = Duration::from_millis(100);
/// How often to look: spans come up to 200 ms after their request, and a request is settled soon after them.
const POLLS: u32 = 30;

/// Draws until `stop`: a table each second, in place, if standard output is a terminal; else a line every five seconds.
///
/// # Errors
///
/// Where standard output cannot be written. An admin address that does not answer is shown, and asked again.
pub async fn show(admin: SocketAddr, stop: CancellationToken) -> io::Result<()> {
    let is_terminal = io::stdout().is_terminal();
    let mut client = Client::new(admin);
    let mut screen = Screen::default();
    let began = Stamp::now();
    let mut ticks = tokio::time::interval(if is_terminal { REDRAW } else { LINE });
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => return Ok(()),
        }
        let stats = tokio::select! {
            stats = fetch(&mut client, "/stats?window=10s") => stats,
            () = stop.cancelled() => return Ok(()),
        };
        let seconds = began.elapsed() as f64 / 1e9;
        let mut out = io::stdout().lock();
        if is_terminal {
            screen.draw(&mut out, &frame(stats.as_ref(), seconds))?;
        } else {
            let line =
                stats.map_or_else(|reason| format!("{seconds:4.0} s  no statistics: {reason}"), |s| words::line(&s, seconds));
            writeln!(out, "{line}")?;
            out.flush()?;
        }
    }
}

/// The statistics since the start, as soon as they hold `requests` requests, or after three seconds without; the reason
/// where the admin address does not give them.
pub(super) async fn since_start(admin: SocketAddr, requests: u64) -> Result<Stats, String> {
    let mut client = Client::new(admin);
    for _ in 1..POLLS {
        let stats = fetch(&mut client, "/stats?window=all").await?;
        if stats.count() >= requests {
            return Ok(stats);
        }
        tokio::time::sleep(POLL).await;
    }
    fetch(&mut client, "/stats?window=all").await
}

async fn fetch(client: &mut Client, path: &str) -> Result<Stats, String> {
    let (status, body) = client.get(path).await.map_err(|e| e.to_string())?;
    if !status.is_success() {
        return Err(format!("{path}: status {status}"));
    }
    serde_json::from_slice(&body).map_err(|e| format!("{path}: {e}"))
}

fn frame(stats: Result<&Stats, &String>, seconds: f64) -> String {
    let body = match stats {
        Ok(stats) => table::render(stats, seconds, "last 10 s"),
        Err(reason) => format!("no statistics: {reason}\n"),
    };
    format!("\n{seconds:.0} s\n{body}")
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
        assert!(reason.starts_with("127.0.0.1:1: cannot connect: "), "{reason}");
        assert!(frame(Err(&reason), 1.0).contains("no statistics: 127.0.0.1:1: "));
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
}
