//! A request that goes on beside its answer. Whoever asks for the answer's body sends the rest of the request too, for that costs no task. But a
//! client may take its answer only when all of its request was sent, and until then nobody asks: so the request goes on by itself, in tasks that
//! begin when there is something to do.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use lapwing_net::Tasks;

/// What is left of a request whose answer has begun.
pub(crate) trait GoesOn: Send + 'static {
    /// Sends what can be sent without waiting. Returns whether there is nothing more to send.
    fn go_on(&mut self, cx: &mut Context<'_>) -> bool;
}

/// What both have: those who ask for the answer, and the waker with which the request is polled.
struct Shared<T> {
    /// `None` while it is taken, and when there is nothing left of it.
    rest: Mutex<Option<T>>,
    tasks: Tasks,
    /// The task that asks for the answer.
    task: Mutex<Option<Waker>>,
    /// The answer was given to it, and it has not asked for more.
    is_left: AtomicBool,
    /// The request can go on, and nobody has looked since.
    is_woken: AtomicBool,
    is_spawned: AtomicBool,
}

/// The rest of a request, for the one who asks for the answer. It ends with this.
pub(crate) struct Beside<T: GoesOn> {
    shared: Arc<Shared<T>>,
    waker: Waker,
}

impl<T: GoesOn> fmt::Debug for Beside<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside").field("is_left", &self.shared.is_left).finish_non_exhaustive()
    }
}

impl<T: GoesOn> Beside<T> {
    /// Nobody has asked for the answer yet.
    pub(crate) fn new(rest: Option<T>, tasks: Tasks) -> Self {
        let [is_woken, is_spawned] = <[AtomicBool; 2]>::default();
        let is_left = AtomicBool::new(true);
        let shared = Shared { rest: Mutex::new(rest), tasks, task: Mutex::default(), is_left, is_woken, is_spawned };
        let shared = Arc::new(shared);
        Self { waker: shared.clone().into(), shared }
    }

    /// With which the request has to be polled.
    pub(crate) const fn waker(&self) -> &Waker {
        &self.waker
    }

    /// The task of `cx` asks for the answer, and is woken when the request can go on, until [`Self::leave`].
    pub(crate) fn ask(&self, cx: &Context<'_>) {
        let mut task = self.shared.task.lock();
        if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
        drop(task);
        self.shared.is_left.store(false, SeqCst);
        self.shared.is_woken.store(false, SeqCst);
    }

    /// A piece of the answer was given, and nobody asks until it is taken.
    pub(crate) fn leave(&self) {
        self.shared.is_left.store(true, SeqCst);
        if self.shared.is_woken.swap(false, SeqCst) {
            self.shared.spawn();
        }
    }

    /// Sends what can be sent without waiting. Returns whether there is nothing more to send.
    pub(crate) fn go_on(&self) -> bool {
        self.shared.go_on(&self.waker)
    }

    /// Takes what is left.
    pub(crate) fn take(&self) -> Option<T> {
        self.shared.rest.lock().take()
    }

    /// Puts back what was taken.
    pub(crate) fn put(&self, rest: T) {
        *self.shared.rest.lock() = Some(rest);
    }
}

impl<T: GoesOn> Drop for Beside<T> {
    fn drop(&mut self) {
        // whom it waits for may keep the waker
        drop(self.take());
    }
}

impl<T: GoesOn> Shared<T> {
    fn go_on(&self, waker: &Waker) -> bool {
        let mut rest = self.rest.lock();
        if rest.as_mut().is_some_and(|rest| rest.go_on(&mut Context::from_waker(waker))) {
            *rest = None;
        }
        rest.is_none()
    }

    fn spawn(self: &Arc<Self>) {
        // without a runtime everything ends
        if self.is_spawned.load(SeqCst) || Handle::try_current().is_err() || self.is_spawned.swap(true, SeqCst) {
            return;
        }
        let this = self.clone();
        self.tasks.spawn(async move {
            this.is_spawned.store(false, SeqCst);
            this.go_on(&this.clone().into());
        });
    }
}

impl<T: GoesOn> Wake for Shared<T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, SeqCst);
        if self.is_left.load(SeqCst) {
            self.spawn();
        } else if let Some(task) = &*self.task.lock() {
            task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use tokio::task::yield_now;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// Counts how often it is sent; over after three times.
    struct Rest(Arc<Count>);

    impl GoesOn for Rest {
        fn go_on(&mut self, _: &mut Context<'_>) -> bool {
            self.0.0.fetch_add(1, Relaxed) == 2
        }
    }

    #[tokio::test]
    async fn whoever_asks_is_woken_and_while_nobody_asks_it_goes_on() {
        let [task, sent] = [(); 2].map(|()| Arc::<Count>::default());
        let of_task = Waker::from(task.clone());
        let beside = Beside::new(Some(Rest(sent.clone())), Tasks::default());
        let counts = async || {
            yield_now().await;
            (task.0.load(Relaxed), sent.0.load(Relaxed))
        };
        beside.waker().wake_by_ref();
        beside.waker().wake_by_ref();
        assert_eq!(counts().await, (0, 1), "nobody has asked yet");
        beside.ask(&Context::from_waker(&of_task));
        beside.waker().wake_by_ref();
        assert_eq!(counts().await, (1, 1));
        beside.leave();
        assert_eq!(counts().await, (1, 2), "it was woken before, and who asked may not come again");
        beside.leave();
        assert_eq!(counts().await, (1, 2));
        beside.waker().wake_by_ref();
        assert_eq!(counts().await, (1, 3));
        beside.waker().wake_by_ref();
        assert_eq!((counts().await, beside.go_on()), ((1, 3), true), "it is over");
        let waker = beside.waker().clone();
        beside.put(Rest(sent.clone()));
        drop(beside);
        assert_eq!(Arc::strong_count(&sent), 1, "it ends with the answer, whoever has the waker");
        waker.wake();
        assert_eq!(counts().await, (1, 3));
    }
}
