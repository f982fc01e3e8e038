//! What the server does by a scenario's knobs, request by request, with all draws from one seed. It only ever waits; no processor
//! time is burnt.
//!
//! The model's instances are a schedule, not locks: each request gets the next free time, so that a timer that fires late delays
//! one request and not all that follow.

use std::collections::VecDeque;
use std::future;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::knobs::{LoadLevel, RandomDelay, Scenario, ServerKnobs};
use lapwing_ledger::Stamp;

const MS: u64 = 1_000_000;
/// Pauses that are remembered for the truth about requests in flight.
const PAUSES: usize = 64;

/// The server's part in a scenario.
#[derive(Debug)]
pub(crate) struct Script {
    knobs: ServerKnobs,
    random: Mutex<StdRng>,
    state: Mutex<State>,
    pauses: Mutex<VecDeque<(Stamp, Stamp)>>,
}

#[derive(Debug)]
struct State {
    /// When each instance of the model is free; empty if there are any number.
    free: Vec<Stamp>,
    /// The end of the last request's forward.
    used: Stamp,
    /// When the weights are there.
    loaded: Stamp,
    flushed: Stamp,
}

/// When the model works on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServiceInterval {
    pub(crate) start: Stamp,
    pub(crate) end: Stamp,
}

impl Script {
    /// The server's part in `scenario`.
    pub(crate) fn new(scenario: &Scenario, level: LoadLevel, seed: u64) -> Self {
        let now = Stamp::now();
        let free = vec![now; scenario.server.instances[level.index()]];
        Self {
            knobs: scenario.server,
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            state: Mutex::new(State { free, used: now, loaded: now, flushed: now }),
            pauses: Mutex::default(),
        }
    }

    /// Whether the feature cache is to be emptied now.
    pub(crate) fn take_flush(&self, now: Stamp) -> bool {
        let mut state = self.state.lock();
        let is_due = self.knobs.flush_every_ms > 0 && now.since(state.flushed) >= self.knobs.flush_every_ms * MS;
        if is_due {
            state.flushed = now;
        }
        is_due
    }

    /// Those of `ids` that have expired in the cache.
    pub(crate) fn expired(&self, ids: &[i64]) -> Vec<i64> {
        let mut random = self.random.lock();
        ids.iter().copied().filter(|_| is_drawn(&mut random, self.knobs.expired_permille)).collect()
    }

    /// How long the feature table takes for so many rows, in nanoseconds.
    pub(crate) fn store_ns(&self, misses: usize) -> u64 {
        if misses == 0 { 0 } else { misses as u64 * self.knobs.miss_ms * MS + self.draw_ns(self.knobs.slow_store) }
    }

    /// When the model works on a request of so many rows that is ready `now`.
    pub(crate) fn reserve_instance(&self, rows: usize, now: Stamp) -> ServiceInterval {
        let service_ns = self.knobs.forward_ms * MS + rows as u64 * self.knobs.row_us * 1_000;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Some((idle_ms, load_ms)) = self.knobs.load_after_idle_ms
            && now.since(state.used) >= idle_ms * MS
        {
            state.loaded = now.plus(load_ms * MS);
        }
        let instance = state.free.iter_mut().min_by_key(|free| **free);
        let start = instance.as_deref().copied().unwrap_or(now).max(now);
        let end = start.max(state.loaded).plus(service_ns);
        if let Some(free) = instance {
            *free = end;
        }
        state.used = state.used.max(end);
        ServiceInterval { start, end }
    }

    /// How long the work on the outputs takes, in nanoseconds.
    pub(crate) fn postprocessing_ns(&self) -> u64 {
        self.draw_ns(self.knobs.postprocessing)
    }

    fn draw_ns(&self, delay: RandomDelay) -> u64 {
        if delay.permille == 0 {
            return 0;
        }
        let mut random = self.random.lock();
        if is_drawn(&mut random, delay.permille) { random.random_range(delay.ms.0 * MS..=delay.ms.1 * MS) } else { 0 }
    }

