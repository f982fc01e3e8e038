//! The load of a scenario: each request is sent when it is due, whether or not earlier ones were answered, on a connection of its own
//! if no kept one is idle. Every answer is checked.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::injected::INJECTED;
use super::scenario::Played;
use super::scenario::arrivals::Arrivals;
use super::scenario::body::PacedBody;
use super::scenario::knobs::{LoadKnobs, Padding};
use super::scenario::script::{Script, is_drawn};
use super::scenario::truth::{Truth, TruthLog};
use crate::load::{Requests, check_answer};
use crate::report::LoadReport;
use crate::spans::ROUTE;
use crate::tickets;
use lapwing_ledger::{Stage, Stamp};
use lapwing_net::{Client, ClientLimits, Target};

/// The time limit of one request, including the connection.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Requests at once; one beyond them counts as failed.
const MAX_OPEN: usize = 512;
/// How long the end waits for requests in flight.
const DRAIN: Duration = Duration::from_secs(4);
/// Pieces in which a slow client writes its request.
const SLOW_PIECES: usize = 12;
/// The bytes of a piece of a large body.
const PIECE: u64 = 64 << 10;

/// What the clients of a scenario share.
#[derive(Debug)]
struct Clients {
    client: Client<PacedBody>,
    script: Arc<Script>,
    /// A round trip to the server, in nanoseconds.
    round_trip_ns: u64,
}

/// A request to be sent.
#[derive(Debug)]
struct Planned {
    body: Bytes,
    pieces: usize,
    takes: Duration,
    /// The right team of each row.
    teams: Vec<usize>,
}

/// Sends a scenario's load until `stop`, and writes the truth if it was asked for.
///
/// # Errors
///
/// If the truth cannot be written.
pub(crate) async fn play(
    played: &Played,
    proxy: SocketAddr,
    script: Arc<Script>,
    rate: f64,
    stop: CancellationToken,
) -> io::Result<LoadReport> {
    let (report, log) = send(proxy, played, script, rate, stop).await;
    if let Some(path) = &played.truth {
        log.write(path, &played.scenario)?;
    }
    Ok(report)
}

/// Sends the load of `played` to `proxy` until `stop`; returns what the clients saw, and what was done to each request.
pub(crate) async fn send(
    proxy: SocketAddr,
    played: &Played,
    script: Arc<Script>,
    rate: f64,
    stop: CancellationToken,
) -> (LoadReport, TruthLog) {
    let limits = ClientLimits { connect_timeout: TIMEOUT, timeout: TIMEOUT, max_idle: MAX_OPEN, ..ClientLimits::default() };
    let round_trip_ns = 2_000_000 * played.scenario.link.half_trip_ms;
    let clients = Arc::new(Clients { client: Client::new(Target::Tcp(proxy.to_string()), limits), script, round_trip_ns });
    let mut planner = Planner::new(&played.scenario.load, played.seed);
    let (mut report, mut log, mut open) = (LoadReport::default(), TruthLog::default(), JoinSet::new());
    let began = Stamp::now();
    for (due_ns, requests) in Arrivals::new(&played.scenario.load, rate, played.seed) {
        let early_ns = began.plus(due_ns).since(Stamp::now());
        tokio::select! {
            () = tokio::time::sleep(Duration::from_nanos(early_ns)) => {}
            () = stop.cancelled() => break,
        }
        while let Some(ended) = open.try_join_next() {
            count(ended, &mut report, &mut log);
        }
        for _ in 0..requests {
            if open.len() < MAX_OPEN {
                open.spawn(exchange(Arc::clone(&clients), planner.plan()));
            } else {
                report.failed(format!("{MAX_OPEN} requests are open already"));
            }
        }
    }
    let draining = async {
        while let Some(ended) = open.join_next().await {
            count(ended, &mut report, &mut log);
        }
    };
    let _ = tokio::time::timeout(DRAIN, draining).await;
    report.elapsed_ns = began.elapsed();
    (report, log)
}

/// A request's rows, of which so many were right, and what was done to it; or why it failed.
type Ended = Result<(Truth, usize, usize), String>;

fn count(ended: Result<Ended, tokio::task::JoinError>, report: &mut LoadReport, log: &mut TruthLog) {
    match ended.unwrap_or_else(|error| Err(error.to_string())) {
        Ok((truth, rows, right)) => {
            report.answered(truth.total_ns, rows, right);
            log.push(truth);
        }
        Err(reason) => report.failed(reason),
    }
}

