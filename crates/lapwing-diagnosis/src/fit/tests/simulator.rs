//! A queue of events: a server with some slots that takes requests in the order of their arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A request as a proxy sees it, and what it was made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) at_ns: u64,
    pub(crate) work: u64,
    pub(crate) in_flight: u32,
    pub(crate) wait_ns: u64,
    pub(crate) service_ns: u64,
    pub(crate) window_ns: u64,
}

/// A server and its load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    pub(crate) fixed_ns: f64,
    pub(crate) per_unit_ns: f64,
    pub(crate) slots: usize,
    /// What a request takes after its slot.
    pub(crate) aside_ns: u64,
    /// The standard deviation of the logarithm of the noise, whose mean is one.
    pub(crate) noise: f64,
    pub(crate) utilisation: f64,
    pub(crate) works: &'static [u64],
    /// The share of requests that take ten times longer, after the server is done with them.
    pub(crate) outliers: f64,
    /// … while the server works on them.
    pub(crate) stuck: f64,
    /// … and stay in flight meanwhile, though no slot is taken.
    pub(crate) linger: bool,
    /// How many requests come at once.
    pub(crate) burst: usize,
}

pub(crate) const MIXED: &[u64] = &[1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 8, 8, 16, 24];

impl Server {
    pub(crate) const PLAIN: Self = Self {
        fixed_ns: 5e6,
        per_unit_ns: 1e6,
        slots: 1,
        aside_ns: 0,
        noise: 0.1,
        utilisation: 0.7,
        works: MIXED,
        outliers: 0.02,
        stuck: 0.0,
        linger: false,
        burst: 1,
    };

    pub(crate) fn mean_service_ns(&self) -> f64 {
        let work = self.works.iter().sum::<u64>() as f64 / self.works.len() as f64;
        self.fixed_ns + self.per_unit_ns * work
    }

    pub(crate) fn per_ahead_ns(&self) -> f64 {
        self.mean_service_ns() / self.slots as f64
    }

    /// Requests per second.
    pub(crate) fn rate(&self) -> f64 {
        1e9 * self.utilisation * self.slots as f64 / (self.mean_service_ns() * (1.0 + 9.0 * self.stuck))
    }

    /// Serves `count` requests, in the order of their arrival.
    pub(crate) fn serve(&self, seed: u64, count: usize) -> Vec<Served> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut free: BinaryHeap<Reverse<u64>> = (0..self.slots).map(|_| Reverse(0)).collect();
        let mut leaving: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
        let mut now = 0.0;
        let mut served = Vec::with_capacity(count);
        for at in 0..count {
            if at % self.burst == 0 {
                now -= (1.0 - random.random::<f64>()).ln() / self.rate() * 1e9 * self.burst as f64;
            }
            let at_ns = now as u64;
            while leaving.peek().is_some_and(|Reverse(end)| *end <= at_ns) {
                leaving.pop();
            }
            let work = self.works[random.random_range(0..self.works.len())];
            let normal =
                (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt() * (std::f64::consts::TAU * random.random::<f64>()).cos();
            let noise = (self.noise * normal - self.noise * self.noise / 2.0).exp();
            let plain = (self.fixed_ns + self.per_unit_ns * work as f64) * noise;
            let stuck = if random.random::<f64>() < self.stuck { 10.0 } else { 1.0 };
            let service_ns = (plain * stuck) as u64;
            let late_ns = if random.random::<f64>() < self.outliers { (plain * 9.0) as u64 } else { 0 };
            let start = free.pop().map_or(0, |Reverse(free)| free).max(at_ns);
            let end = start + service_ns;
            free.push(Reverse(end));
            let end = end + self.aside_ns;
            leaving.push(Reverse(end + if self.linger { late_ns } else { 0 }));
            let window_ns = end + late_ns - at_ns;
            let in_flight = leaving.len() as u32;
            served.push(Served { at_ns, work, in_flight, wait_ns: start - at_ns, service_ns, window_ns });
        }
        served
    }
}
