//! `lapwing demo`: a model server with features, a tokenizer, a model and calibration, a load on it, and a live table that shows
//! where the time goes.
//!
//! The model is served by `serving/` and run by the engine. The parts know only each other's socket addresses: [`run`] starts the
//! server ([`start_server`]), puts Lapwing in front of it, and lets `Demo::drive` send the load and draw the table.

#![forbid(unsafe_code)]

mod cli;
mod client;
mod load;
mod report;
mod run;
mod scenario;
mod server;
mod spans;
mod steps;
mod tickets;
mod view;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use cli::DemoArgs;
pub use cli::run_command;
pub use load::run_load;
pub use report::LoadReport;
pub use run::{DemoError, FrontedServer, Places, StartLapwing, run};
pub use scenario::LoadLevel;
pub use server::{ServerHandle, start_server};
use tokio_util::sync::CancellationToken;

use self::scenario::{Played, Script};
use self::tickets::CacheCounts;
use self::view::closing::{self, Course};
use self::view::live::{self, show};
use self::view::{table, words};
use lapwing_console::stats::Stats;

/// The name of each scenario, and the settings of Lapwing that it needs: paths of the configuration and their texts.
#[must_use]
pub fn scenario_settings() -> Vec<(&'static str, Vec<(&'static str, String)>)> {
    scenario::settings()
}

/// The user's choices.
#[derive(Clone, Debug, PartialEq)]
pub struct Demo {
    /// How long to run; `None` until stopped.
    pub seconds: Option<u64>,
    /// Requests per second, all clients together; at least 0.1. `None`: 50, or what the scenario says.
    pub rate: Option<f64>,
    /// Clients, each with one kept-alive connection; at least 1.
    pub clients: usize,
    /// The address of the model server itself, which is printed at the start.
    pub server: Option<SocketAddr>,
    /// The scenario that is played, if any; its load replaces the clients.
    pub(self) played: Option<Played>,
}

impl Default for Demo {
    fn default() -> Self {
        Self { seconds: None, rate: None, clients: 4, server: None, played: None }
    }
}

/// Requests per second without a scenario.
const RATE: f64 = 50.0;

impl Demo {
    /// Requests per second.
    fn requests_per_second(&self) -> f64 {
        self.rate.or_else(|| self.played.as_ref().map(Played::rate)).unwrap_or(RATE)
    }

    /// Sends the load until `stop`.
    async fn send(&self, proxy: SocketAddr, script: Option<Arc<Script>>, stop: CancellationToken) -> io::Result<LoadReport> {
        match (&self.played, script) {
            (Some(played), Some(script)) => played.send(proxy, script, self.requests_per_second(), stop).await,
            _ => Ok(run_load(proxy, self.requests_per_second(), self.clients, stop).await),
        }
    }

    /// Prints what runs, sends the load to `proxy` and draws the table from `admin` until `stop` or until the chosen seconds have
    /// passed. Then prints the summary and returns the load's report. `cache` counts the lookups of the server's feature cache. All
    /// output goes to standard output.
    ///
    /// Call it in a runtime that is used for nothing else, so that the load delays neither the proxy nor the figures.
    ///
    /// # Errors
    ///
    /// If standard output cannot be written.
    async fn drive(
        &self,
        proxy: SocketAddr,
        admin: SocketAddr,
        cache: &CacheCounts,
        script: Option<Arc<Script>>,
        stop: CancellationToken,
    ) -> io::Result<LoadReport> {
        print(&words::opening(self, proxy, admin))?;
        // Stops both parts, and also when the table fails.
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
        let load = self.send(proxy, script, end.clone());
        let table = async { show(admin, cache, end.clone()).await.inspect_err(|_| end.cancel()) };
        let (report, watched, ()) = tokio::join!(load, table, timer);
        let (report, watched) = (report?, watched?);
        let text = match live::since_start(admin, report.requests).await {
            Ok(stats) => summary(&stats, &report, &watched.course(admin, cache, stats.clone()).await),
            Err(reason) => format!("\nno statistics: {reason}\n{report}\n"),
        };
        print(&text)?;
        if self.played.is_some()
            && let Some(summary) = scenario::advice(admin).await
        {
            print(&format!("diagnosis: {summary}\n"))?;
        }
        Ok(report)
    }
}

/// Everything since the start: the table, what the clients saw, and one sentence.
fn summary(stats: &Stats, report: &LoadReport, course: &Course) -> String {
    let table = table::render(stats, report.elapsed_ns as f64 / 1e9, "since the start");
    let counted = stats.count();
    let missing = if counted < report.requests {
        format!("lapwing has counted {counted} of {} requests so far\n", report.requests)
    } else {
        String::new()
    };
    format!("\nsummary\n{table}\n{report}\n{missing}\n{}\n", closing::sentence(course))
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
        let course = |last| Course { last, window: "of this run", ..Course::default() };
        let report = LoadReport { requests: 10, ..LoadReport::default() };
        let all = summary(&stats(10), &report, &course(stats(10)));
        assert!(all.starts_with("\nsummary\n"), "{all}");
        let sentence = "The largest share of the time of this run, 70.0 %, went to queue (p50 0 ns), waiting for a thread or a batch: \
                        add threads, or send less.";
        assert!(all.ends_with(&format!("\n\n{sentence}\n")), "{all}");
        assert!(!all.contains("so far"), "{all}");
        let behind = summary(&stats(9), &report, &course(stats(9)));
        assert!(behind.contains("lapwing has counted 9 of 10 requests so far\n"), "{behind}");
    }
}
