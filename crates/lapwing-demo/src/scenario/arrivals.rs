//! When a scenario's requests come: by a Poisson process whose rate may go up and down, and in bursts. All draws come from one seed.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::knobs::{LoadKnobs, Stretches};

const MS: u64 = 1_000_000;

/// An endless sequence of moments, in nanoseconds from the start, each with a number of requests.
#[derive(Debug)]
pub(crate) struct Arrivals {
    random: StdRng,
    /// Of the load, per nanosecond.
    rate: f64,
    stretches: Option<Stretches>,
    burst: Option<(u64, usize)>,
    single_ns: u64,
    burst_ns: u64,
}

impl Arrivals {
    /// The arrivals of `load` at `rate` requests per second.
    pub(crate) fn new(load: &LoadKnobs, rate: f64, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let burst = load.burst_every_ms.map(|(every_ms, requests)| (every_ms * MS, requests));
        let burst_ns = burst.map_or(u64::MAX, |(every_ns, _)| random.random_range(every_ns / 2..every_ns));
        let mut arrivals = Self { random, rate: rate.max(0.1) / 1e9, stretches: load.stretches, burst, single_ns: 0, burst_ns };
        arrivals.draw();
        arrivals
    }

    /// Draws when the next request of the Poisson process comes, by thinning one of the highest rate.
    fn draw(&mut self) {
        let highest = self.stretches.map_or(1.0, |stretches| stretches.factors.0.max(stretches.factors.1));
        loop {
            let uniform: f64 = self.random.random();
            self.single_ns += (-(1.0 - uniform).ln() / (self.rate * highest)) as u64;
            if self.random.random::<f64>() * highest < self.factor() {
                return;
            }
        }
    }

    fn factor(&self) -> f64 {
        self.stretches.map_or(
            1.0,
            |Stretches { period_ms, busy_ms, factors }| {
                if self.single_ns % (period_ms * MS) < busy_ms * MS { factors.0 } else { factors.1 }
            },
        )
    }
}

impl Iterator for Arrivals {
    type Item = (u64, usize);

    fn next(&mut self) -> Option<(u64, usize)> {
        if let Some((every_ns, requests)) = self.burst
            && self.burst_ns <= self.single_ns
        {
            let due_ns = self.burst_ns;
            self.burst_ns += every_ns;
            return Some((due_ns, requests));
        }
        let due_ns = self.single_ns;
        self.draw();
        Some((due_ns, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::find;
    use super::*;

    fn minute(name: &str, seed: u64) -> Vec<(u64, usize)> {
        let load = find(name).unwrap().load;
        Arrivals::new(&load, load.rate[0], seed).take_while(|(due_ns, _)| *due_ns < 60_000 * MS).collect()
    }

    #[test]
    fn the_rate_is_that_of_the_load_and_a_seed_repeats_itself() {
        let plain = minute("healthy", 1);
        assert!((1_350..1_650).contains(&plain.len()), "{}", plain.len());
        assert!(plain.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        assert_eq!(plain, minute("healthy", 1));
        assert_ne!(plain, minute("healthy", 2));
    }

    #[test]
    fn bursts_come_when_they_are_due_and_beside_the_others() {
        let bursts: Vec<u64> = minute("bursts", 3).into_iter().filter(|(_, n)| *n == 40).map(|(due_ns, _)| due_ns).collect();
        assert!((11..=12).contains(&bursts.len()), "{bursts:?}");
        assert!(bursts.windows(2).all(|pair| pair[1] - pair[0] == 5_000 * MS));
        assert!(minute("bursts", 3).iter().filter(|(_, n)| *n == 1).count() > 450);
    }

    #[test]
    fn nothing_comes_in_an_idle_stretch() {
        let phase_ms = |due_ns: &u64| due_ns / MS % 10_000;
        let cold = minute("cold-start", 4);
        assert!(cold.len() > 900 && cold.iter().all(|(due_ns, _)| phase_ms(due_ns) < 7_500));
    }
}
