//! Integer dot products in registers with next to nothing around them: what no int8 product of matrices can beat at its level.

use std::hint::black_box;

use super::super::super::simd::Simd;
use super::dot::{Dot, KernelI8, LevelI8, dispatch_i8};

/// Input words that are gone through again and again.
const WORDS: usize = 16;
/// The most words and vectors of weights in a step.
const MOST: usize = 6;
/// Bytes of the widest vector.
const VECTOR: usize = 64;

/// `steps` times `R` input words with `C` vectors of weights, each pair with a sum of its own. The inputs change from step to step,
/// because at some levels the product stands outside of the sum and could be computed ahead.
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
        // SAFETY: no more than `MOST` vectors of weights are read, and as many words from one of the first `WORDS` on.
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

/// Runs `steps` at `level`: the integer operations that were done, a multiply-add as two, and the sum of all sums.
fn run(level: LevelI8, steps: usize, words: &[u32; WORDS + MOST], weights: &[i8; MOST * VECTOR]) -> (u64, f32) {
    let level = level.runnable();
    let mut sum = 0.0;
    let total = &mut sum;
    // VNNI's dot products are slow to finish: twelve hide that. Without it, only the addition waits for the one before, and what
    // counts is that inputs are fetched seldom. Portable vectors are two registers each.
    // SAFETY: the level is one that the machine has.
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

/// Runs `steps` at `level`; gives the integer operations that were done, a multiply-add as two.
pub(in super::super::super) fn int8(level: LevelI8, steps: usize) -> u64 {
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
            // Inputs and weights of one: the sum counts the multiply-adds.
            let ones = if level.group() == 2 { 0x0001_0001 } else { 0x0101_0101 };
            for steps in [0, 1, 17, 100] {
                let (operations, sum) = run(level, steps, &[ones; WORDS + MOST], &[1; MOST * VECTOR]);
                assert_eq!(operations as f32, 2.0 * sum, "{level:?} {steps}");
            }
        }
    }
}
