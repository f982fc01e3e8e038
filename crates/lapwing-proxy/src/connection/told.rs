//! Whether the runtime remembers who waits.
//!
//! A task's turn is a budget (`tokio::task::coop`). Once it is used up, a socket or timer is `Pending` without having been asked: the task is
//! polled once more, and neither the socket nor the timer knows of it. A read may use the last of it on the way, for it asks the runtime again
//! after the system had nothing. So it is only known afterwards.

use std::task::Poll;

use tokio::task::coop::has_budget_remaining;

/// Returns whether a socket or timer that has just been `polled` wakes the task.
pub(crate) fn is_told<T>(polled: &Poll<T>) -> bool {
    polled.is_pending() && has_budget_remaining()
}
