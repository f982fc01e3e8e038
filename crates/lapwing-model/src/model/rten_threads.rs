//! The threads of runs by rten, which takes none but its own pools.

use std::sync::Arc;

use ::rten::ThreadPool;
use lapwing_engine::cpu::threads::Threads;

/// The threads in which one thread has rten run models; started by the first run.
#[derive(Debug, Default)]
pub(crate) struct RtenThreads(Option<(Arc<Threads>, Arc<ThreadPool>)>);

impl RtenThreads {
    /// A pool of as many threads as those of plans, held to the same processors.
    pub(crate) fn pool(&mut self, like: &Arc<Threads>) -> Arc<ThreadPool> {
        match &self.0 {
            Some((threads, pool)) if Arc::ptr_eq(threads, like) => Arc::clone(pool),
            _ => {
                let pool = Arc::new(ThreadPool::with_num_threads(like.count()));
                pool.run(|| like.hold_current_pool());
                self.0 = Some((Arc::clone(like), Arc::clone(&pool)));
                pool
            }
        }
    }
}
