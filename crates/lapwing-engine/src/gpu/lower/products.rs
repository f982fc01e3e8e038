//! Lowers products: matrix-vector kernels for few rows, tiled kernels for many.

use super::Lowering;
use super::step::{Product, Step};
use crate::gpu::GpuPrecision;
use crate::gpu::args::{Address, KernelArgs, MatrixRef};
use crate::gpu::kernel::{self, Tile};
use crate::gpu::layout::Kind;
use crate::gpu::weights::{WeightForm, deep};
use lapwing_plan::plan::{Activation, Node, Op, Rows};

/// Up to this many rows use the matrix-vector kernels, which read each weight once.
const MAX_MATVEC_ROWS: usize = 8;

impl Lowering<'_> {
    pub(crate) fn product(&mut self, node: &Node) -> Result<(), String> {
        let Op::Gemm { x, weight, bias, activation, residual } = &node.op else { return Ok(()) };
        let (out, weight_id) = (self.plan.value(node.output), *weight);
        let weight = self.plan.weight(weight_id);
        let (k, n, most) = (weight.rows, weight.width, self.most(out.rows));
        if k.max(n) > (1 << 24) {
            return Err(format!("a weight of [{k}, {n}] is too large"));
        }
        let is_few = most <= MAX_MATVEC_ROWS;
        let kind = self.kind_of(k, n);
        let w = match (kind, self.prepared.precision.is_tf32()) {
            (Kind::F32, true) => WeightForm::Rounded(weight_id),
            _ => WeightForm::Product(weight_id, kind),
        };
        let w = MatrixRef { at: self.form(w), stride: deep(k), kind };
        let w_scale = (kind == Kind::S8).then(|| self.form(WeightForm::Scales(weight_id)));
        // quantise the input first; a product of few rows reads the float rows instead
        let (x, x_scale) = match (is_few, kind) {
            (true, _) => (self.mat(*x), None),
            (false, Kind::S8) => {
                let (rows, scale) = self.in_bytes(node, *x, out.rows, k);
                (rows, Some(scale))
            }
            (false, kind) => (self.as_kind(*x, kind), None),
        };
        // the library takes a bias of the matrices' element type
        let bias_of_library = bias.filter(|_| self.target.has_cublaslt).map(|id| match kind {
            Kind::F16 => self.form(WeightForm::Table(id, Kind::F16)),
            _ => self.form(WeightForm::Row(id)),
        });
        let (bias, residual, y) = (self.row(*bias), residual.map(|id| self.mat(id)), self.mat(node.output));
        let (kernel, grid, split) = if is_few {
            let split = split(most, n, k, kind, self.target.processors);
            (kernel::gemv(kind, most), (n.div_ceil(kernel::gemv_columns(most, split)), 1), split)
        } else {
            let tile = best(kernel::tiles(kind, self.prepared.precision.is_tf32()), most, n, self.target.processors);
            (&tile.kernel, (n.div_ceil(tile.columns), most.div_ceil(tile.rows)), 1)
        };
        let args = self.rows(KernelArgs::default(), out.rows);
        let args = args.mat(Some(x)).mat(Some(w)).pointer(bias).pointer(w_scale).pointer(x_scale).mat(residual).mat(Some(y));
        let args = args.tail().int(k).int(n).int(*activation as usize).int(split);
        self.launch(kernel, grid, args);
        // the library adds the residual before the activation, and needs one element type for all matrices
        let is_plain = *activation == Activation::None || residual.is_none();
        let is_one_kind = y.kind == kind && residual.is_none_or(|residual| residual.kind == kind);
        if self.target.has_cublaslt
            && !is_few
            && kind != Kind::S8
            && is_plain
            && is_one_kind
            && n > 1
            && let Some(own) = self.taken_back()
        {
            let (node, activation, bias) = (self.node, *activation, bias_of_library);
            // of the activations only ReLU is asked of the library, which has no exact GELU
            let then = if matches!(activation, Activation::None | Activation::Relu) {
                None
            } else {
                self.copy(out.rows, (y, 0), (y, 0), n, activation);
                self.taken_back()
            };
            self.steps.push(Step::Product(Product { node, rows: most, k, n, x, w, bias, activation, residual, y, own, then }));
        }
        Ok(())
    }

    /// The element type in which a weight `[k, n]` is stored.
    fn kind_of(&self, k: usize, n: usize) -> Kind {
        match self.prepared.precision {
            GpuPrecision::Fp32 | GpuPrecision::Tf32 => Kind::F32,
            GpuPrecision::Int8(_) if k >= 32 && n >= 8 => Kind::S8,
            GpuPrecision::Fp16 | GpuPrecision::Int8(_) => Kind::F16,
        }
    }

    /// Quantises a value's rows; returns the 8-bit rows and their scales.
    fn in_bytes(&mut self, node: &Node, x: lapwing_plan::plan::ValueId, rows: Rows, k: usize) -> (MatrixRef, Address) {
        let (from, most) = (self.mat(x), self.most(rows));
        let made = MatrixRef { stride: deep(k), ..self.scratch(most, deep(k), Kind::S8) };
        let scale = self.scratch(most, 1, Kind::F32).at;
        let fixed = self.prepared.precision.fixed(self.node).unwrap_or(0.0);
        let args = self.rows(KernelArgs::default(), rows).mat(Some(from)).mat(Some(made)).pointer(Some(scale)).tail();
        let args = args.int(k).float(fixed);
        debug_assert_eq!(self.plan.nodes[self.node].name, node.name);
        self.launch(&kernel::QUANTIZE, (most.div_ceil(4), 1), args);
        (made, scale)
    }
}

/// Number of warps that share a column of a product of few rows. It is chosen so that each lane reads its part of a
/// column at once, in four loads of 16 bytes, and waits for memory only once; but there are at most two blocks per
/// multiprocessor.
fn split(rows: usize, n: usize, k: usize, kind: Kind, processors: usize) -> usize {
    let columns = |split: usize| kernel::gemv_columns(rows, split);
    let enough = |split: &usize| {
        let pieces = 16 * 32 * split * 4 / kernel::gemv_columns(rows, 8);
        k * kind.bytes() <= pieces || n.div_ceil(columns(*split)) >= 2 * processors
    };
    [1, 2, 4].into_iter().find(enough).unwrap_or(8)
}

/// The tile with which a product finishes first. Blocks are scheduled over the multiprocessors in waves; a wave takes
/// time in proportion to the tile's size and slowness.
pub(crate) fn best(tiles: &'static [Tile], rows: usize, n: usize, processors: usize) -> &'static Tile {
    let cost = |tile: &Tile| {
        let blocks = rows.div_ceil(tile.rows) * n.div_ceil(tile.columns);
        blocks.div_ceil(processors) * tile.rows * tile.columns * 1000 / tile.worth
    };
    let mut best = &tiles[0];
    for tile in tiles {
        if cost(tile) < cost(best) {
            best = tile;
        }
    }
    best
}
