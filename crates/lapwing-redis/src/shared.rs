//! What requests and the background share: the connection, the breaker, and what waits to be written.

use parking_lot::RwLock;
use redis::{RedisError, ServerErrorKind, Value};
use tokio::sync::Notify;

use crate::breaker::Breaker;
use crate::connect::Link;
use crate::counts::Counters;
use crate::queue::{QueueBounds, WriteQueue};

/// What requests and the background share.
pub(crate) struct Shared {
    link: RwLock<Option<Link>>,
    pub(crate) breaker: Breaker,
    pub(crate) queue: WriteQueue,
    pub(crate) counters: Counters,
    /// Wakes the background: the breaker opened, the connection ended, or something is to be written.
    pub(crate) wake: Notify,
}

impl Shared {
    /// Without a connection, and with room for so much to write.
    pub(crate) fn new(queue: QueueBounds) -> Self {
        Self {
            link: RwLock::new(None),
            breaker: Breaker::default(),
            queue: WriteQueue::new(queue),
            counters: Counters::default(),
            wake: Notify::new(),
        }
    }

    pub(crate) fn link(&self) -> Option<Link> {
        self.link.read().clone()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.link.read().is_some()
    }

    pub(crate) fn set_link(&self, link: Option<Link>) {
        *self.link.write() = link;
    }

    /// Somebody's read failed.
    pub(crate) fn failed(&self, is_lost: bool) {
        let has_opened = self.breaker.failed();
        if is_lost {
            self.set_link(None);
        }
        if has_opened || is_lost {
            self.wake.notify_one();
        }
    }
}

/// Whether the connection is of no use any more. A cluster's looks for its nodes by itself.
pub(crate) fn is_lost(error: &RedisError) -> bool {
    error.is_unrecoverable_error() && !error.is_timeout()
}

/// Whether a server answers that it cannot answer anything now.
pub(crate) fn is_outage(value: &Value) -> bool {
    let Value::ServerError(error) = value else { return false };
    let away = [ServerErrorKind::BusyLoading, ServerErrorKind::MasterDown, ServerErrorKind::ClusterDown];
    error.kind().is_some_and(|kind| away.contains(&kind)) || error.code() == "NOAUTH"
}
