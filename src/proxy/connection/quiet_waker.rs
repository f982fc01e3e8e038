//! The waker of a task that carries both sides of an exchange. Hyper's connections tell each other by channels, and each message wakes the
//! task at the other end. Here that is the same task, in the same turn, and it looks at the other end anyway: without this, it would take one
//! more turn for each message, and find nothing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::Context;

use futures_util::task::AtomicWaker;

/// No thread is quiet.
const LOUD: usize = 0;

/// Wakes the task that was registered last, unless the thread that does it is quiet. A wake-up by another thread always passes. The connection's
/// meter is the [`Waker`](std::task::Waker) that holds it.
#[derive(Debug, Default)]
pub(crate) struct QuietWaker {
    task: AtomicWaker,
    quiet: AtomicUsize,
    is_missed: AtomicBool,
}

impl QuietWaker {
    /// The task of `cx` is the one to wake from now on.
    pub(crate) fn register(&self, cx: &Context<'_>) {
        self.task.register(cx.waker());
    }

    /// Nobody is to be woken any more.
    pub(crate) fn forget(&self) {
        drop(self.task.take());
    }

    /// Calls `act`, which wakes nobody. Returns its result, and whether it would have.
    pub(crate) fn quietly<T>(&self, act: impl FnOnce() -> T) -> (T, bool) {
        self.is_missed.store(false, Relaxed);
        self.quiet.store(this_thread(), Relaxed);
        let result = act();
        self.quiet.store(LOUD, Relaxed);
        (result, self.is_missed.load(Relaxed))
    }

    /// Wakes the task, unless this thread is quiet.
    pub(crate) fn wake(&self) {
        let quiet = self.quiet.load(Relaxed);
        if quiet == LOUD || quiet != this_thread() {
            self.task.wake();
        } else {
            self.is_missed.store(true, Relaxed);
        }
    }
}

/// A number that no other running thread has; never [`LOUD`].
fn this_thread() -> usize {
    thread_local! {
        static MARK: u8 = const { 0 };
    }
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_task_is_woken_unless_it_is_to_be_left_alone() {
        let (task, quiet) = (Arc::<Task>::default(), QuietWaker::default());
        let of_task = Waker::from(task.clone());
        quiet.wake(); // nobody is registered
        quiet.register(&Context::from_waker(&of_task));
        quiet.wake();
        assert_eq!(task.0.load(Relaxed), 1);
        quiet.register(&Context::from_waker(&of_task));
        assert_eq!(quiet.quietly(|| 7), (7, false));
        assert_eq!(quiet.quietly(|| quiet.wake()), ((), true));
        assert_eq!(task.0.load(Relaxed), 1);
        quiet.wake();
        assert_eq!(task.0.load(Relaxed), 2, "only once");
        quiet.register(&Context::from_waker(&of_task));
        let by_another = || std::thread::scope(|scope| scope.spawn(|| quiet.wake()).join()).is_ok();
        assert_eq!(quiet.quietly(by_another), (true, false));
        assert_eq!(task.0.load(Relaxed), 3, "another thread knows nothing of that");
        quiet.register(&Context::from_waker(&of_task));
        quiet.forget();
        quiet.wake();
        assert_eq!(task.0.load(Relaxed), 3);
    }
}
