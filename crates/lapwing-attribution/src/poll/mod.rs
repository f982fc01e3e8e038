//! The poller: reads the model server's own statistics at intervals, and hands on what was counted between two polls.
//!
//! These requests do not come from a client, so they are few: one at a time, at most one per interval, none while no client uses the
//! server. They bypass the data plane, so they appear in no metric but their own counter.
//!
//! They must not run the user's code. Unless the configuration names an address, nothing is asked until the traffic shows which
//! server the upstream is; then only the path that this server is known to own, unless clients use that path themselves. A refusal
//! ends it.

mod detect;
mod evidence;
mod feed;
mod http;
mod means;
mod reading;
mod statistics;
mod text;
mod triton;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::detect::Candidate;
pub use self::detect::{DESCRIPTION_PATHS, described_server};
pub use self::evidence::UpstreamEvidence;
use self::feed::{Feed, FeedSink, PollOutcome};
pub use self::statistics::Statistics;
use super::rules::Rules;
use lapwing_ledger::{LabelId, Server};
use lapwing_metrics::{Counter, Counters, Labels};
use lapwing_net::Target;
use lapwing_settings::{ConfigHandle, HttpScheme, Poll, Upstream};

/// How often the poller checks for a first request; the first query is delayed by as much.
const FIRST_DELAY: Duration = Duration::from_secs(2);
/// The delay before a server without statistics is asked again. It doubles each time,
const RETRY_DELAY: Duration = Duration::from_secs(60);
/// up to this.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(16 * 60);
/// The number of failed polls in a row after which the server is detected again.
const MAX_FAILED_POLLS: u32 = 3;

/// Polls one upstream.
#[derive(Debug)]
pub struct Poller {
    /// Whether to poll, and where.
    pub poll: Poll,
    /// The shortest interval between polls.
    pub interval: ConfigHandle<Duration>,
    /// The model server.
    pub upstream: Upstream,
    /// The label of its exchanges.
    pub label: LabelId,
    /// Where it is reached.
    pub target: Target,
    /// Where the results are stored.
    pub statistics: Arc<Statistics>,
    /// The interned names of models and routes. Statistics of models that no client asked for are not kept, and a path that clients
    /// use is not asked.
    pub labels: Arc<Labels>,
    /// The rules that map the names of an ensemble's steps to stages.
    pub rules: ConfigHandle<Rules>,
    /// Counts polls, and says whether requests are in flight.
    pub counters: Arc<Counters>,
}

/// The methods of the routes that may show that clients use a path.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

enum State {
    /// Until the traffic shows which server the upstream is.
    Waiting,
    /// Until one of the candidates answers with statistics.
    Looking(Search),
    /// Polling: the feed, and the number of failed polls in a row.
    Polling { feed: Box<Feed>, failed: u32 },
}

impl State {
    fn is_waiting(&self) -> bool {
        matches!(self, Self::Polling { feed, .. } if feed.is_waiting())
    }
}

/// A search for statistics.
struct Search {
    candidates: Vec<Candidate>,
    /// The server that the traffic showed; `None` if the configuration names the candidates.
    recognised: Option<Server>,
    /// The candidate to ask next.
    next: usize,
    /// The server found so far.
    server: Option<Server>,
    /// Whether anybody listened at one of those that were asked.
    is_reached: bool,
    /// The delay once all were asked.
    again: Duration,
}

impl Search {
    const fn new(candidates: Vec<Candidate>, recognised: Option<Server>) -> Self {
        Self { candidates, recognised, next: 0, server: recognised, is_reached: false, again: RETRY_DELAY }
    }
}

impl Poller {
    /// Polls until `stop`. Must run in a tokio runtime with time and network enabled.
    pub async fn run(self, stop: CancellationToken) {
        let Some(mut state) = self.start() else { return };
        let polling = async {
            let mut pause = FIRST_DELAY;
            loop {
                sleep(pause).await;
                (state, pause) = if self.is_used() || state.is_waiting() { self.step(state).await } else { (state, FIRST_DELAY) };
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = polling => {}
        }
    }

    /// The first state; `None` if nothing may be asked.
    fn start(&self) -> Option<State> {
        match (&self.poll, &self.upstream) {
            (Poll::Off, _) => None,
            (Poll::At { authority, path }, _) => Some(State::Looking(Search::new(detect::configured(authority, path), None))),
            // an upstream with HTTP/2 prior knowledge is queried by no other protocol
            (Poll::Auto, Upstream::Http { scheme: HttpScheme::H2c, .. }) => None,
            (Poll::Auto, _) => Some(State::Waiting),
        }
    }

    /// Where a feed puts what the server counted.
    fn sink(&self) -> FeedSink<'_> {
        FeedSink { labels: &self.labels, rules: &self.rules, upstream: self.label, statistics: &self.statistics }
    }

    /// Whether a client sent a request since the last call.
    fn is_used(&self) -> bool {
        self.statistics.take_requested() || self.counters.get(Counter::InFlight) > 0
    }

