//! The load, and the table that shows what Lapwing says meanwhile.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::load::run_load;
use super::options::{Demo, RATE};
use super::report::LoadReport;
use super::scenario::{self, Played, Script};
use super::tickets::CacheCounts;
use super::traffic;
use super::view::closing::{self, Course};
use super::view::live::{self, show};
use super::view::{table, words};
use lapwing_console::stats::Stats;

impl Demo {
    /// Requests per second.
    pub fn requests_per_second(&self) -> f64 {
        self.rate.or_else(|| self.played.as_ref().map(Played::rate)).unwrap_or(RATE)
    }

    /// Sends the load until `stop`.
    async fn send(&self, proxy: SocketAddr, script: Option<Arc<Script>>, stop: CancellationToken) -> io::Result<LoadReport> {
        match (&self.played, script) {
            (Some(played), Some(script)) => traffic::play(played, proxy, script, self.requests_per_second(), stop).await,
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
    pub(crate) async fn drive(
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

/// Prints to standard output at once.
pub(crate) fn print(text: &str) -> io::Result<()> {
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
