//! The poller: reads the model server's own statistics at intervals, and hands on what was counted between two polls.
//!
//! These requests do not come from a client, so they are few: one at a time, at most one per interval, none while no client uses the
//! server. They bypass the data plane, so they appear in no metric but their own counter.

mod detect;
mod feed;
mod http;
mod means;
mod reading;
mod text;
mod triton;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::detect::Candidate;
use self::feed::{Feed, PollOutcome};
use super::polled::Statistics;
use super::rules::Rules;
use crate::ledger::Server;
use crate::metrics::{Counter, Counters, Labels};
use crate::settings::{ConfigHandle, Poll, Upstream};

/// How often the poller checks for a first request; the first query is delayed by as much.
const START: Duration = Duration::from_secs(2);
/// The delay before a server without statistics is asked again. It doubles each time,
const AGAIN: Duration = Duration::from_secs(60);
/// up to this.
const AGAIN_MAX: Duration = Duration::from_secs(16 * 60);
/// The number of failed polls in a row after which the server is detected again.
const PATIENCE: u32 = 3;

/// Polls one upstream.
#[derive(Debug)]
pub struct Poller {
    /// Whether to poll, and where.
    pub poll: Poll,
    /// The shortest interval between polls.
    pub interval: ConfigHandle<Duration>,
    /// The model server.
    pub upstream: Upstream,
    /// The ports on which Lapwing itself listens, which are never asked.
    pub own_ports: Vec<u16>,
    /// Where the results are stored.
    pub statistics: Arc<Statistics>,
    /// The interned model names. Statistics of models that no client asked for are not kept.
    pub labels: Arc<Labels>,
    /// The rules that map the names of an ensemble's steps to stages.
    pub rules: ConfigHandle<Rules>,
    /// Counts polls, and tells whether requests are in flight.
    pub counters: Arc<Counters>,
}

enum State {
    /// Detection: the next candidate, the server found so far, and the delay once all were asked.
    Looking { next: usize, server: Option<Server>, again: Duration },
    /// Polling: the feed, and the number of failed polls in a row.
    Polling { feed: Box<Feed>, failed: u32 },
}

impl State {
    const START: Self = Self::Looking { next: 0, server: None, again: AGAIN };

    fn is_waiting(&self) -> bool {
        matches!(self, Self::Polling { feed, .. } if feed.is_waiting())
    }
}

impl Poller {
    /// Polls until `stop`. Must run in a tokio runtime with time and network enabled.
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
                (state, pause) =
                    if self.is_used() || state.is_waiting() { self.step(state, &candidates).await } else { (state, START) };
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = polling => {}
        }
    }

    /// Whether a client sent a request since the last call.
    fn is_used(&self) -> bool {
        self.statistics.take_requested() || self.counters.get(Counter::InFlight) > 0
    }

    /// Sends at most one query; returns the next state and the delay before the next step.
    async fn step(&self, state: State, candidates: &[Candidate]) -> (State, Duration) {
        match state {
            State::Looking { next, server, again } => match candidates.get(next) {
                Some(candidate) => (self.look(candidate, next, server, again).await, *self.interval.load()),
                None => (State::Looking { next: 0, server: None, again: (again * 2).min(AGAIN_MAX) }, again),
            },
            State::Polling { mut feed, failed } => {
                let failed = match feed.ask(self).await {
                    PollOutcome::Read => {
                        self.counters.bump(Counter::PollsOk);
                        0
                    }
                    PollOutcome::Besides => failed,
                    PollOutcome::Failed(reason) => {
                        self.counters.bump(Counter::PollsFailed);
                        tracing::debug!(server = feed.server().name(), reason, "the server's statistics could not be read");
                        failed + 1
                    }
                };
                if failed < PATIENCE {
                    return (State::Polling { feed, failed }, *self.interval.load());
                }
                tracing::info!(server = feed.server().name(), "the server's statistics are gone; looking for them anew");
                self.statistics.set_server(None);
                (State::START, *self.interval.load())
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
