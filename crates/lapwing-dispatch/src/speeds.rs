//! How fast upstreams work, as it was learnt last: for those who choose among them without the queue.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::service::ServiceModels;
use crate::upstream_config::MAX_UPSTREAMS;

/// The speeds of upstreams, by their places: 1 is the mean of all, and of whom nothing is known.
#[derive(Debug)]
pub struct UpstreamSpeeds([AtomicU64; MAX_UPSTREAMS]);

impl Default for UpstreamSpeeds {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(1.0_f64.to_bits())))
    }
}

impl UpstreamSpeeds {
    /// That of the upstream at this place: more than 0.
    #[must_use]
    pub fn of(&self, at: usize) -> f64 {
        self.0.get(at).map_or(1.0, |speed| f64::from_bits(speed.load(Relaxed)))
    }

    /// Takes what is known of services.
    pub(crate) fn publish(&self, models: &ServiceModels) {
        for (at, own) in self.0.iter().enumerate() {
            let known = models.of(at).filter(|one| one.slots.is_ok() && one.speed > 0.0);
            own.store(known.map_or(1.0, |one| one.speed).to_bits(), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::{NoWindow, SlotsOf};

    #[test]
    fn a_speed_is_that_of_the_latest_models() {
        let speeds = UpstreamSpeeds::default();
        let of = |upstream, slots, speed| SlotsOf { upstream, slots, speed };
        let unknown = Err(NoWindow::NotOneByOne { unexplained: 1.0 });
        let upstreams = vec![of(0, Ok(1), 1.5), of(2, Ok(2), 0.5), of(3, unknown, 3.0)];
        speeds.publish(&ServiceModels { upstreams, ..ServiceModels::default() });
        assert_eq!([0, 1, 2, 3, 99].map(|at| speeds.of(at)), [1.5, 1.0, 0.5, 1.0, 1.0]);
        speeds.publish(&ServiceModels::default());
        assert_eq!([0, 2].map(|at| speeds.of(at)), [1.0, 1.0]);
    }
}
