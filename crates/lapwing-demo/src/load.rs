//! The demo's load: tickets of the feature table in mixed batch sizes, open loop, every answer checked.
//!
//! Some tickets are asked for more often than others, as in real traffic, so the feature cache fills quickly at first and slowly later.
//!
//! Requests are due by a Poisson process, whether or not earlier ones were answered. If a client is still busy when its next
//! request is due, it sends it late, and the latency counts from the due time (no coordinated omission). If the client was
//! idle, the latency counts from the write, so that the timer's granularity of a millisecond is not blamed on the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::client::HttpClient;
use super::report::LoadReport;
use super::spans::ROUTE;
use super::tickets::{self, TOP};
use lapwing_ledger::Stamp;

/// Rows per request and their frequency in percent, the smallest first. Most of the rows are in large batches, so that the
/// server's own work shows beside the cost of HTTP.
const BATCHES: [(usize, u32); 4] = [(1, 30), (8, 30), (32, 25), (128, 15)];
/// The fewest and the most rows of a request.
pub(crate) const ROWS: (usize, usize) = (BATCHES[0].0, BATCHES[BATCHES.len() - 1].0);
/// How long the end waits for requests in flight, so that clients and proxy count the same requests.
const DRAIN: Duration = Duration::from_secs(1);

/// Sends `rate` requests per second (all clients together, at least 0.1) to `proxy` over `clients` kept-alive connections (at
/// least one) until `stop`; returns the results. Requests in flight at `stop` have a second to end; those abandoned then are
/// not counted.
pub async fn run_load(proxy: SocketAddr, rate: f64, clients: usize, stop: CancellationToken) -> LoadReport {
    let teams: Arc<[usize]> = tickets::teams().into();
    let clients = clients.max(1);
    let gap_ns = 1e9 * clients as f64 / if rate.is_finite() { rate.max(0.1) } else { 0.1 };
    let began = Stamp::now();
    let mut running = JoinSet::new();
    for seed in 0..clients as u64 {
        let requests = Requests::new(Arc::clone(&teams), &BATCHES, seed);
        running.spawn(send(HttpClient::new(proxy), requests, gap_ns, stop.clone()));
    }
    let mut report = LoadReport::default();
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(of_one) => report.merge(&of_one),
            Err(error) => tracing::error!(%error, "a client of the demo's load failed"),
        }
    }
    report.elapsed_ns = began.elapsed();
    report
}

async fn send(client: HttpClient, mut requests: Requests, gap_ns: f64, stop: CancellationToken) -> LoadReport {
    let mut report = LoadReport::default();
    let mut due = Stamp::now();
    loop {
        due = due.plus(requests.gap(gap_ns));
        let (body, labels) = requests.next();
        let early_ns = due.since(Stamp::now());
        if early_ns > 0 {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_nanos(early_ns)) => {}
                () = stop.cancelled() => return report,
            }
        }
        if stop.is_cancelled() {
            return report;
        }
        let began = if early_ns > 0 { Stamp::now() } else { due };
        let answer = tokio::select! {
            answer = client.post(ROUTE, body) => answer,
            () = drained(&stop) => return report,
        };
        match answer {
            Ok((StatusCode::OK, body)) => match check_answer(&body, &labels) {
                Ok(right) => report.answered(began.elapsed(), labels.len(), right),
                Err(reason) => report.failed(reason),
            },
            Ok((status, body)) => report.failed(format!("status {status}: {}", String::from_utf8_lossy(&body))),
            Err(error) => report.failed(error),
        }
    }
}

/// A second after `stop`.
async fn drained(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(DRAIN).await;
}

/// A client's own sequence of requests.
pub(crate) struct Requests {
    /// The right team of each ticket that is asked for, in the order of the table.
    teams: Arc<[usize]>,
    /// Rows per request and their weights.
    batches: &'static [(usize, u32)],
    random: StdRng,
}

impl Requests {
    /// Requests for the first tickets of the table, whose right teams are `teams`, with rows by the weights of `batches`.
    pub(crate) fn new(teams: Arc<[usize]>, batches: &'static [(usize, u32)], seed: u64) -> Self {
        Self { teams, batches, random: StdRng::seed_from_u64(seed) }
    }

    /// Nanoseconds to the next request; exponential, and at most ten times the mean.
    fn gap(&mut self, mean_ns: f64) -> u64 {
        let uniform: f64 = self.random.random();
        ((1.0 - uniform).ln().max(-10.0) * -mean_ns) as u64
    }

