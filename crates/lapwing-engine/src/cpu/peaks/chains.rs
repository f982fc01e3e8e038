//! Multiply-adds in registers without memory access: an upper bound for every matrix product.

use std::hint::black_box;

use super::super::dispatch::dispatch;
use super::super::level::Level;
use super::super::simd::{Kernel, Simd};

/// `steps` multiply-adds on each of several independent vectors.
struct Chains {
    steps: usize,
    factor: f32,
}

/// Named accumulators instead of an array: in a loop over an array, the portable ones would be kept in memory.
macro_rules! on {
    ($simd:ident, $chains:expr, $($sum:ident = $start:literal),+) => {{
        // Each sum goes through the product, so that the compiler cannot hoist any of it; the sums converge to
        // `factor`, never to denormal numbers.
        let (keep, more) = ($simd::splat(1.0 - $chains.factor), $simd::splat($chains.factor * $chains.factor));
        // Different start values, so that the compiler cannot merge two chains.
        $(let mut $sum = $simd::splat($start);)+
        let mut step = 0;
        while step < $chains.steps {
            $($sum = $simd::fma($sum, keep, more);)+
            step += 1;
        }
        // Stored, not summed in place: the portable lanes are only vectorised where they are stored together.
        let mut lanes = [0.0; 16];
        let (mut total, mut count) = (0.0, 0);
        $(
            $simd::store(lanes.as_mut_ptr(), $sum);
            total += black_box(&mut lanes).iter().sum::<f32>();
            count += 1;
        )+
        (total, count)
    }};
}

impl Kernel for Chains {
    /// The sum of all lanes, and how many vectors there were.
    type Out = (f32, usize);

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> (f32, usize) {
        // Enough chains to hide the latency of the parallel units: two units of five cycles need ten. Portable vectors
        // are two registers each, so fewer fit.
        // SAFETY: arithmetic, and stores of at most 16 lanes.
        unsafe {
            if S::ROWS < 4 {
                on!(S, self, a = 0.0, b = 1.0, c = 2.0, d = 3.0, e = 4.0, f = 5.0)
            } else {
                on!(
                    S,
                    self,
                    a = 0.0,
                    b = 1.0,
                    c = 2.0,
                    d = 3.0,
                    e = 4.0,
                    f = 5.0,
                    g = 6.0,
                    h = 7.0,
                    i = 8.0,
                    j = 9.0,
                    k = 10.0,
                    l = 11.0
                )
            }
        }
    }
}

/// Runs `steps` on every chain; returns the number of floating-point operations, a multiply-add as two.
pub(crate) fn fp32(level: Level, steps: usize) -> u64 {
    let level = level.runnable();
    // SAFETY: no pointers.
    let (sum, chains) = unsafe { dispatch(level, Chains { steps, factor: black_box(0.5) }) };
    black_box(sum);
    (2 * steps * lanes(level) * chains) as u64
}

/// f32 in a vector.
fn lanes(level: Level) -> usize {
    if level == Level::Avx512 { 16 } else { 8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counted_step_is_done_at_every_level() {
        for level in Level::available() {
            // SAFETY: no pointers.
            let (done, chains) = unsafe { dispatch(level, Chains { steps: 3, factor: 0.25 }) };
            let one = |start: usize| (0..3).fold(start as f32, |sum, _| sum * 0.75 + 0.0625);
            let all = lanes(level) as f32 * (0..chains).map(one).sum::<f32>();
            assert!((done - all).abs() < 1e-3 * all, "{level:?} {done} {all}");
            assert_eq!(fp32(level, 10), (2 * 10 * lanes(level) * chains) as u64);
        }
    }
}