    /// Stops the server's thread again and again, which is the one that this runs on. Never ends.
    pub(crate) async fn pause_often(&self) {
        let Some((every_ms, for_ms)) = self.knobs.pause_every_ms else { return future::pending().await };
        loop {
            tokio::time::sleep(Duration::from_millis(every_ms.saturating_sub(for_ms))).await;
            let from = Stamp::now();
            std::thread::sleep(Duration::from_millis(for_ms));
            let mut pauses = self.pauses.lock();
            if pauses.len() == PAUSES {
                pauses.pop_front();
            }
            pauses.push_back((from, Stamp::now()));
        }
    }

    /// How long the server stood still between two moments, in nanoseconds.
    pub(crate) fn paused_ns(&self, from: Stamp, to: Stamp) -> u64 {
        self.pauses.lock().iter().map(|(start, end)| to.min(*end).since(from.max(*start))).sum()
    }
}

/// Whether one of a thousand draws is among `permille`.
pub(crate) fn is_drawn(random: &mut StdRng, permille: u32) -> bool {
    permille > 0 && random.random_range(0..1_000) < permille
}

#[cfg(test)]
mod tests {
    use super::super::table::find;
    use super::*;

    fn script(name: &str) -> Script {
        Script::new(find(name).unwrap(), LoadLevel::Low, 1)
    }

    #[test]
    fn one_instance_works_on_one_request_after_the_other() {
        let (bursts, now) = (script("bursts"), Stamp::now().plus(MS));
        let intervals: Vec<ServiceInterval> = (0..3).map(|_| bursts.reserve_instance(2, now)).collect();
        assert_eq!(intervals[0], ServiceInterval { start: now, end: now.plus(19 * MS) });
        assert!(intervals.windows(2).all(|pair| pair[1].start == pair[0].end));
        let healthy = script("healthy");
        assert_eq!(healthy.reserve_instance(2, now), healthy.reserve_instance(2, now), "any number at once");
    }

    #[test]
    fn weights_are_loaded_after_idle_time_for_all_who_wait() {
        let (cold, now) = (script("cold-start"), Stamp::now());
        assert_eq!(cold.reserve_instance(2, now.plus(MS)).end, now.plus(6 * MS));
        let again = now.plus(2_500 * MS);
        let first = cold.reserve_instance(2, again);
        assert_eq!(first, ServiceInterval { start: again, end: again.plus(805 * MS) });
        assert_eq!(cold.reserve_instance(2, again.plus(100 * MS)).end, first.end);
        assert_eq!(cold.reserve_instance(2, again.plus(900 * MS)).end, again.plus(905 * MS));
    }

    #[test]
    fn the_store_is_slow_for_the_share_of_misses_that_the_row_says() {
        let slow = script("slow-store");
        assert_eq!(slow.store_ns(0), 0);
        let found = (0..5_000).filter(|_| slow.store_ns(1) >= 600 * MS).count();
        assert!((2_800..3_200).contains(&found), "{found}");
        let ids: Vec<i64> = (0..10_000).collect();
        assert!((120..280).contains(&slow.expired(&ids).len()));
    }

    #[test]
    fn the_cache_is_emptied_when_it_is_due() {
        let (cold, now) = (script("cold-cache"), Stamp::now());
        let due: Vec<bool> = [1, 251, 252, 502].map(|ms| cold.take_flush(now.plus(ms * MS))).into();
        assert_eq!(due, [false, true, false, true]);
        assert!(!script("healthy").take_flush(now.plus(60_000 * MS)));
    }

    #[tokio::test]
    async fn a_pause_is_remembered_with_its_length() {
        let (script, began) = (script("pauses"), Stamp::now());
        assert!(tokio::time::timeout(Duration::from_millis(5_300), script.pause_often()).await.is_err());
        let paused_ns = script.paused_ns(began, Stamp::now());
        assert!(paused_ns >= 700 * MS, "{paused_ns}");
        assert_eq!(script.paused_ns(began, began.plus(MS)), 0);
    }
}
