//! What is known of the upstream as a whole, by all workers together: whether it takes connections, and what it speaks.
//!
//! A connection that the upstream ends says little by itself: it may have been idle for too long, old, or have carried enough requests. So a
//! goodbye (`Connection: close`, GOAWAY, the end of a kept connection) only gives reason to look, and the look is an attempt to connect. A
//! server that takes it recycles connections, and nobody is told. One that refuses has left: then clients' connections end with their next
//! answer, so that whoever balances between servers finds another one. The next attempt that succeeds, by a request or by `/readyz`, ends that.

mod ask;
mod spoken;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

pub(crate) use spoken::{Route, Spoken};

use lapwing_ledger::Stamp;
use lapwing_net::{ConnectError, Target, Tasks};

/// How long an attempt to connect may take that only finds out whether one succeeds.
const PROBE_LIMIT: Duration = Duration::from_secs(1);
/// How long an answer of Lapwing's own waits for such a look.
const PROBE_BEFORE_ANSWER_LIMIT: Duration = Duration::from_millis(250);
/// A server may say goodbye before it stops listening: a look that succeeds is repeated once after this time.
const SECOND_PROBE_DELAY: Duration = Duration::from_millis(250);
/// The time between looks after the first that succeeded; doubled by each further one.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// How often it may be doubled: to 1.6 s.
const DOUBLINGS: u32 = 4;

/// What is known of the upstream. One per upstream, for all workers and for `/readyz`.
#[derive(Debug, Default)]
pub struct UpstreamHealth {
    /// Cancelled while the upstream is away: clients' connections end with their next answer.
    goodbye: Mutex<CancellationToken>,
    /// Others get the requests that it would have got, so clients' connections do not end.
    has_others: bool,
    /// Written while `goodbye` is locked.
    is_away: AtomicBool,
    /// How often it was found to be away.
    absences: AtomicU64,
    /// It spoke HTTP/2 when it left.
    left_in_http2: AtomicBool,
    is_probing: AtomicBool,
    /// When it was last looked, and how many looks in a row found that it takes connections.
    looked: AtomicU64,
    taken: AtomicU32,
    /// The latest answer over HTTP/1.1 left its connection open.
    keeps: AtomicBool,
    pub(crate) spoken: Spoken,
}

impl UpstreamHealth {
    /// That of one of several upstreams.
    #[must_use]
    pub fn of_several() -> Self {
        Self { has_others: true, ..Self::default() }
    }

    /// Is cancelled when clients' connections that are accepted now have to end because the upstream is away: at once, if it is.
    pub(crate) fn goodbye(&self) -> CancellationToken {
        self.goodbye.lock().clone()
    }

