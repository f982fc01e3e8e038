//! The threads of runs by rten, which takes none but its own pools.

use std::sync::Arc;

use ::rten::ThreadPool;

/// The threads in which one thread has rten run models; started by the first run.
#[derive(Debug, Default)]
pub(crate) struct RtenThreads(Option<(usize, Arc<ThreadPool>)>);

impl RtenThreads {
    /// A pool of `count` threads.
    pub(crate) fn pool(&mut self, count: usize) -> Arc<ThreadPool> {
        match &self.0 {
            Some((threads, pool)) if *threads == count => Arc::clone(pool),
            _ => {
                let pool = Arc::new(ThreadPool::with_num_threads(count));
                self.0 = Some((count, Arc::clone(&pool)));
                pool
            }
        }
    }
}
