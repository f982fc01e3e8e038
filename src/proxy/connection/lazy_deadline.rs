//! A deadline that costs almost nothing per request: its timer outlives requests and is set again only when it fires.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

use crate::ledger::Stamp;

/// A deadline whose timer is left alone between firings, however many requests pass.
#[derive(Debug, Default)]
pub(crate) struct LazyDeadline {
    armed: Option<(Pin<Box<Sleep>>, Stamp)>,
}

impl LazyDeadline {
    /// Returns whether `limit` has passed since `since`. If it has not, the task is woken when it may have.
    pub(crate) fn has_expired(&mut self, cx: &mut Context<'_>, since: Stamp, limit: Duration) -> bool {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let due = since.plus(limit_ns);
        if self.armed.as_ref().is_none_or(|(_, at)| *at > due) {
            self.arm(due);
        }
        loop {
            let Some((sleep, _)) = &mut self.armed else { return false };
            match sleep.as_mut().poll(cx) {
                Poll::Pending => return false,
                Poll::Ready(()) if since.elapsed() >= limit_ns => {
                    self.armed = None;
                    return true;
                }
                Poll::Ready(()) => self.arm(due),
            }
        }
    }

    fn arm(&mut self, due: Stamp) {
        // one millisecond more than the timer's own granularity, so that it does not fire just before it is due
        let left = Duration::from_nanos(due.since(Stamp::now())) + Duration::from_millis(1);
        self.armed = Some((Box::pin(tokio::time::sleep(left)), due));
    }
}