    /// Whether the latest attempt to connect was refused.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.is_away.load(Relaxed)
    }

    /// How often it was found to be away.
    #[must_use]
    pub fn absences(&self) -> u64 {
        self.absences.load(Relaxed)
    }

    /// Whether clients of HTTP/2 are told in the middle of their answers that the upstream is away: if it did so itself. Not all expect that.
    pub(crate) fn is_told_at_once(&self) -> bool {
        self.left_in_http2.load(Relaxed)
    }

    /// The upstream took a connection.
    pub(crate) fn on_connected(&self, target: &Target) {
        if !self.is_away() {
            return;
        }
        let mut goodbye = self.goodbye.lock();
        if self.is_away.swap(false, Relaxed) {
            *goodbye = CancellationToken::new();
            self.taken.store(0, Relaxed);
            tracing::info!(upstream = %target, "the upstream takes connections again");
        }
    }

    /// There is no connection to the upstream. It is away if it was refused, and one of several if it did not prove itself; one that
    /// is slow, or for which this process lacks a descriptor or a port, may be there.
    pub(crate) fn on_failed(&self, target: &Target, error: &ConnectError) {
        let is_gone = matches!(error, ConnectError::Io(error) if is_refusal(error));
        let is_distrusted = self.has_others && error.is_unproved();
        if !is_gone && !is_distrusted {
            return;
        }
        // the token is the one of this absence, whoever finds the upstream again meanwhile
        let (goodbye, was_away) = {
            let goodbye = self.goodbye.lock();
            (goodbye.clone(), self.is_away.swap(true, Relaxed))
        };
        if !was_away {
            self.absences.fetch_add(1, Relaxed);
            let what = if self.has_others {
                "the upstream takes no connections: its share of the requests goes to the others until it does"
            } else {
                "the upstream takes no connections: clients' connections end with their next answer until it does"
            };
            tracing::warn!(upstream = %target, %error, "{what}");
            self.left_in_http2.store(self.spoken.is_http2(), Relaxed);
            self.spoken.forget();
        }
        goodbye.cancel();
    }

    /// An answer over HTTP/1.1 left the upstream's connection open, or closed it. Returns whether that is a goodbye: a server that closes
    /// each says nothing by it.
    pub(crate) fn on_answer(&self, closes: bool) -> bool {
        let kept = self.keeps.load(Relaxed);
        if kept == closes {
            self.keeps.store(!closes, Relaxed);
        }
        closes && kept
    }

    /// The upstream ended a connection: looks whether it takes another, in a task of its own.
    pub(crate) fn on_goodbye(self: &Arc<Self>, target: &Target, tasks: &Tasks) {
        // what stops does not wait for a look
        if self.is_away() || tasks.are_finishing() || !self.begins_probe() {
            return;
        }
        let (health, target, looking) = (self.clone(), target.clone(), tasks.clone());
        tasks.spawn(async move {
            if health.takes_connections(&target, PROBE_LIMIT).await && !looking.are_finishing() {
                tokio::time::sleep(SECOND_PROBE_DELAY).await;
                health.takes_connections(&target, PROBE_LIMIT).await;
            }
            health.is_probing.store(false, Relaxed);
        });
    }

    /// Looks whether an upstream that is away takes connections again, in a task of its own.
    pub(crate) fn look_for_absent(self: &Arc<Self>, target: &Target, tasks: &Tasks) {
        if !self.is_away() || tasks.are_finishing() || self.is_probing.swap(true, Relaxed) {
            return;
        }
        let (health, target) = (self.clone(), target.clone());
        tasks.spawn(async move {
            health.takes_connections(&target, PROBE_LIMIT).await;
            health.is_probing.store(false, Relaxed);
        });
    }

    /// Looks before Lapwing answers in place of an upstream that broke off: its answer, too, says whether the client may stay.
    pub(crate) async fn probe_before_answer(&self, target: &Target) {
        if !self.is_away() && self.begins_probe() {
            self.takes_connections(target, PROBE_BEFORE_ANSWER_LIMIT).await;
            self.is_probing.store(false, Relaxed);
        }
    }

    /// Whether it is time for another look, which begins now.
    fn begins_probe(&self) -> bool {
        let taken = self.taken.load(Relaxed);
        let pause = if taken == 0 { Duration::ZERO } else { SHORTEST_PAUSE * (1 << (taken - 1).min(DOUBLINGS)) };
        let now = Stamp::now();
        let is_time =
            Stamp::from_ns(self.looked.load(Relaxed)).is_none_or(|looked| u128::from(now.since(looked)) >= pause.as_nanos());
        if !is_time || self.is_probing.swap(true, Relaxed) {
            return false;
        }
        self.looked.store(now.as_ns(), Relaxed);
        true
    }

    async fn takes_connections(&self, target: &Target, limit: Duration) -> bool {
        match target.probe(limit).await {
            Ok(()) => {
                self.on_connected(target);
                self.taken.store(self.taken.load(Relaxed).saturating_add(1), Relaxed);
                true
            }
            Err(error) => {
                self.on_failed(target, &error);
                false
            }
        }
    }

    /// Whether requests can be sent to the upstream, found out by an attempt to connect and, if its answers were not HTTP as configured, by
    /// asking it once more what it speaks.
    ///
    /// # Errors
    ///
    /// The reason why they cannot, for people to read.
    pub async fn readiness(&self, target: &Target, limit: Duration) -> Result<(), String> {
        match target.probe(limit).await {
            Ok(()) => self.on_connected(target),
            Err(error) => {
                self.on_failed(target, &error);
                return Err(format!("cannot connect to the upstream {target}: {error}"));
            }
        }
        self.spoken.ask_again(target).await
    }
}

/// Whether nobody listens at the address.
fn is_refusal(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, NotFound};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable | NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> ConnectError {
        ConnectError::Io(io::ErrorKind::ConnectionRefused.into())
    }

    #[test]
    fn clients_are_told_once_it_refuses_and_no_longer_once_it_is_back() {
        let (health, target) = (UpstreamHealth::default(), Target::Tcp("127.0.0.1:1".into()));
        let early = health.goodbye();
        for harmless in [ConnectError::Timeout(PROBE_LIMIT), ConnectError::Io(io::Error::from_raw_os_error(24))] {
            health.on_failed(&target, &harmless);
            assert!(!health.is_away() && !early.is_cancelled(), "{harmless}");
        }
        health.on_failed(&target, &refused());
        assert!(health.is_away() && early.is_cancelled() && health.goodbye().is_cancelled());
        health.on_connected(&target);
        assert!(!health.is_away() && early.is_cancelled() && !health.goodbye().is_cancelled());
    }

    #[test]
    fn a_server_that_closes_each_connection_says_goodbye_once() {
        let health = UpstreamHealth::default();
        let answers = [false, false, true, true, true, false, true];
        assert_eq!(answers.map(|closes| health.on_answer(closes)), [false, false, true, false, false, false, true]);
        let health = UpstreamHealth::default();
        assert_eq!([true, true].map(|closes| health.on_answer(closes)), [false, false]);
    }

    #[tokio::test]
    async fn looks_that_find_it_are_rarer_each_time() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (health, target) = (UpstreamHealth::default(), Target::Tcp(listener.local_addr().unwrap().to_string()));
        health.probe_before_answer(&target).await;
        assert_eq!(health.taken.load(Relaxed), 1);
        health.probe_before_answer(&target).await;
        assert_eq!(health.taken.load(Relaxed), 1, "it was looked just now");
        drop(listener);
        tokio::time::sleep(SHORTEST_PAUSE).await;
        health.probe_before_answer(&target).await;
        assert!(health.is_away());
        assert!(health.readiness(&target, PROBE_LIMIT).await.is_err_and(|reason| reason.contains("cannot connect")));
    }
}
