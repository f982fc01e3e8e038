//! Divides matrix products among threads: by rows where there are many, else by columns of the weight.

use super::gemm::int8::{PackedWeightsI8, QuantizedRows, RowQuant, gemm_i8, gemm_i8_shared, quantize_rows, words_len};
use super::gemm::{Epilogue, GemmError, MatrixRows, OutRows, PackedWeights, Residual, ResidualAt, SharedOut, gemm, gemm_shared};
use super::run::{Product, Run};
use super::scratch::ThreadScratch;
use lapwing_plan::exec::RunError;
use lapwing_plan::plan::Node;

/// A product with fewer rows than this per thread is not divided by rows: every thread would read the whole weight.
const ROWS: usize = 32;
/// The least work of a part, in multiply-adds or elements of the weight, whichever takes longer: about 10 µs, where
/// waking a thread takes a few.
const MULTIPLY_ADDS: usize = 1 << 19;
const ELEMENTS: usize = 1 << 16;

impl Run<'_> {
    /// A product in single precision.
    ///
    /// # Safety
    ///
    /// Like [`Run::nodes`].
    pub(crate) unsafe fn product(
        &self,
        product: Product<'_>,
        packed: &PackedWeights,
        scratches: &ThreadScratch<'_>,
    ) -> Result<(), RunError> {
        let (rows, k, n) = (self.rows_of(product.node), packed.k(), packed.n());
        let failed = |e: GemmError| failed(product.node, &e);
        // SAFETY: operands are not written while the node runs
        let x = unsafe { self.memory.read(product.x) };
        if self.by_rows(rows) {
            let least = ROWS.max(MULTIPLY_ADDS / (k * n).max(1));
            return self.threads().split(rows, least, |part, range| {
                // SAFETY: only this part accesses these rows of the output and its thread's scratch
                let (out, scratch) =
                    unsafe { (self.memory.write(product.node.output, range.clone()), scratches.of_thread(part)) };
                let x = MatrixRows::dense(&x[range.start * k..range.end * k], range.len(), k);
                let epilogue = self.epilogue(product, range, n);
                gemm(x, packed, &epilogue, OutRows { values: out, stride: n }, 0..packed.panels(), scratch).map_err(failed)
            });
        }
        // SAFETY: only this node accesses its output; its parts write different panels
        let out = unsafe { self.memory.write(product.node.output, 0..rows) };
        let out = SharedOut::new(OutRows { values: out, stride: n });
        let epilogue = self.epilogue(product, 0..rows, n);
        self.threads().split(packed.panels(), least_panels(rows, k, packed.panel_width()), |part, panels| {
            // SAFETY: only this part accesses its panels and its thread's scratch
            unsafe { gemm_shared(MatrixRows::dense(x, rows, k), packed, &epilogue, out, panels, scratches.of_thread(part)) }
                .map_err(failed)
        })
    }

    /// A product in 8-bit integers.
    ///
    /// # Safety
    ///
    /// Like [`Run::nodes`].
    pub(crate) unsafe fn product_i8(
        &self,
        product: Product<'_>,
        packed: &PackedWeightsI8,
        fixed: Option<RowQuant>,
        words: &mut [u32],
        quants: &mut [RowQuant],
    ) -> Result<(), RunError> {
        let (rows, k, n) = (self.rows_of(product.node), packed.k(), packed.n());
        let failed = |e: GemmError| failed(product.node, &e);
        // SAFETY: operands are not written while the node runs
        let x = unsafe { self.memory.read(product.x) };
        // every row takes the same number of words, so that disjoint rows have disjoint words
        let deep = words_len(packed.level(), 1, k);
        let (words, quants) = (DisjointSlice::new(words), DisjointSlice::new(quants));
        let quantized = |from: usize, to: usize| -> Result<QuantizedRows<'_>, GemmError> {
            // SAFETY: parts quantise disjoint rows
            let (words, quants) = unsafe { (words.range(from * deep, to * deep), quants.range(from, to)) };
            quantize_rows(MatrixRows::dense(&x[from * k..to * k], to - from, k), k, fixed, packed.level(), words, quants)
        };
        if self.by_rows(rows) {
            let least = ROWS.max(MULTIPLY_ADDS / (k * n).max(1));
            return self.threads().split(rows, least, |_, range| {
                let rows = quantized(range.start, range.end).map_err(failed)?;
                // SAFETY: only this part accesses these rows of the output
                let out = unsafe { self.memory.write(product.node.output, range.clone()) };
                let epilogue = self.epilogue(product, range, n);
                gemm_i8(&rows, packed, &epilogue, OutRows { values: out, stride: n }, 0..packed.panels()).map_err(failed)
            });
        }
        let all = quantized(0, rows).map_err(failed)?;
        // SAFETY: only this node accesses its output; its parts write different panels
        let out = unsafe { self.memory.write(product.node.output, 0..rows) };
        let out = SharedOut::new(OutRows { values: out, stride: n });
        let epilogue = self.epilogue(product, 0..rows, n);
        self.threads().split(packed.panels(), least_panels(rows, k, packed.panel_width()), |_, panels| {
            // SAFETY: only this part accesses its panels
            unsafe { gemm_i8_shared(&all, packed, &epilogue, out, panels) }.map_err(failed)
        })
    }

    fn by_rows(&self, rows: usize) -> bool {
        rows >= ROWS * self.threads().count()
    }

    /// The epilogue of a product for some of its rows.
    fn epilogue(&self, product: Product<'_>, rows: std::ops::Range<usize>, n: usize) -> Epilogue<'_> {
        let residual = product.residual.map(|id| {
            // SAFETY: operands are not written while the node runs
            let values = unsafe { self.memory.read(id) };
            let values = values.get(rows.start * n..rows.end * n).unwrap_or(&[]);
            Residual { rows: MatrixRows::dense(values, rows.len(), n), at: ResidualAt::AfterActivation }
        });
        Epilogue { bias: self.row(product.bias), activation: product.activation, residual }
    }
}

fn least_panels(rows: usize, k: usize, panel_width: usize) -> usize {
    let panel = (k * panel_width).max(1);
    ELEMENTS.min(MULTIPLY_ADDS / rows.max(1)).div_ceil(panel)
}

fn failed(node: &Node, error: &GemmError) -> RunError {
    RunError::Node { node: node.name.clone(), reason: error.to_string() }
}

/// A slice of which threads take disjoint ranges.
struct DisjointSlice<'a, T> {
    begin: *mut T,
    len: usize,
    of: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: equivalent to a borrowed slice; callers of `range` guarantee disjoint ranges
unsafe impl<T: Send> Sync for DisjointSlice<'_, T> {}

impl<'a, T> DisjointSlice<'a, T> {
    fn new(slice: &'a mut [T]) -> Self {
        Self { begin: slice.as_mut_ptr(), len: slice.len(), of: std::marker::PhantomData }
    }

    /// # Safety
    ///
    /// No other code accesses any part of the range while the slice lives.
    unsafe fn range(&self, from: usize, to: usize) -> &'a mut [T] {
        assert!(from <= to && to <= self.len, "the range lies outside of the slice");
        // SAFETY: checked above, and guaranteed by the caller
        unsafe { std::slice::from_raw_parts_mut(self.begin.wrapping_add(from), to - from) }
    }
}
