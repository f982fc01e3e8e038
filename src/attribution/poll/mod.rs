//! The poller: asks the model server for its own statistics now and then, and makes means per request of them.
//!
//! These are requests that no client made, so they are few: one at a time, one an interval at most, none while nobody
//! uses the server. They go past the data plane, so they are in none of Lapwing's figures but their own counter.

mod detect;
mod feed;
mod http;
mod means;
mod reading;
mod text;
mod triton;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::detect::Candidate;
use self::feed::{Asked, Feed};
use super::polled::Statistics;
use super::rules::Rules;
use crate::ledger::Server;
use crate::metrics::{Counter, Counters, Labels};
use crate::settings::{Poll, Upstream};

/// Until a first request was seen, it is looked for so often; the first question comes as late.
const START: Duration = Duration::from_secs(2);
/// A server that told nothing anywhere is asked again after this, and after twice as long each further time,
const AGAIN: Duration = Duration::from_secs(60);
/// up to this.
const AGAIN_MAX: Duration = Duration::from_secs(16 * 60);
/// So many polls in a row may fail before it is found out anew who answers there.
const PATIENCE: u32 = 3;

/// Polls one upstream.
#[derive(Debug)]
pub struct Poller {
    /// Whether and where.
    pub poll: Poll,
    /// How often, at most.
    pub interval: Duration,
    /// The model server.
    pub upstream: Upstream,
    /// The ports on which Lapwing itself listens, which are never asked.
    pub own_ports: Vec<u16>,
    /// Where the means go.
    pub statistics: Arc<Statistics>,
    /// The names of models: statistics of models that no client asked for are of no use.
    pub labels: Arc<Labels>,
    /// What the names of an ensemble's steps say.
    pub rules: Arc<Rules>,
    /// Where polls are counted, and where requests in flight are seen.
    pub counters: Arc<Counters>,
}

enum State {
    /// The next candidate to ask, what one already told of the server, and how long to wait once all were asked.
    Looking { next: usize, server: Option<Server>, again: Duration },
    /// Who answers, and how many polls in a row failed.
    Polling { feed: Box<Feed>, failed: u32 },
}

impl State {
    const START: Self = Self::Looking { next: 0, server: None, again: AGAIN };
}

impl Poller {
    /// Polls until `stop`. Must be polled in a tokio runtime with time and network.
    pub async fn run(self, stop: CancellationToken) {
        let candidates = detect::candidates(&self.poll, &self.upstream, &self.own_ports);
        if candidates.is_empty() {
            return;
        }
        let polling = async {
            let mut state = State::START;
            let mut pause = START;
            loop {
                sleep(pause).await;
                (state, pause) = if self.is_used() { self.step(state, &candidates).await } else { (state, START) };
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = polling => {}
        }
    }

    /// Whether somebody asked the model server for something since the last time.
    fn is_used(&self) -> bool {
        self.statistics.take_requested() || self.counters.get(Counter::InFlight) > 0
    }

    /// One question at most; the state after it, and how long to wait.
    async fn step(&self, state: State, candidates: &[Candidate]) -> (State, Duration) {
        match state {
            State::Looking { next, server, again } => match candidates.get(next) {
                Some(candidate) => (self.look(candidate, next, server, again).await, self.interval),
                None => (State::Looking { next: 0, server: None, again: (again * 2).min(AGAIN_MAX) }, again),
            },
            State::Polling { mut feed, failed } => {
                let failed = match feed.ask(self).await {
                    Asked::Read => {
                        self.counters.bump(Counter::PollsOk);
                        0
                    }
                    Asked::Besides => failed,
                    Asked::Failed(reason) => {
                        self.counters.bump(Counter::PollsFailed);
                        tracing::debug!(server = feed.server().name(), reason, "the server's statistics could not be read");
                        failed + 1
                    }
                };
                if failed < PATIENCE {
                    return (State::Polling { feed, failed }, self.interval);
                }
                tracing::info!(server = feed.server().name(), "the server's statistics are gone; looking for them anew");
                self.statistics.set_server(None);
                (State::START, self.interval)
            }
        }
    }

    async fn look(&self, at: &Candidate, next: usize, known: Option<Server>, again: Duration) -> State {
        let answer = http::get(&at.at, &at.path).await;
        let (server, feed) = match &answer {
            Ok(body) => feed::found(at, body),
            Err(error) => {
                tracing::debug!(address = %at.at, path = at.path, %error, "no statistics there");
                (None, None)
            }
        };
        let server = known.or(server);
        if server.is_some() {
            self.statistics.set_server(server);
        }
        match feed {
            Some(feed) => {
                tracing::info!(server = feed.server().name(), address = %at.at, path = feed.path(), "polling the server's statistics");
                State::Polling { feed: Box::new(feed), failed: 0 }
            }
            None => State::Looking { next: next + 1, server, again },
        }
    }
}

#[cfg(test)]
mod tests;
