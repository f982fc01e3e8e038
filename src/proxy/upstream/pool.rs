//! Idle links of one worker, the latest used first.
//!
//! Servers close idle connections after a few seconds (uvicorn: five), so a link is let go of before that; what is
//! taken is looked at once more, so that a request is written only where the upstream still listens.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;

use super::link::Link;
use crate::ledger::Stamp;

/// How many idle links a worker keeps.
const KEPT: usize = 1024;

/// The idle links.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: Mutex<VecDeque<Link>>,
    limit_ns: AtomicU64,
}

impl Pool {
    /// An empty pool that lets go of links idle for longer than `limit`.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { idle: Mutex::default(), limit_ns: nanos(limit).into() }
    }

    /// A live link, if there is one at `now`.
    pub(crate) async fn take(&self, now: Stamp) -> Option<Link> {
        loop {
            let mut link = self.idle.lock().pop_back()?;
            let is_fresh = link.idle_since.is_some_and(|since| now.since(since) < self.limit_ns.load(Relaxed));
            poll_fn(|cx| {
                link.drive(cx);
                Poll::Ready(())
            })
            .await;
            if is_fresh && link.is_idle() {
                return Some(link);
            }
        }
    }

    /// Takes back a link that can carry another request, idle since `now`; drops (closes) any other.
    pub(crate) fn put(&self, mut link: Link, now: Stamp) {
        if link.is_idle() {
            link.idle_since = Some(now);
            let mut idle = self.idle.lock();
            if idle.len() == KEPT {
                idle.pop_front();
            }
            idle.push_back(link);
        }
    }

    /// Closes what has been idle for `limit`, which is the pool's limit from now on.
    pub(crate) fn sweep(&self, limit: Duration) {
        let (now, limit_ns) = (Stamp::now(), nanos(limit));
        self.limit_ns.store(limit_ns, Relaxed);
        let mut idle = self.idle.lock();
        while idle.front().is_some_and(|l| l.idle_since.is_none_or(|since| now.since(since) >= limit_ns)) {
            idle.pop_front();
        }
    }
}

fn nanos(limit: Duration) -> u64 {
    u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)
}
