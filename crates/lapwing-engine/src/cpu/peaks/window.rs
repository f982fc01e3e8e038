//! Short time windows in which all threads do the same work at once, and the best of several windows.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::clock::Stamp;

/// Why the measurement failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeaksError {
    /// Not all threads ran at the same time.
    #[error("{wanted} threads were to be measured, but {ran} ran at the same time")]
    Threads {
        /// Threads asked for.
        wanted: usize,
        /// Threads that ran.
        ran: usize,
    },
    /// The plan of nodes that do no work could not be run.
    #[error("launch: cannot be measured: {reason}")]
    Launch {
        /// The executor's error.
        reason: String,
    },
}

/// Calls a closure once on each thread, on all threads at the same time, with the thread's index from zero on; returns
/// when all calls have returned.
pub type Runner<'a> = &'a dyn Fn(&(dyn Fn(usize) + Sync));

/// How long a thread waits for the others, nanoseconds. If one starts later, the window does not count.
const PATIENCE_NS: u64 = 5_000_000;
/// How many windows are tried for each that counts.
const REPEATS: usize = 8;

/// The threads, and the function that runs work on them.
#[derive(Clone, Copy)]
pub(crate) struct WorkerGroup<'a> {
    pub(crate) threads: usize,
    pub(crate) run: Runner<'a>,
}

/// The result of several windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BestRate {
    /// Units a second in the best window, total over all threads.
    pub(crate) per_s: f64,
    /// How far the median window lies below the best one, as a share of it.
    pub(crate) spread: f64,
}

impl BestRate {
    /// The best of the windows' rates; `None` if there are none.
    fn of(mut rates: Vec<f64>) -> Option<Self> {
        rates.sort_by(f64::total_cmp);
        let (best, median) = (*rates.last()?, *rates.get(rates.len() / 2)?);
        Some(Self { per_s: best, spread: if best > 0.0 { 1.0 - median / best } else { 0.0 } })
    }
}

impl WorkerGroup<'_> {
    /// The best of `windows` windows of `window_ns`. `work` does a small piece of work on the thread of that index and
    /// returns its number of units. A window in which a thread starts too late is repeated, up to [`REPEATS`] times each: on a
    /// busy machine that happens often.
    pub(crate) fn best(
        self,
        windows: usize,
        window_ns: u64,
        work: &(dyn Fn(usize) -> u64 + Sync),
    ) -> Result<BestRate, PeaksError> {
        let (mut rates, mut most) = (Vec::new(), 0);
        for _ in 0..windows * REPEATS {
            let (rate, arrived, together) = self.window(window_ns, work);
            rates.extend(rate);
            if arrived != self.threads {
                // there are fewer or more of them, and always will be
                most = arrived;
                break;
            }
            most = most.max(together);
            if rates.len() == windows {
                break;
            }
        }
        BestRate::of(rates).ok_or(PeaksError::Threads { wanted: self.threads, ran: most })
    }

    /// Units a second in one window, `None` if not all threads took part; the number of threads that came, and of those that
    /// worked.
    fn window(self, window_ns: u64, work: &(dyn Fn(usize) -> u64 + Sync)) -> (Option<f64>, usize, usize) {
        let (arrived, together) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let rate = Mutex::new(0.0);
        (self.run)(&|thread| {
            arrived.fetch_add(1, Ordering::SeqCst);
            let come = Stamp::now();
            while arrived.load(Ordering::SeqCst) < self.threads {
                if come.elapsed() > PATIENCE_NS {
                    return;
                }
                std::thread::yield_now();
            }
            let start = Stamp::now();
            let mut units = 0;
            let elapsed = loop {
                units += work(thread);
                let elapsed = start.elapsed();
                if elapsed >= window_ns {
                    break elapsed;
                }
            };
            // Each thread has a rate of its own, so that a late start or stop does not stretch the time of the others.
            *rate.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += units as f64 * 1e9 / elapsed as f64;
            together.fetch_add(1, Ordering::SeqCst);
        });
        let rate = rate.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (arrived, together) = (arrived.into_inner(), together.into_inner());
        ((together == self.threads && arrived == self.threads).then_some(rate), arrived, together)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(count: usize) -> impl Fn(&(dyn Fn(usize) + Sync)) {
        move |work| {
            std::thread::scope(|scope| {
                for thread in 0..count {
                    scope.spawn(move || work(thread));
                }
            });
        }
    }

    #[test]
    fn each_thread_works_and_its_units_count() {
        let seen = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let run = threads(2);
        let best = WorkerGroup { threads: 2, run: &run }.best(3, 100_000, &|thread| {
            seen[thread].fetch_add(1, Ordering::SeqCst);
            std::thread::yield_now();
            1
        });
        let best = best.unwrap();
        let done = seen.map(AtomicUsize::into_inner);
        assert!(done[0] >= 3 && done[1] >= 3, "{done:?}");
        assert!(best.per_s > 0.0 && best.per_s < 1e10 && (0.0..1.0).contains(&best.spread), "{best:?}");
    }

    #[test]
    fn a_thread_too_few_or_too_many_is_told() {
        for came in [1, 3] {
            let run = threads(came);
            let refused = WorkerGroup { threads: 2, run: &run }.best(1, 1_000, &|_| 1);
            assert_eq!(refused.unwrap_err(), PeaksError::Threads { wanted: 2, ran: came });
        }
    }

    #[test]
    fn the_best_counts_and_the_median_says_how_noisy_it_was() {
        let best = BestRate::of(vec![4.0, 10.0, 8.0]).unwrap();
        assert_eq!(best.per_s, 10.0);
        assert!((best.spread - 0.2).abs() < 1e-12);
        assert_eq!(BestRate::of(vec![]), None);
    }
}