async fn exchange(clients: Arc<Clients>, planned: Planned) -> Ended {
    let Planned { body, pieces, takes, teams } = planned;
    let upload_ns = u64::try_from(takes.as_nanos()).unwrap_or(u64::MAX);
    let head = Request::builder().method(Method::POST).uri(ROUTE).header(CONTENT_TYPE, "application/json");
    let request = head.body(PacedBody::new(body, pieces, takes)).map_err(|error| error.to_string())?;
    let began = Stamp::now();
    let response = clients.client.fetch(request).await.map_err(|error| error.to_string())?;
    let ended = Stamp::now();
    if response.status() != StatusCode::OK {
        return Err(format!("status {}: {}", response.status(), String::from_utf8_lossy(response.body())));
    }
    let right = check_answer(response.body(), &teams)?;
    let mut truth = Truth { total_ns: ended.since(began), ..Truth::of_field(response.headers().get(&INJECTED)) };
    truth.add(Stage::Ingress, upload_ns);
    // the server cannot know how long a request waited for it while it stood still, and until it had caught up
    let sent = began.plus(upload_ns);
    let met_pause = truth.arrived.filter(|arrived| clients.script.paused_ns(sent, *arrived) > 0);
    let waited_ns = met_pause.map_or(0, |arrived| arrived.since(sent));
    truth.add(Stage::Unattributed, waited_ns + clients.round_trip_ns);
    Ok((truth, teams.len(), right))
}

/// Draws requests.
struct Planner {
    load: LoadKnobs,
    random: StdRng,
    requests: Requests,
}

impl Planner {
    fn new(load: &LoadKnobs, seed: u64) -> Self {
        let teams: Arc<[usize]> = tickets::teams().into_iter().take(tickets::WORKING_SET).collect();
        let random = StdRng::seed_from_u64(seed ^ 0x9e37_79b9);
        Self { load: *load, random, requests: Requests::new(teams, load.rows, seed) }
    }

    fn plan(&mut self) -> Planned {
        let (body, teams) = self.requests.next();
        if let Some(Padding { permille, bytes, link_bytes_per_second }) = self.load.padding
            && is_drawn(&mut self.random, permille)
        {
            let body = padded(&body, bytes);
            let takes = Duration::from_secs_f64(body.len() as f64 / link_bytes_per_second.max(1) as f64);
            let pieces = usize::try_from(body.len() as u64 / PIECE).unwrap_or(1);
            return Planned { body, pieces, takes, teams };
        }
        let slow = self.load.slow_upload;
        if is_drawn(&mut self.random, slow.permille) {
            let takes = Duration::from_millis(self.random.random_range(slow.ms.0..=slow.ms.1));
            return Planned { body, pieces: SLOW_PIECES, takes, teams };
        }
        Planned { body, pieces: 1, takes: Duration::ZERO, teams }
    }
}

/// The same request with a parameter that nobody reads.
fn padded(body: &[u8], bytes: usize) -> Bytes {
    let mut out = Vec::with_capacity(body.len() + bytes + 32);
    out.extend_from_slice(br#"{"parameters":{"context":""#);
    out.resize(out.len() + bytes, b'x');
    out.extend_from_slice(br#""},"#);
    out.extend_from_slice(body.get(1..).unwrap_or_default());
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::find;

    fn plans(name: &str) -> Vec<Planned> {
        let mut planner = Planner::new(&find(name).unwrap().load, 1);
        (0..2_000).map(|_| planner.plan()).collect()
    }

    #[test]
    fn a_padded_request_asks_for_the_same() {
        let body = padded(br#"{"inputs":[]}"#, 10);
        let read: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(read, serde_json::json!({"parameters": {"context": "xxxxxxxxxx"}, "inputs": []}));
    }

    #[test]
    fn a_share_of_the_clients_is_slow_or_sends_too_much() {
        let slow = plans("slow-client").iter().filter(|plan| plan.takes >= Duration::from_millis(600)).count();
        assert!((50..110).contains(&slow), "{slow}");
        let large: Vec<Planned> = plans("oversized-bodies").into_iter().filter(|plan| plan.body.len() > 6_000_000).collect();
        assert!((35..90).contains(&large.len()), "{}", large.len());
        assert!(large.iter().all(|plan| plan.pieces > 20 && (428..430).contains(&plan.takes.as_millis())));
        assert!(plans("healthy").iter().all(|plan| plan.takes.is_zero() && plan.body.len() < 200));
    }
}
