//! The server's tasks, connections and streams of HTTP/2, in one set that ends with it.

use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use tokio::task::JoinSet;

/// Spawns tasks into the set, while there is one.
#[derive(Clone, Debug)]
pub(super) struct Tasks(Arc<Mutex<Option<JoinSet<()>>>>);

/// The one that owns the set: when it is dropped, so is every task.
#[derive(Debug)]
pub(super) struct Owner(Tasks);

impl Owner {
    pub(super) fn new() -> Self {
        Self(Tasks(Arc::new(Mutex::new(Some(JoinSet::new())))))
    }

    pub(super) fn tasks(&self) -> Tasks {
        self.0.clone()
    }

    /// Waits until no task is left.
    pub(super) async fn idle(&self) {
        std::future::poll_fn(|cx| {
            let mut set = self.0.0.lock();
            let Some(set) = set.as_mut() else { return Poll::Ready(()) };
            loop {
                match set.poll_join_next(cx) {
                    Poll::Ready(Some(_)) => {}
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await;
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // taken out first: a task that is dropped may look for the set
        let set = self.0.0.lock().take();
        drop(set);
    }
}

impl Tasks {
    /// Runs `task` until it ends or the owner does.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(set) = self.0.lock().as_mut() {
            while set.try_join_next().is_some() {} // what has ended is let go
            set.spawn(task);
        }
    }
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.spawn(async {
            future.await;
        });
    }
}
