//! The threads that share one forward pass: a pool of fixed size, each thread optionally pinned to a processor of its
//! own.
//!
//! With one thread there is no pool: the calling thread does all the work.

use std::ops::Range;

use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Why the threads could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ThreadsError {
    /// The operating system refused to start a thread.
    #[error("threads: {count} cannot be started: {reason}")]
    Start {
        /// Number of threads requested.
        count: usize,
        /// The system's error.
        reason: String,
    },
    /// A processor that this process may not use.
    #[error("cpus: {cpu} cannot be used: {reason}")]
    Pin {
        /// Its number.
        cpu: usize,
        /// The system's error.
        reason: String,
    },
}

/// The threads of forward passes.
#[derive(Debug)]
pub struct Threads {
    pool: Option<rayon::ThreadPool>,
    count: usize,
    places: Places,
}

/// The processors that the threads of a pool are held to.
#[derive(Clone, Debug)]
struct Places(Vec<usize>);

impl Places {
    /// Those of one thread: the one of its number, or, of more threads than processors, any of them.
    fn of(&self, thread: usize) -> &[usize] {
        self.0.get(thread).map_or(&self.0[..], std::slice::from_ref)
    }

    /// Holds the calling thread, which has this number.
    fn hold(&self, thread: usize) {
        let own = self.of(thread);
        if !own.is_empty()
            && let Err(error) = pin_to(own)
        {
            tracing::warn!(%error, "a thread of the engine runs where the system puts it");
        }
    }
}

impl Threads {
    /// No pool: the calling thread only.
    #[must_use]
    pub const fn one() -> Self {
        Self { pool: None, count: 1, places: Places(Vec::new()) }
    }

    /// A pool of `count` threads (at least one). The first is pinned to `cpus[0]`, and so on; those beyond the list may use all of it, and
    /// none is pinned if it is empty. A single thread is the caller's: it is not pinned here, see [`pin`].
    ///
    /// # Errors
    ///
    /// [`ThreadsError`] if they cannot be started or pinned.
    pub fn new(count: usize, cpus: &[usize]) -> Result<Self, ThreadsError> {
        let places = Places(cpus.to_vec());
        if count <= 1 {
            return Ok(Self { places, ..Self::one() });
        }
        if let Some(cpu) = cpus.iter().find(|cpu| !may_use(**cpu)) {
            return Err(ThreadsError::Pin { cpu: *cpu, reason: "is not among those that this process may use".into() });
        }
        let held = places.clone();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(count)
            .thread_name(|thread| format!("engine-{thread}"))
            .start_handler(move |thread| held.hold(thread))
            .build()
            .map_err(|e| ThreadsError::Start { count, reason: e.to_string() })?;
        Ok(Self { pool: Some(pool), count, places })
    }

    /// Number of threads.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The processors that a thread of this number may use; empty if it may use all.
    #[must_use]
    pub fn places(&self, thread: usize) -> &[usize] {
        self.places.of(thread)
    }

    /// Holds the threads of another pool, in one of which it is called, to the processors of this one's.
    pub fn hold_current_pool(&self) {
        if !self.places.0.is_empty() {
            rayon::broadcast(|context| self.places.hold(context.index()));
        }
    }

    /// Runs `work` on one of the pool's threads, so that splitting it later needs no hand-over between threads.
    pub fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// Divides `0..count` into at most as many parts as there are threads, none smaller than `least`, and runs them in
    /// parallel; `work` gets the part's index and range.
    ///
    /// # Errors
    ///
    /// One of the errors that the parts returned.
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

    /// Runs `work` once on each thread, on all threads at the same time; it gets the thread's index.
    pub fn all(&self, work: impl Fn(usize) + Sync) {
        match &self.pool {
            Some(pool) => drop(pool.broadcast(|context| work(context.index()))),
            None => work(0),
        }
    }
}

/// Pins the calling thread to a processor.
///
/// # Errors
///
/// [`ThreadsError::Pin`] if the operating system refuses.
pub fn pin(cpu: usize) -> Result<(), ThreadsError> {
    pin_to(&[cpu])
}

/// Lets the calling thread use these processors only; there is at least one.
fn pin_to(cpus: &[usize]) -> Result<(), ThreadsError> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(ThreadsError::Pin { cpu, reason: format!("is not below {}", CpuSet::MAX_CPU) });
        }
        set.set(cpu);
    }
    let refused =
        |e: rustix::io::Errno| ThreadsError::Pin { cpu: cpus.first().copied().unwrap_or_default(), reason: e.to_string() };
    sched_setaffinity(None, &set).map_err(refused)
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
        // the second thread has no processor of its own
        threads.all(|_| assert_eq!(super::usable(), usable[..1]));
        let all = Threads::new(usable.len() + 1, &usable).unwrap();
        all.all(|thread| assert_eq!(super::usable(), all.places(thread)));
        assert_eq!(all.places(usable.len()), usable);
        let refused = Threads::new(2, &[CpuSet::MAX_CPU - 1]).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("cpus: {} cannot be used", CpuSet::MAX_CPU - 1)), "{refused}");
    }
}
