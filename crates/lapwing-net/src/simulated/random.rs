//! The random numbers of a simulation: all follow from its seed.

use std::cell::RefCell;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

thread_local! {
    static RNG: RefCell<Option<StdRng>> = const { RefCell::new(None) };
}

/// Draws from `seed` on this thread from now on; `None` ends that.
pub(crate) fn begin(seed: Option<u64>) {
    RNG.set(seed.map(StdRng::seed_from_u64));
}

/// Draws below `end`, in this thread's simulation; 0 if there is none.
#[must_use]
pub fn draw(end: usize) -> usize {
    RNG.with_borrow_mut(|rng| rng.as_mut().map_or(0, |rng| rng.random_range(0..end.max(1))))
}
