//! Reads and copies memory as fast as possible. Buffers are f32, because the kernels use the same loads.

use super::super::dispatch::dispatch;
use super::super::level::Level;
use super::super::simd::{Kernel, Simd};

/// Adds up all elements except a remainder of less than four vectors. Four accumulators hide the latency of the
/// additions behind the loads; they are named, because the portable ones would be kept in memory if they were an array.
struct ReadKernel<'a>(&'a [f32]);

impl Kernel for ReadKernel<'_> {
    type Out = f32;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> f32 {
        // SAFETY: `at` stays four vectors before the end, and a vector has at most 16 lanes.
        unsafe {
            let (start, len) = (self.0.as_ptr(), self.0.len());
            let (mut a, mut b, mut c, mut d) = (S::splat(0.0), S::splat(0.0), S::splat(0.0), S::splat(0.0));
            let mut at = 0;
            while at + 4 * S::LANES <= len {
                let from = start.add(at);
                a = S::add(a, S::load(from));
                b = S::add(b, S::load(from.add(S::LANES)));
                c = S::add(c, S::load(from.add(2 * S::LANES)));
                d = S::add(d, S::load(from.add(3 * S::LANES)));
                at += 4 * S::LANES;
            }
            // Stored, not summed in place: the portable lanes are only vectorised where they are stored together.
            let mut lanes = [0.0; 16];
            S::store(lanes.as_mut_ptr(), S::add(S::add(a, b), S::add(c, d)));
            std::hint::black_box(&mut lanes).iter().sum()
        }
    }
}

/// Copies all whole groups of four vectors from one slice to the other.
struct CopyKernel<'a> {
    from: &'a [f32],
    to: &'a mut [f32],
}

impl Kernel for CopyKernel<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let len = self.from.len().min(self.to.len());
        let (from, to) = (self.from.as_ptr(), self.to.as_mut_ptr());
        let mut at = 0;
        while at + 4 * S::LANES <= len {
            let mut i = 0;
            while i < 4 {
                // SAFETY: `at` stays four vectors before the end of both slices.
                unsafe { S::store(to.add(at + i * S::LANES), S::load(from.add(at + i * S::LANES))) };
                i += 1;
            }
            at += 4 * S::LANES;
        }
    }
}

/// The sum of `values` without up to 63 elements at the end.
pub(crate) fn read(level: Level, values: &[f32]) -> f32 {
    // SAFETY: the kernel reads a slice.
    unsafe { dispatch(level, ReadKernel(values)) }
}

/// Copies `from` to `to` without up to 63 elements at the end.
pub(crate) fn copy(level: Level, from: &[f32], to: &mut [f32]) {
    // SAFETY: the kernel reads and writes slices.
    unsafe { dispatch(level, CopyKernel { from, to }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_read_and_all_is_copied() {
        for level in Level::available() {
            let from: Vec<f32> = (0..1024u16).map(f32::from).collect();
            assert_eq!(read(level, &from), 1024.0 * 1023.0 / 2.0, "{level:?}");
            let mut to = vec![-1.0; 1024];
            copy(level, &from, &mut to);
            assert_eq!(from, to, "{level:?}");
            copy(level, &[], &mut to);
            assert_eq!(read(level, &[1.0; 5]), 0.0);
        }
    }
}
