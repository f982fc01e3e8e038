//! `lapwing demo`: an embedded model server with a real model, a load on it, and a live table of where the time goes.
//!
//! The parts know one another by socket addresses only. Whoever wires them starts the server ([`start_server`]), puts
//! Lapwing in front of it, and lets [`Demo::drive`] send the load and draw the table.

mod cli;
mod client;
mod data;
mod exporter;
mod features;
mod live;
mod load;
mod oip;
mod pipeline;
mod report;
mod run;
mod server;
mod spans;
mod stats;
mod table;
mod units;
mod words;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

pub use cli::DemoArgs;
pub(super) use cli::run_command;
pub use live::show;
pub use load::run_load;
pub use report::Report;
pub use run::{DemoError, Places, run};
pub use server::{ServerHandle, start_server};
use stats::Stats;
use tokio_util::sync::CancellationToken;

/// What a user chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demo {
    /// How long to run; `None` until stopped.
    pub seconds: Option<u64>,
    /// Requests per second, all clients together; at least 0.1.
    pub rate: f64,
    /// Clients, each with one kept-alive connection; at least 1.
    pub clients: usize,
    /// Where the model server itself listens, to be told at the start.
    pub server: Option<SocketAddr>,
}

impl Default for Demo {
    fn default() -> Self {
        Self { seconds: None, rate: 200.0, clients: 4, server: None }
    }
}

impl Demo {
    /// Tells what runs, sends the load to `proxy` and draws the table from `admin` until `stop` or the chosen seconds have
    /// passed; then prints the summary, and returns the load's report. All of it goes to standard output.
    ///
    /// It needs a runtime, best one of its own: the load's work then delays neither the proxy nor the figures.
    ///
    /// # Errors
    ///
    /// Where the embedded rows are unreadable or standard output cannot be written.
    pub async fn drive(&self, proxy: SocketAddr, admin: SocketAddr, stop: CancellationToken) -> io::Result<Report> {
        print(&words::opening(self, proxy, admin))?;
        // Stops both parts, and also when either of them fails.
        let end = stop.child_token();
        let timer = async {
            match self.seconds {
                Some(seconds) => tokio::select! {
                    () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
                    () = end.cancelled() => {}
                },
                None => end.cancelled().await,
            }
            end.cancel();
        };
        let load = async { run_load(proxy, self.rate, self.clients, end.clone()).await.inspect_err(|_| end.cancel()) };
        let table = async { show(admin, end.clone()).await.inspect_err(|_| end.cancel()) };
        let (report, drawn, ()) = tokio::join!(load, table, timer);
        let report = report?;
        drawn?;
        let stats = live::since_start(admin, report.requests).await;
        print(&summary(stats, &report))?;
        Ok(report)
    }
}

/// Everything since the start: the table, what the clients saw, and one sentence.
fn summary(stats: Result<Stats, String>, report: &Report) -> String {
    let stats = match stats {
        Ok(stats) => stats,
        Err(reason) => return format!("\nno statistics: {reason}\n{report}\n"),
    };
    let table = table::render(&stats, report.elapsed_ns as f64 / 1e9, "since the start");
    let counted = stats.count();
    let missing = if counted < report.requests {
        format!("lapwing has counted {counted} of {} requests so far\n", report.requests)
    } else {
        String::new()
    };
    format!("\nsummary\n{table}\n{report}\n{missing}\n{}\n", words::verdict(&stats))
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_ends_with_one_sentence_and_tells_what_is_missing() {
        let stats = |count: u64| {
            let series = format!(r#"{{"count": {count}, "stages": {{"queue": {{"count": 1, "share": 0.7}}}}}}"#);
            serde_json::from_str::<Stats>(&format!(r#"{{"series": [{series}]}}"#)).unwrap()
        };
        let report = Report { requests: 10, ..Report::default() };
        let all = summary(Ok(stats(10)), &report);
        assert!(all.starts_with("\nsummary\n"), "{all}");
        assert!(
            all.ends_with("\n\nThe largest share of the time, 70.0 %, went to queue: waiting for a slot or a batch.\n"),
            "{all}"
        );
        assert!(!all.contains("so far"), "{all}");
        assert!(summary(Ok(stats(9)), &report).contains("lapwing has counted 9 of 10 requests so far\n"));
        assert!(summary(Err("nobody".to_owned()), &report).contains("no statistics: nobody\nload: 10 requests"));
    }
}
