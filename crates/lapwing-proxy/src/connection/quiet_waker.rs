//! The waker of a task that carries both sides of an exchange. Hyper's connections tell each other by channels, and each message wakes the
//! task at the other end. Here that is the same task, in the same turn, and it looks at the other end anyway: without this, it would take one
//! more turn for each message, and find nothing.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Waker};

use parking_lot::Mutex;

/// No thread is quiet.
const LOUD: usize = 0;

/// Wakes the task that was registered last, unless the thread that does it is quiet. A wake-up by another thread always passes. The connection's
/// meter is the [`Waker`](std::task::Waker) that holds it.
#[derive(Debug, Default)]
pub(crate) struct QuietWaker {
    task: Mutex<Option<Waker>>,
    /// Where the task's waker has its data and its functions: no other has the same, as long as this one is kept.
    known: [AtomicUsize; 2],
    quiet: AtomicUsize,
    is_missed: AtomicBool,
    calls: AtomicU32,
}

impl QuietWaker {
    /// The task of `cx` is the one to wake from now on. Only the task that holds the connection registers itself, and it does so whenever it is
    /// polled, so nothing is locked if it is known.
    pub(crate) fn register(&self, cx: &Context<'_>) {
        let waker = cx.waker();
        let places = [waker.data().addr(), std::ptr::from_ref(waker.vtable()).addr()];
        if !self.known.iter().zip(places).all(|(known, place)| known.load(Relaxed) == place) {
            self.replace(Some(waker.clone()), places);
        }
    }

    /// Nobody is to be woken any more.
    pub(crate) fn forget(&self) {
        self.replace(None, [0; 2]);
    }

    fn replace(&self, task: Option<Waker>, places: [usize; 2]) {
        let before = std::mem::replace(&mut *self.task.lock(), task);
        self.known.iter().zip(places).for_each(|(known, place)| known.store(place, Relaxed));
        drop(before);
    }

    /// Calls `act`, which wakes nobody. Returns its result, and whether it would have.
    pub(crate) fn quietly<T>(&self, act: impl FnOnce() -> T) -> (T, bool) {
        self.is_missed.store(false, Relaxed);
        self.quiet.store(this_thread(), Relaxed);
        let result = act();
        self.quiet.store(LOUD, Relaxed);
        (result, self.is_missed.load(Relaxed))
    }

    /// A number that is another one once there was reason to wake the task, whoever that is; wraps.
    pub(crate) fn calls(&self) -> u32 {
        self.calls.load(Relaxed)
    }

    /// Wakes the task, unless this thread is quiet.
    pub(crate) fn wake(&self) {
        let quiet = self.quiet.load(Relaxed);
        if quiet == LOUD || quiet != this_thread() {
            self.calls.store(self.calls().wrapping_add(1), Relaxed);
            self.task.lock().iter().for_each(Waker::wake_by_ref);
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
        assert_eq!(quiet.calls(), 1);
        quiet.register(&Context::from_waker(&of_task));
        quiet.wake();
        assert_eq!(task.0.load(Relaxed), 1);
        quiet.register(&Context::from_waker(&of_task));
        assert_eq!(quiet.quietly(|| 7), (7, false));
        assert_eq!((quiet.quietly(|| quiet.wake()), quiet.calls()), (((), true), 2));
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
