//! The exchanges of a few seconds of a series, in two strata: the slowest exactly, and a uniform sample of the others.

use super::MAX_WINDOW_NS;
use super::observation::Observation;
use lapwing_ledger::Exchange;

/// The length of a block of time, in nanoseconds.
pub(crate) const BLOCK_NS: u64 = 2_000_000_000;
/// How many blocks are kept: the longest window, and the block that is incomplete.
pub(crate) const BLOCKS: usize = (MAX_WINDOW_NS / BLOCK_NS) as usize + 1;

/// The exchanges that ended within one block of time.
///
/// The slowest are kept exactly. Each other exchange enters the stream that the sample is drawn from exactly once: when it came, or
/// when a slower one took its place. So the sample is uniform, and each of it represents `others() / sample().len()` exchanges.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// Which block of time, counted from the clock's start.
    pub(crate) index: u64,
    slowest: Vec<Observation>,
    sample: Vec<Observation>,
    /// How many exchanges the sample is drawn from.
    others: u32,
    /// The shortest total of the slowest, once they are complete.
    floor_ns: u64,
    /// How many took longer than the budget.
    pub(crate) over: u32,
}

impl Block {
    pub(crate) fn new(index: u64) -> Self {
        Self { index, ..Self::default() }
    }

    /// How many exchanges ended in it.
    pub(crate) fn count(&self) -> u64 {
        self.slowest.len() as u64 + u64::from(self.others)
    }

    /// The slowest, in no order.
    pub(crate) fn slowest(&self) -> &[Observation] {
        &self.slowest
    }

    /// The sample of the others.
    pub(crate) fn sample(&self) -> &[Observation] {
        &self.sample
    }

    /// How many exchanges each of the sample represents.
    pub(crate) fn weight(&self) -> f64 {
        if self.sample.is_empty() { 0.0 } else { f64::from(self.others) / self.sample.len() as f64 }
    }

    /// How many over the budget are not kept exactly.
    pub(crate) fn over_not_kept(&self, limit_ns: u64) -> u64 {
        let kept = self.slowest.iter().filter(|kept| kept.total_ns > limit_ns).count() as u64;
        u64::from(self.over).saturating_sub(kept)
    }

    /// Adds an exchange; the slowest and the others may be this many, at least one of each. Under load few of them are kept, and an
    /// observation is made of no other.
    pub(crate) fn add(&mut self, exchange: &Exchange, [slowest, others]: [usize; 2], random: &mut impl FnMut(u64) -> u64) {
        if self.slowest.len() < slowest {
            push(&mut self.slowest, Observation::of(exchange), slowest);
        } else if exchange.ledger.total_ns > self.floor_ns {
            if let Some(at) = self.fastest_of_slowest() {
                let displaced = std::mem::replace(&mut self.slowest[at], Observation::of(exchange));
                self.draw(|| displaced, others, random);
            }
        } else {
            self.draw(|| Observation::of(exchange), others, random);
            return;
        }
        if self.slowest.len() >= slowest {
            self.floor_ns = self.slowest.iter().map(|kept| kept.total_ns).min().unwrap_or(0);
        }
    }

    /// Drops what exceeds this many of each, without bias.
    pub(crate) fn shrink(&mut self, [slowest, others]: [usize; 2], random: &mut impl FnMut(u64) -> u64) {
        while self.sample.len() > others {
            let at = random(self.sample.len() as u64) as usize;
            self.sample.swap_remove(at.min(self.sample.len() - 1));
        }
        while self.slowest.len() > slowest {
            let Some(at) = self.fastest_of_slowest() else { break };
            let displaced = self.slowest.swap_remove(at);
            self.draw(|| displaced, others, random);
            self.floor_ns = self.slowest.iter().map(|kept| kept.total_ns).min().unwrap_or(0);
        }
        self.sample.shrink_to(others);
        self.slowest.shrink_to(slowest);
    }

    /// How many records it has room for.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.slowest.capacity() + self.sample.capacity()
    }

    fn fastest_of_slowest(&self) -> Option<usize> {
        self.slowest.iter().enumerate().min_by_key(|(_, kept)| kept.total_ns).map(|(at, _)| at)
    }

    /// Algorithm R (Vitter, Random sampling with a reservoir, 1985).
    fn draw(&mut self, observation: impl FnOnce() -> Observation, each: usize, random: &mut impl FnMut(u64) -> u64) {
        self.others = self.others.saturating_add(1);
        if self.sample.len() < each {
            push(&mut self.sample, observation(), each);
        } else if let Some(slot) = self.sample.get_mut(random(u64::from(self.others)) as usize) {
            *slot = observation();
        }
    }
}

/// Pushes without taking room for more than `most`.
fn push(list: &mut Vec<Observation>, observation: Observation, most: usize) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len().clamp(2, 64).min(most.saturating_sub(list.len()).max(1)));
    }
    list.push(observation);
}