    /// The next body, and the right team of each of its rows.
    pub(crate) fn next(&mut self) -> (Bytes, Vec<usize>) {
        let count = self.batch();
        let rows: Vec<usize> = (0..count).map(|_| self.row()).collect();
        let ids: Vec<String> = rows.iter().map(|row| tickets::id(*row).to_string()).collect();
        let data = ids.join(",");
        let tensor = format!(r#"{{"name":"ticket_ids","shape":[{count}],"datatype":"INT64","data":[{data}]}}"#);
        let teams = rows.iter().filter_map(|row| self.teams.get(*row).copied()).collect();
        (Bytes::from(format!(r#"{{"inputs":[{tensor}]}}"#)), teams)
    }

    /// A row of the table; row `i` comes about as often as `1 / √i`.
    fn row(&mut self) -> usize {
        let skewed = self.random.random::<f64>().powi(2);
        ((skewed * self.teams.len() as f64) as usize).min(self.teams.len().saturating_sub(1))
    }

    fn batch(&mut self) -> usize {
        let mut at = self.random.random_range(0..self.batches.iter().map(|(_, weight)| weight).sum::<u32>());
        for (rows, weight) in self.batches {
            if at < *weight {
                return *rows;
            }
            at -= weight;
        }
        1
    }
}

#[derive(Deserialize)]
struct Answer {
    outputs: Vec<Output>,
}

#[derive(Deserialize)]
struct Output {
    name: String,
    data: Vec<f64>,
}

/// How many rows were classified correctly; an error if the response is not one label list per row.
pub(crate) fn check_answer(body: &[u8], labels: &[usize]) -> Result<usize, String> {
    let answer: Answer = serde_json::from_slice(body).map_err(|e| format!("response: {e}"))?;
    let output = answer.outputs.iter().find(|o| o.name == "label").ok_or("response: no output named `label`")?;
    if output.data.len() != labels.len() * TOP {
        return Err(format!("response: expected {} labels, got {}", labels.len() * TOP, output.data.len()));
    }
    let best = output.data.chunks_exact(TOP).map(|row| row[0]);
    Ok(best.zip(labels).filter(|(got, want)| *got == **want as f64).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::start_server;

    fn requests(seed: u64) -> Requests {
        Requests::new(vec![0; 1000].into(), &BATCHES, seed)
    }

    #[tokio::test]
    async fn every_answer_is_checked_against_a_real_server() {
        let (to, server) = start_server(SocketAddr::from(([127, 0, 0, 1], 1))).unwrap();
        let stop = CancellationToken::new();
        let cache = Arc::clone(server.cache_counts());
        let end = async {
            // the engine of a build without optimisations takes a second for a large batch
            while cache.read().lookups < 200 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            stop.cancel();
        };
        let both = async { tokio::join!(run_load(to, 20.0, 3, stop.clone()), end) };
        let (report, ()) = tokio::time::timeout(Duration::from_secs(60), both).await.expect("the server looks features up");
        server.stop();
        assert_eq!((report.errors, report.first_error.as_deref()), (0, None));
        assert!(report.requests > 0 && report.rows > 0, "{report}");
        assert!(report.accuracy() > 0.8, "{report}");
        assert_eq!(report.latency.len(), report.requests);
    }

    #[tokio::test]
    async fn nobody_there_is_an_error_with_its_reason() {
        let stop = CancellationToken::new();
        let end = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            stop.cancel();
        };
        let (report, ()) = tokio::join!(run_load(SocketAddr::from(([127, 0, 0, 1], 1)), 1000.0, 1, stop.clone()), end);
        assert!(report.errors > 0 && report.requests == report.errors, "{report}");
        assert!(report.first_error.unwrap().starts_with("127.0.0.1:1: cannot connect to "));
    }

    #[test]
    fn wrong_or_malformed_answers_are_seen() {
        let answer = |labels: &str| format!(r#"{{"outputs":[{{"name":"label","data":[{labels}]}}]}}"#);
        assert_eq!(check_answer(answer("3,1,2,7,8,9").as_bytes(), &[3, 8]), Ok(1));
        assert!(check_answer(answer("3,1,2").as_bytes(), &[3, 8]).unwrap_err().contains("expected 6 labels, got 3"));
        assert!(check_answer(br#"{"outputs":[]}"#, &[3]).unwrap_err().contains("no output"));
        assert!(check_answer(b"oops", &[3]).is_err());
    }

    #[test]
    fn gaps_have_the_mean_asked_for_and_all_batch_sizes_come() {
        let mut requests = requests(1);
        let mean = (0..20_000).map(|_| requests.gap(1e6) as f64).sum::<f64>() / 20_000.0;
        assert!((0.97e6..1.03e6).contains(&mean), "{mean}");
        let sizes: std::collections::BTreeSet<usize> = (0..200).map(|_| requests.next().1.len()).collect();
        assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [1, 8, 32, 128]);
    }
}
