//! `lapwing demo`: an embedded model server with a real model, a load on it, and a live table of where the time goes.
//!
//! The parts know one another by socket addresses only. Whoever wires them starts the server ([`start_server`]), puts
//! Lapwing in front of it, and lets [`Demo::drive`] send the load and draw the table.

mod client;
mod data;
mod exporter;
mod features;
mod load;
mod oip;
mod pipeline;
mod report;
mod server;
mod spans;
mod stats;
mod table;
mod units;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

pub use load::run_load;
pub use report::Report;
pub use server::{ServerHandle, start_server};
pub use table::show;
use tokio_util::sync::CancellationToken;

use crate::ledger::Stamp;

/// How long the summary waits, so that the last requests' spans, sent every 200 ms, are joined.
const SETTLE: Duration = Duration::from_millis(600);

/// What a user chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demo {
    /// How long to run; `None` until stopped.
    pub seconds: Option<u64>,
    /// Requests per second, all clients together; at least 0.1.
    pub rate: f64,
    /// Clients, each with one kept-alive connection; at least 1.
    pub clients: usize,
}

impl Default for Demo {
    fn default() -> Self {
        Self { seconds: None, rate: 200.0, clients: 4 }
    }
}

impl Demo {
    /// Sends the load to `proxy` and draws the table from `admin` until `stop` or the chosen seconds have passed; then
    /// prints the summary to standard output, and returns the load's report.
    ///
    /// It needs a runtime, best one of its own: the load's work then delays neither the proxy nor the figures.
    ///
    /// # Errors
    ///
    /// Where the embedded rows are unreadable or standard output cannot be written.
    pub async fn drive(&self, proxy: SocketAddr, admin: SocketAddr, stop: CancellationToken) -> io::Result<Report> {
        let began = Stamp::now();
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
        let seconds = began.elapsed() as f64 / 1e9;
        tokio::time::sleep(SETTLE).await;
        let table = table::since_start(admin, seconds).await;
        let mut out = io::stdout().lock();
        writeln!(out, "\nsummary\n{table}\n{report}")?;
        out.flush()?;
        Ok(report)
    }
}