    /// Sends at most one query; returns the next state and the delay before the next step.
    async fn step(&self, state: State) -> (State, Duration) {
        match state {
            State::Waiting => match self.recognise() {
                Some(search) => (self.query_candidate(search).await, *self.interval.load()),
                None => (State::Waiting, FIRST_DELAY),
            },
            State::Looking(search) if search.next < search.candidates.len() => {
                (self.query_candidate(search).await, *self.interval.load())
            }
            State::Looking(search) => {
                // a sidecar is there before the server, which loads its model for minutes and then listens: nobody is bothered until then
                let (pause, again) = match search.is_reached {
                    true => (search.again, (search.again * 2).min(MAX_RETRY_DELAY)),
                    false => (*self.interval.load(), search.again),
                };
                (State::Looking(Search { next: 0, server: search.recognised, is_reached: false, again, ..search }), pause)
            }
            State::Polling { feed, failed } => (self.poll(feed, failed).await, *self.interval.load()),
        }
    }

    /// What to ask the server that the traffic shows.
    fn recognise(&self) -> Option<Search> {
        let (server, evidence) = self.statistics.evidence.recognised()?;
        let path = detect::own_path(server)?;
        if !self.may_ask(server, path) {
            return None;
        }
        tracing::info!(
            server = server.name(),
            recognised_by = evidence.title(),
            address = %self.upstream,
            path,
            "asking the server for its own statistics; set attribution.poll to off to ask nothing"
        );
        let candidate = Candidate { at: self.target.clone(), path: path.to_owned() };
        Some(Search::new(vec![candidate], Some(server)))
    }

    /// Whether no client uses the path through Lapwing. If one does, the server is not asked again.
    fn may_ask(&self, server: Server, path: &str) -> bool {
        let is_used = METHODS.iter().any(|method| self.labels.routes.find(&format!("{method} {path}")).is_some());
        if is_used {
            let reason = "clients use this path; set attribution.poll to its address if it is the server's";
            self.refuse(server, path, reason);
        }
        !is_used
    }

    /// Ends the polling of a server that the traffic showed.
    fn refuse(&self, server: Server, path: &str, reason: &str) {
        tracing::info!(server = server.name(), path, reason, "the server's statistics are not polled");
        self.statistics.evidence.refuse(server);
        self.statistics.set_server(None);
    }

    async fn query_candidate(&self, search: Search) -> State {
        let Some(at) = search.candidates.get(search.next) else { return State::Looking(search) };
        let answer = http::get(&at.at, &at.path).await;
        let (found, feed, refusal) = match (&answer, search.recognised) {
            (Ok(body), Some(server)) => {
                let feed = feed::of(server, at, body);
                let refusal = feed.is_none().then(|| format!("the answer is not that of {}", server.title()));
                (feed.is_some().then_some(server), feed, refusal)
            }
            (Ok(body), None) => {
                let (found, feed) = feed::found(at, body);
                (found, feed, None)
            }
            (Err(error), _) => {
                tracing::debug!(address = %at.at, path = at.path, error = lapwing_net::error_text(error), "no statistics at this address");
                (None, None, Some(lapwing_net::error_text(error)).filter(|_| error.is_refusal()))
            }
        };
        if let (Some(server), Some(reason)) = (search.recognised, refusal) {
            self.counters.bump(Counter::PollsFailed);
            self.refuse(server, &at.path, &reason);
            return State::Waiting;
        }
        let server = search.server.or(found);
        if server.is_some() {
            self.statistics.set_server(server);
        }
        match feed {
            Some(feed) => {
                tracing::info!(server = feed.server().name(), address = %at.at, path = feed.path(), "polling the server's statistics");
                State::Polling { feed: Box::new(feed), failed: 0 }
            }
            None => {
                let is_reached = search.is_reached || !matches!(&answer, Err(error) if error.is_unreached());
                State::Looking(Search { next: search.next + 1, server, is_reached, ..search })
            }
        }
    }

    async fn poll(&self, mut feed: Box<Feed>, failed: u32) -> State {
        let (server, is_configured) = (feed.server(), matches!(self.poll, Poll::At { .. }));
        if !is_configured && !self.may_ask(server, feed.path()) {
            return State::Waiting;
        }
        let reason = match feed.ask(&self.sink()).await {
            PollOutcome::Read => {
                self.counters.bump(Counter::PollsOk);
                return State::Polling { feed, failed: 0 };
            }
            PollOutcome::Besides => return State::Polling { feed, failed },
            PollOutcome::Refused(reason) if !is_configured => {
                self.counters.bump(Counter::PollsFailed);
                self.refuse(server, feed.path(), &reason);
                return State::Waiting;
            }
            PollOutcome::Refused(reason) | PollOutcome::Failed(reason) => reason,
        };
        self.counters.bump(Counter::PollsFailed);
        tracing::debug!(server = server.name(), reason, "the server's statistics could not be read");
        if failed + 1 < MAX_FAILED_POLLS {
            return State::Polling { feed, failed: failed + 1 };
        }
        tracing::info!(server = server.name(), "the server's statistics are gone; looking for them anew");
        self.statistics.set_server(None);
        self.statistics.evidence.forget();
        self.start().unwrap_or(State::Waiting)
    }
}

#[cfg(test)]
mod tests;
