//! The threads that share one forward pass: a pool of fixed size, each thread held to a processor of its own if asked for.
//!
//! With one thread there is no pool: the caller's own thread does everything.

use std::ops::Range;

use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Why there are no such threads.
#[derive(Debug, thiserror::Error)]
pub enum ThreadsError {
    /// The operating system gives no more.
    #[error("threads: {count} cannot be started: {reason}")]
    Start {
        /// How many were asked for.
        count: usize,
        /// What it said.
        reason: String,
    },
    /// A processor that this process may not use.
    #[error("cpus: {cpu} cannot be used: {reason}")]
    Pin {
        /// Its number.
        cpu: usize,
        /// What the operating system said.
        reason: String,
    },
}

/// Threads for forward passes.
#[derive(Debug)]
pub struct Threads {
    pool: Option<rayon::ThreadPool>,
    count: usize,
}

impl Threads {
    /// The caller's own thread.
    #[must_use]
    pub const fn one() -> Self {
        Self { pool: None, count: 1 }
    }

    /// So many threads (at least one), the first of them on `cpus[0]`, and so on; on any processor where `cpus` is empty. A
    /// single thread is the caller's: it stays where it is, and is held by [`pin`].
    ///
    /// # Errors
    ///
    /// [`ThreadsError`] where they cannot be started or held.
    pub fn new(count: usize, cpus: &[usize]) -> Result<Self, ThreadsError> {
        if count <= 1 {
            return Ok(Self::one());
        }
        if let Some(cpu) = cpus.iter().find(|cpu| !may_use(**cpu)) {
            return Err(ThreadsError::Pin { cpu: *cpu, reason: "is not among those that this process may use".into() });
        }
        let places = cpus.to_vec();
        let hold = move |thread: usize| {
            if let Some(cpu) = places.get(thread)
                && let Err(error) = pin(*cpu)
            {
                tracing::warn!(%error, "a thread of the engine runs where the system puts it");
            }
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(count)
            .thread_name(|thread| format!("engine-{thread}"))
            .start_handler(hold)
            .build()
            .map_err(|e| ThreadsError::Start { count, reason: e.to_string() })?;
        Ok(Self { pool: Some(pool), count })
    }

    /// How many.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Does `work` on one of them, so that what it splits costs no way from thread to thread first.
    pub fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// Cuts `0..count` into at most as many parts as there are threads, none smaller than `least`, and does them at the same
    /// time; `work` gets the part's place and range.
    ///
    /// # Errors
    ///
    /// One of those that the parts gave.
    pub fn split<E: Send>(
        &self,
        count: usize,
        least: usize,
        work: impl Fn(usize, Range<usize>) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let parts = self.count.min(count / least.max(1)).max(1);
        if parts == 1 {
            return work(0, 0..count);
        }
        let bound = |part: usize| count * part / parts;
        (0..parts).into_par_iter().with_max_len(1).try_for_each(|part| work(part, bound(part)..bound(part + 1)))
    }

    /// Does `work` once on each thread, all at the same time; it gets the thread's place.
    pub fn all(&self, work: impl Fn(usize) + Sync) {
        match &self.pool {
            Some(pool) => drop(pool.broadcast(|context| work(context.index()))),
            None => work(0),
        }
    }
}

/// Holds the calling thread to a processor.
///
/// # Errors
///
/// [`ThreadsError::Pin`] where the operating system refuses.
pub fn pin(cpu: usize) -> Result<(), ThreadsError> {
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(ThreadsError::Pin { cpu, reason: format!("is not below {}", CpuSet::MAX_CPU) });
    }
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|e| ThreadsError::Pin { cpu, reason: e.to_string() })
}

/// The processors that this process may use, by number.
#[must_use]
pub fn usable() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

fn may_use(cpu: usize) -> bool {
    usable().contains(&cpu)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn every_item_is_done_once_whatever_the_number_of_threads() {
        for count in [1, 2, 3, 8] {
            let threads = Threads::new(count, &[]).unwrap();
            assert_eq!(threads.count(), count);
            for items in [0usize, 1, 7, 100] {
                for least in [0, 1, 30] {
                    let done: Vec<AtomicUsize> = (0..items).map(|_| AtomicUsize::new(0)).collect();
                    let work = |part: usize, range: Range<usize>| {
                        assert!(part < count);
                        for item in range {
                            done[item].fetch_add(1, Relaxed);
                        }
                        Ok::<_, ()>(())
                    };
                    threads.enter(|| threads.split(items, least, work)).unwrap();
                    assert!(done.iter().all(|times| times.load(Relaxed) == 1), "{count} threads, {items} items");
                }
            }
        }
    }

    #[test]
    fn the_fault_of_a_part_comes_back() {
        let threads = Threads::new(2, &[]).unwrap();
        let work = |part: usize, _| if part == 1 { Err("no") } else { Ok(()) };
        assert_eq!(threads.enter(|| threads.split(2, 1, work)), Err("no"));
    }

    #[test]
    fn threads_are_held_to_processors_that_there_are() {
        let usable = usable();
        let threads = Threads::new(2, &usable[..1]).unwrap();
        threads.all(|thread| assert!(thread != 0 || super::usable() == usable[..1]));
        let refused = Threads::new(2, &[CpuSet::MAX_CPU - 1]).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("cpus: {} cannot be used", CpuSet::MAX_CPU - 1)), "{refused}");
    }
}
