//! The output of a product together with its epilogue: checked once, then divided into what each tile stores.

use std::marker::PhantomData;

use super::super::dispatch::dispatch;
use super::super::level::Level;
use super::epilogue::{ActivationPass, Epilogue, ResidualAt, is_cheap};
use super::shape::{GemmError, check_len, check_rows};
use super::store::TileStore;
use lapwing_plan::plan::Activation;

/// A row-major matrix to write, by one caller.
#[derive(Debug)]
pub struct OutRows<'a> {
    /// The elements; as many rows as the input.
    pub values: &'a mut [f32],
    /// Elements from one row to the next, at least a row's length.
    pub stride: usize,
}

/// An output that several threads write, each different panels.
#[derive(Debug, Clone, Copy)]
pub struct SharedOut<'a> {
    pub(crate) start: *mut f32,
    pub(crate) len: usize,
    pub(crate) stride: usize,
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: a pointer into a buffer that stays borrowed; writing through it is `unsafe` and requires disjoint panels.
unsafe impl Send for SharedOut<'_> {}
// SAFETY: as above.
unsafe impl Sync for SharedOut<'_> {}

impl<'a> SharedOut<'a> {
    /// Shares `out` for as long as it is borrowed.
    #[must_use]
    pub fn new(out: OutRows<'a>) -> Self {
        Self { start: out.values.as_mut_ptr(), len: out.values.len(), stride: out.stride, owner: PhantomData }
    }
}

/// The output and its epilogue.
#[derive(Clone, Copy)]
pub(crate) struct GemmOutput<'a> {
    pub(crate) epilogue: &'a Epilogue<'a>,
    pub(crate) out: SharedOut<'a>,
}

impl GemmOutput<'_> {
    /// Checks every length against `rows` x `columns`.
    pub(crate) fn check(&self, rows: usize, columns: usize) -> Result<(), GemmError> {
        check_rows("output", self.out.len, rows, self.out.stride, columns)?;
        if let Some(bias) = self.epilogue.bias {
            check_len("bias", bias.len(), columns)?;
        }
        if let Some(residual) = self.epilogue.residual {
            check_len("residual rows", residual.rows.count, rows)?;
            check_rows("residual", residual.rows.values.len(), rows, residual.rows.stride, columns)?;
        }
        Ok(())
    }

    /// What the tile that starts at `row` and `column` stores: `accumulate` after the first block of k, the epilogue
    /// with the last block. For an empty matrix the pointers may dangle; they are not read then.
    pub(crate) fn store(&self, row: usize, column: usize, columns: usize, accumulate: bool, last: bool) -> TileStore {
        let cheap = is_cheap(self.epilogue.activation);
        let (residual, residual_stride, residual_first) = self.residual(row, column);
        let bias = self.epilogue.bias.filter(|_| last).map_or(std::ptr::null(), |bias| bias.as_ptr().wrapping_add(column));
        TileStore {
            out: self.start(row, column),
            out_stride: self.out.stride,
            columns,
            accumulate,
            bias,
            residual: if last && (cheap || residual_first) { residual } else { std::ptr::null() },
            residual_stride,
            residual_first,
            relu: last && self.epilogue.activation == Activation::Relu,
        }
    }

    /// Applies an activation that the tile did not apply in registers, and the rest of the epilogue, to a stored block.
    ///
    /// # Safety
    /// The block lies in the checked output and no other code writes it.
    pub(crate) unsafe fn activate(&self, level: Level, row: usize, rows: usize, column: usize, columns: usize) {
        let activation = self.epilogue.activation;
        if is_cheap(activation) {
            return;
        }
        let (residual, residual_stride, first) = self.residual(row, column);
        let residual = if first { std::ptr::null() } else { residual };
        let (out, out_stride) = (self.start(row, column), self.out.stride);
        // SAFETY: guaranteed by the caller; `check` verified that the residual has the output's shape.
        unsafe { dispatch(level, ActivationPass { activation, out, out_stride, rows, columns, residual, residual_stride }) };
    }

    fn start(&self, row: usize, column: usize) -> *mut f32 {
        self.out.start.wrapping_add(row * self.out.stride + column)
    }

    /// Where the residual starts (null if there is none), its stride, and whether it is added before the activation.
    fn residual(&self, row: usize, column: usize) -> (*const f32, usize, bool) {
        self.epilogue.residual.map_or((std::ptr::null(), 0, false), |residual| {
            let start = residual.rows.values.as_ptr().wrapping_add(row * residual.rows.stride + column);
            (start, residual.rows.stride, residual.at == ResidualAt::BeforeActivation)
        })
    }
}
