//! The tasks of one listener: its connections and their HTTP/2 streams, counted so that the drain can wait for them.

use tokio_util::task::TaskTracker;

/// Spawns tasks on the current runtime and counts those that run. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Tasks(pub(crate) TaskTracker);

impl Tasks {
    /// Runs `task` until it ends.
    pub fn spawn<F>(&self, task: F)
    where
        F: Future<Output: Send> + Send + 'static,
    {
        #[cfg(any(test, feature = "testing"))]
        if super::simulated::is_running() {
            return super::simulated::spawn(self.0.track_future(task));
        }
        self.0.spawn(task);
    }

    /// Returns whether a caller waits until no task is left.
    #[must_use]
    pub fn are_finishing(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits until no task is left. Tasks that are spawned meanwhile are waited for too.
    pub async fn finished(&self) {
        self.0.close();
        self.0.wait().await;
    }
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.spawn(future);
    }
}
