//! The HTTP/2 connections of one worker to an upstream, which all its clients share, and those that a client has for itself.
//!
//! Streams of several clients share a connection only as long as none can hold another up:
//!
//! - Answers: a stream takes at most its window ahead of a client that does not read, and the connection's window has room for that of every
//!   stream. So that a client cannot fill memory with what it leaves unread, it has so many streams on shared connections, at most, and the
//!   others on a connection of its own.
//! - Requests: while one waits for the upstream's window, which may be the whole connection's, no other is sent after it: others take
//!   another connection, and those of the same client its own.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::h2_connection::{H2Connection, MAX_STREAMS, Windows};
use crate::connection::{LazyDeadline, StreamLoad, StreamPlace};
use lapwing_ledger::Stamp;

/// A client's streams on shared connections, at most.
const CLIENT_STREAMS: u32 = 64;
/// All that one client leaves unread on shared connections is as much as on its own.
const SHARED: Windows =
    Windows { stream: CONNECTION_WINDOW / CLIENT_STREAMS, connection: CONNECTION_WINDOW / CLIENT_STREAMS * MAX_STREAMS };
const OWN: Windows = Windows { stream: STREAM_WINDOW, connection: CONNECTION_WINDOW };
/// A stream's window in bytes on a connection of its client's own: how much may be sent ahead to a slow reader.
pub(crate) const STREAM_WINDOW: u32 = 1 << 20;
/// Such a connection's window in bytes.
pub(crate) const CONNECTION_WINDOW: u32 = 4 << 20;
/// Shared connections, at most: beyond, each client has its own.
const MAX_CONNECTIONS: usize = 64;
/// How long a shared connection is kept that nobody uses, in nanoseconds.
const IDLE_NS: u64 = 300_000_000_000;
/// Deadlines that are kept for a client's further requests, at most.
const KEPT_DEADLINES: usize = 32;

/// The connections that a worker's clients share.
#[derive(Debug, Default)]
pub(crate) struct H2Pool {
    connections: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Connections {
    all: Vec<Pooled>,
    is_closed: bool,
}

#[derive(Debug)]
struct Pooled {
    connection: Arc<H2Connection>,
    /// Since when nobody is known to have used it.
    idle_since: Option<Stamp>,
}

impl H2Pool {
    /// The first with room for one more stream, or a new one; `None` if there are too many, or it is closed.
    fn with_room(&self) -> Option<Arc<H2Connection>> {
        let mut connections = self.connections.lock();
        let Connections { all, is_closed } = &mut *connections;
        if let Some(found) = all.iter().find(|pooled| pooled.connection.has_room()) {
            return Some(found.connection.clone());
        }
        if *is_closed || all.len() == MAX_CONNECTIONS {
            return None;
        }
        let connection = Arc::new(H2Connection::new(SHARED));
        all.push(Pooled { connection: connection.clone(), idle_since: None });
        Some(connection)
    }

    /// Lets all connections go, which end with their last streams. Clients that are still there have connections of their own.
    pub(crate) fn close(&self) {
        *self.connections.lock() = Connections { all: Vec::new(), is_closed: true };
    }

    /// Closes those that nobody has used for too long, as is found out by calling this every second.
    pub(crate) fn sweep(&self, now: Stamp) {
        self.connections.lock().all.retain_mut(|pooled| {
            let Pooled { connection, idle_since } = pooled;
            if connection.is_used.swap(false, Relaxed) || connection.load.open() > 0 {
                *idle_since = None;
                return true;
            }
            now.since(*idle_since.get_or_insert(now)) < IDLE_NS
        });
    }
}

/// One client's HTTP/2 streams to an upstream.
#[derive(Debug, Default)]
pub(crate) struct H2Client {
    load: Arc<StreamLoad>,
    /// For what it cannot have on a shared connection.
    own: OnceLock<Arc<H2Connection>>,
    /// Of requests that were answered: their timers outlive them.
    deadlines: Mutex<Vec<LazyDeadline>>,
}

impl H2Client {
    /// A connection for one more stream, and the place on it.
    pub(crate) fn place(&self, pool: &H2Pool) -> (Arc<H2Connection>, StreamPlace) {
        let may_share = self.load.open() < CLIENT_STREAMS && self.load.waiting() == 0;
        let shared = if may_share { pool.with_room() } else { None };
        let is_shared = shared.is_some();
        let connection = shared.unwrap_or_else(|| self.own.get_or_init(|| Arc::new(H2Connection::new(OWN))).clone());
        if is_shared {
            connection.is_used.store(true, Relaxed);
        }
        let place = StreamPlace::take(&connection.load, &self.load, is_shared);
        (connection, place)
    }

    pub(crate) fn deadline(&self) -> LazyDeadline {
        self.deadlines.lock().pop().unwrap_or_default()
    }

    pub(crate) fn keep_deadline(&self, mut deadline: LazyDeadline) {
        let mut kept = self.deadlines.lock();
        if kept.len() < KEPT_DEADLINES {
            deadline.rest();
            kept.push(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Stamp {
        Stamp::from_ns(1 + seconds * 1_000_000_000).unwrap()
    }

    #[test]
    fn a_client_shares_so_many_streams_and_has_the_others_for_itself() {
        let (pool, client, other) = (H2Pool::default(), H2Client::default(), H2Client::default());
        let shared: Vec<_> = (0..CLIENT_STREAMS).map(|_| client.place(&pool)).collect();
        assert!(shared.iter().all(|(connection, _)| Arc::ptr_eq(connection, &shared[0].0)));
        let (own, _place) = client.place(&pool);
        assert!(!Arc::ptr_eq(&own, &shared[0].0));
        assert!(Arc::ptr_eq(&other.place(&pool).0, &shared[0].0));
        drop(shared);
        assert!(!Arc::ptr_eq(&client.place(&pool).0, &own));
    }

    #[test]
    fn what_is_left_unread_fits_the_connections_window() {
        assert!(u64::from(SHARED.stream) * u64::from(MAX_STREAMS) <= u64::from(SHARED.connection));
        assert_eq!(SHARED.stream * CLIENT_STREAMS, OWN.connection);
    }

    #[test]
    fn connections_are_bounded_and_those_that_nobody_uses_go() {
        let pool = H2Pool::default();
        let clients: Vec<_> = (0..=MAX_CONNECTIONS).map(|_| H2Client::default()).collect();
        let held: Vec<_> = clients
            .iter()
            .map(|client| {
                let (connection, place) = client.place(&pool);
                let mut upload = place.upload();
                upload.set(true); // so that the next takes another
                (connection, place, upload)
            })
            .collect();
        assert_eq!(pool.connections.lock().all.len(), MAX_CONNECTIONS);
        assert!(clients.last().unwrap().own.get().is_some());
        let idle = IDLE_NS / 1_000_000_000;
        let left = |now| {
            pool.sweep(at(now));
            pool.connections.lock().all.len()
        };
        assert_eq!([left(0), left(2 * idle)], [MAX_CONNECTIONS; 2]);
        drop(held);
        assert_eq!([left(2 * idle + 1), left(3 * idle), left(3 * idle + 2)], [MAX_CONNECTIONS, MAX_CONNECTIONS, 0]);
        let (connection, place) = clients[0].place(&pool);
        drop(place);
        assert_eq!([left(4 * idle), left(4 * idle + 1), left(5 * idle)], [1, 1, 1], "it was used in between");
        assert!(Arc::ptr_eq(&clients[1].place(&pool).0, &connection));
        pool.close();
        assert!(!Arc::ptr_eq(&clients[1].place(&pool).0, &connection), "once closed, nobody shares");
    }
}
