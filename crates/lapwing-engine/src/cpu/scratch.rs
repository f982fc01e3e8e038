//! Scratch memory of the kernels: a buffer for each thread, and one for quantised rows that all threads read.

use std::marker::PhantomData;
use std::ops::Range;

use super::attention::Attention;
use super::gemm;
use super::gemm::int8::{RowQuant, words_len};
use super::prepare::{CpuPlan, PreparedNode};
use lapwing_plan::plan::{BatchSize, Op};

/// The scratch buffers, reused from run to run.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    floats: Vec<f32>,
    each: usize,
    words: Vec<u32>,
    quants: Vec<RowQuant>,
}

impl Scratch {
    /// Grows the buffers to batches of up to `size`.
    pub(crate) fn grow(&mut self, prepared: &CpuPlan, size: BatchSize) {
        let (mut words, mut quants) = (0, 0);
        for (node, ready) in prepared.plan.nodes.iter().zip(&prepared.ready) {
            let rows = size.rows(prepared.plan.value(node.output).rows);
            let floats = match (&node.op, ready) {
                (Op::Gemm { .. }, PreparedNode::GemmI8(packed, _)) => {
                    words = words.max(words_len(packed.level(), rows, packed.k()));
                    quants = quants.max(rows);
                    0
                }
                (Op::Gemm { .. }, _) => gemm::scratch_len(rows),
                (Op::Attention { head, .. }, _) => Attention::scratch_len(*head),
                (_, PreparedNode::Map(program)) => program.scratch_len(),
                _ => 0,
            };
            self.each = self.each.max(floats);
        }
        // rounded up to whole cache lines, so that no two threads write to the same line
        self.each = self.each.next_multiple_of(16);
        self.floats.resize(self.each * prepared.options.threads.count(), 0.0);
        self.words.resize(words.max(self.words.len()), 0);
        self.quants.resize(quants.max(self.quants.len()), RowQuant::default());
    }

    /// The scratch of each thread, and the shared buffers of quantised rows.
    pub(crate) fn share(&mut self) -> (ThreadScratch<'_>, &mut [u32], &mut [RowQuant]) {
        let scratches =
            ThreadScratch { begin: self.floats.as_mut_ptr(), each: self.each, length: self.floats.len(), of: PhantomData };
        (scratches, &mut self.words, &mut self.quants)
    }
}

/// A scratch buffer for each thread.
#[derive(Clone, Copy)]
pub(crate) struct ThreadScratch<'a> {
    begin: *mut f32,
    each: usize,
    length: usize,
    of: PhantomData<&'a mut [f32]>,
}

// SAFETY: equivalent to a borrowed slice; callers of `of_thread` guarantee that no two threads use the same buffer
unsafe impl Sync for ThreadScratch<'_> {}
// SAFETY: as above
unsafe impl Send for ThreadScratch<'_> {}

impl ThreadScratch<'_> {
    /// The scratch buffer of the thread with this index.
    ///
    /// # Safety
    ///
    /// No other code uses it while the slice lives.
    #[allow(clippy::mut_from_ref, reason = "the buffers are disjoint; the caller guarantees exclusive access to this one")]
    pub(crate) unsafe fn of_thread(&self, part: usize) -> &mut [f32] {
        let Range { start, end } = part * self.each..(part + 1) * self.each;
        assert!(end <= self.length, "there is no such scratch buffer");
        // SAFETY: the buffer lies in the borrowed slice, as checked above; the caller guarantees exclusive access
        unsafe { std::slice::from_raw_parts_mut(self.begin.wrapping_add(start), self.each) }
    }
}
