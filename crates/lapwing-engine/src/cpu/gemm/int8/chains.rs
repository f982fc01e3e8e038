//! Integer dot products in registers with minimal overhead: an upper bound for every int8 matrix product at the same
//! level.

use std::hint::black_box;

use super::super::super::simd::Simd;
use super::dot::{Dot, KernelI8, LevelI8, dispatch_i8};

/// Number of input words, which are cycled through.
const WORDS: usize = 16;
/// The most input words and weight vectors of a step.
const MOST: usize = 6;
/// Bytes of the widest vector.
const VECTOR: usize = 64;

/// `steps` times `R` input words with `C` vectors of weights, each pair with an accumulator of its own. The inputs
/// change from step to step, because at some levels the multiplication is separate from the accumulation and the
/// compiler could hoist it.
struct Chains<'a, const R: usize, const C: usize> {
    steps: usize,
    words: &'a [u32; WORDS + MOST],
    weights: &'a [i8; MOST * VECTOR],
    total: &'a mut f32,
}

impl<const R: usize, const C: usize> KernelI8 for Chains<'_, R, C> {
    #[inline(always)]
    unsafe fn run<D: Dot>(self) {
        const { assert!(R <= MOST && C <= MOST) };
        // SAFETY: at most `MOST` vectors of weights are read, and at most `MOST` words starting at one of the first
        // `WORDS`.
        unsafe {
            let mut weights = [D::splat(0); C];
            let mut c = 0;
            while c < C {
                weights[c] = D::weights(self.weights.as_ptr().add(c * VECTOR));
                c += 1;
            }
            let mut sums = [[D::splat(0); C]; R];
            let mut step = 0;
            while step < self.steps {
                let words = self.words.as_ptr().add(step % WORDS);
                let mut r = 0;
                while r < R {
                    let inputs = D::splat(*words.add(r));
                    let mut c = 0;
                    while c < C {
                        sums[r][c] = D::dot(sums[r][c], inputs, weights[c]);
                        c += 1;
                    }
                    r += 1;
                }
                step += 1;
            }
            let mut total = D::splat(0);
            let mut i = 0;
            while i < R * C {
                total = D::add(total, sums[i / C][i % C]);
                i += 1;
            }
            *self.total = D::Floats::sum(D::floats(total));
        }
    }
}

/// Runs `steps` at `level`; returns the number of integer operations (a multiply-add is two) and the sum of all
/// accumulators.
fn run(level: LevelI8, steps: usize, words: &[u32; WORDS + MOST], weights: &[i8; MOST * VECTOR]) -> (u64, f32) {
    let level = level.runnable();
    let mut sum = 0.0;
    let total = &mut sum;
    // VNNI dot products have a long latency, which twelve accumulators hide. Without VNNI only the addition depends on
    // the previous step, and the number of input loads matters. Portable vectors are two registers each.
    // SAFETY: the machine has this level.
    let pairs = unsafe {
        match level {
            LevelI8::Avx512Vnni | LevelI8::AvxVnni => {
                dispatch_i8(level, Chains::<6, 2> { steps, words, weights, total });
                12
            }
            LevelI8::Avx2 => {
                dispatch_i8(level, Chains::<2, 4> { steps, words, weights, total });
                8
            }
            LevelI8::Portable => {
                dispatch_i8(level, Chains::<2, 2> { steps, words, weights, total });
                4
            }
        }
    };
    ((2 * steps * pairs * level.lanes() * level.group()) as u64, sum)
}

/// Runs `steps` at `level`; returns the number of integer operations, a multiply-add as two.
pub(crate) fn int8(level: LevelI8, steps: usize) -> u64 {
    let words = black_box([0x0403_0201; WORDS + MOST]);
    let weights = black_box([1; MOST * VECTOR]);
    let (operations, sum) = run(level, steps, &words, &weights);
    black_box(sum);
    operations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counted_operation_is_done() {
        for level in LevelI8::available() {
            // All inputs and weights are one: the sum equals the number of multiply-adds.
            let ones = if level.group() == 2 { 0x0001_0001 } else { 0x0101_0101 };
            for steps in [0, 1, 17, 100] {
                let (operations, sum) = run(level, steps, &[ones; WORDS + MOST], &[1; MOST * VECTOR]);
                assert_eq!(operations as f32, 2.0 * sum, "{level:?} {steps}");
            }
        }
    }
}
