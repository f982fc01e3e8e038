//! A deadline that costs almost nothing per request: its timer outlives requests and is set again only when it fires.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Sleep;

use super::reader::is_told;
use lapwing_ledger::Stamp;

/// A deadline whose timer is left alone between firings, however many requests pass.
#[derive(Debug, Default)]
pub(crate) struct LazyDeadline {
    armed: Option<(Pin<Box<Sleep>>, Stamp)>,
    /// Who is woken by the timer: as long as it is the same task, the timer need not be told.
    waits: Option<Waker>,
}

impl LazyDeadline {
    /// Returns whether `limit` has passed since `since`. If it has not, the task is woken when it may have. Several limits may share the
    /// deadline, if each is asked about whenever the task is woken. [`Duration::MAX`] is no limit, and sets no timer.
    pub(crate) fn has_expired(&mut self, cx: &mut Context<'_>, since: Stamp, limit: Duration) -> bool {
        if limit == Duration::MAX {
            return false;
        }
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let due = since.plus(limit_ns);
        if self.armed.as_ref().is_none_or(|(_, at)| *at > due) {
            let now = Stamp::now();
            if now >= due {
                return true; // the timer was set for another limit
            }
            self.arm(due, now);
        }
        loop {
            let Some((sleep, _)) = &mut self.armed else { return false };
            if !sleep.is_elapsed() && self.waits.as_ref().is_some_and(|waits| waits.will_wake(cx.waker())) {
                return false;
            }
            let polled = sleep.as_mut().poll(cx);
            match polled {
                Poll::Pending => {
                    self.waits = is_told(&polled).then(|| cx.waker().clone());
                    return false;
                }
                Poll::Ready(()) if since.elapsed() >= limit_ns => {
                    self.armed = None;
                    return true;
                }
                Poll::Ready(()) => self.arm(due, Stamp::now()),
            }
        }
    }

    /// Wakes the task within `limit` from now.
    pub(crate) fn wake_within(&mut self, cx: &mut Context<'_>, limit: Duration) {
        if self.has_expired(cx, Stamp::now(), limit) {
            // the thread stood still for as long, and no timer is set
            cx.waker().wake_by_ref();
        }
    }

    /// Nobody waits any more: the timer keeps no task, and goes on for whoever has the deadline next.
    pub(crate) fn rest(&mut self) {
        self.waits = None;
        let cx = &mut Context::from_waker(Waker::noop());
        if self.armed.as_mut().is_some_and(|(sleep, _)| sleep.as_mut().poll(cx).is_ready()) {
            self.armed = None;
        }
    }

    fn arm(&mut self, due: Stamp, now: Stamp) {
        // one millisecond more than the timer's own granularity, so that it does not fire just before it is due
        let left = Duration::from_nanos(due.since(now)) + Duration::from_millis(1);
        (self.armed, self.waits) = (Some((Box::pin(tokio::time::sleep(left)), due)), None);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    struct Task;

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    #[tokio::test]
    async fn a_deadline_that_rests_keeps_no_task_and_serves_the_next_wait() {
        let (task, mut deadline) = (Arc::new(Task), LazyDeadline::default());
        let waker = Waker::from(task.clone());
        assert!(!deadline.has_expired(&mut Context::from_waker(&waker), Stamp::now(), Duration::from_millis(20)));
        drop(waker);
        assert_eq!(Arc::strong_count(&task), 3, "the timer would wake it, and it is known");
        deadline.rest();
        assert_eq!(Arc::strong_count(&task), 1);
        let (since, limit) = (Stamp::now(), Duration::from_millis(30));
        let expired = poll_fn(|cx| if deadline.has_expired(cx, since, limit) { Poll::Ready(()) } else { Poll::Pending });
        assert_eq!(tokio::time::timeout(Duration::from_secs(5), expired).await, Ok(()));
        assert!(since.elapsed() >= 30_000_000, "the timer was set for the wait before");
    }

    #[tokio::test]
    async fn another_task_that_waits_is_woken_too() {
        let (first, mut deadline) = (Waker::from(Arc::new(Task)), LazyDeadline::default());
        let (since, limit) = (Stamp::now(), Duration::from_millis(20));
        for _ in 0..2 {
            assert!(!deadline.has_expired(&mut Context::from_waker(&first), since, limit));
        }
        let expired = poll_fn(|cx| if deadline.has_expired(cx, since, limit) { Poll::Ready(()) } else { Poll::Pending });
        assert_eq!(tokio::time::timeout(Duration::from_secs(5), expired).await, Ok(()));
    }

    #[tokio::test]
    async fn the_shorter_of_two_limits_expires_whichever_is_asked_about_first() {
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(60));
        for limits in [[short, long], [long, short]] {
            let (since, mut deadline) = (Stamp::now(), LazyDeadline::default());
            let expired = poll_fn(|cx| match limits.iter().find(|limit| deadline.has_expired(cx, since, **limit)) {
                Some(limit) => Poll::Ready(*limit),
                None => Poll::Pending,
            });
            assert_eq!(tokio::time::timeout(Duration::from_secs(5), expired).await, Ok(short));
        }
    }
}
