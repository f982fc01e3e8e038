//! Lowers row operations: attention, rotations, norms, lookups, folds, and column copies.

use super::{Lowering, QUERIES};
use crate::gpu::args::{Address, Control, KernelArgs, MatrixRef, Region};
use crate::gpu::kernel::{self, Kernel};
use crate::gpu::layout::{Kind, stride};
use crate::gpu::weights::WeightForm;
use lapwing_plan::plan::{Activation, Angles, Columns, Fold, Lookup, Node, Norm, Op, Rows, ValueId, WeightId};

/// Rows per block of kernels with one warp per row.
const WARPS: usize = 4;
/// The most tables of a lookup.
const TABLES: usize = 4;
/// Where kernels report a row that no table has.
const FAULT: Address = Address::new(Region::Control, 4 * Control::FAULT);

impl Lowering<'_> {
    pub(crate) fn attention(&mut self, node: &Node) -> Result<(), String> {
        let Op::Attention { q, k, v, heads, key_heads, head, head_out, scale, bias, by_distance, is_zero_if_masked } = &node.op
        else {
            return Ok(());
        };
        if (*head).max(*head_out) > kernel::WIDEST_HEAD {
            return Err(format!("heads of {} columns; at most {} are supported", head.max(head_out), kernel::WIDEST_HEAD));
        }
        let parts = [q, k, v];
        let is_half = parts.iter().all(|part| self.mat(part.value).kind == Kind::F16);
        let is_fit = |part: &&Columns| part.from.is_multiple_of(8);
        let kernel = if is_half && head % 8 == 0 && head_out % 8 == 0 && parts.iter().all(is_fit) {
            kernel::attention_f16((*head).max(*head_out), by_distance.is_some()).unwrap_or(&kernel::ATTENTION)
        } else {
            &kernel::ATTENTION
        };
        let kind = if is_half { Kind::F16 } else { Kind::F32 };
        let [q_mat, k_mat, v_mat] = parts.map(|part| self.as_kind(part.value, kind));
        let bias = bias.map(|id| self.as_kind(id, Kind::F32));
        let (reach, apart) = by_distance.map(|id| self.plan.weight(id)).map_or((0, 0), |table| {
            let apart = if table.rows == 1 { 0 } else { table.width };
            (table.width / 2, apart)
        });
        let (header, distances) = (self.header(), self.row(*by_distance));
        let args = KernelArgs::default().pointer(Some(header)).mat(Some(q_mat)).mat(Some(k_mat)).mat(Some(v_mat)).mat(bias);
        let args = args.pointer(distances).mat(Some(self.mat(node.output))).tail();
        let args = args.int(q.from).int(k.from).int(v.from).int(*heads).int(*head).int(*head_out).float(*scale);
        let args = args.int(heads / key_heads).int(reach).int(apart).int(usize::from(*is_zero_if_masked)).int(0);
        let tiles = self.most(Rows::Token) / QUERIES + self.most(Rows::Batch);
        let shared = kernel.shared + kernel::attention_shared(kernel, *head_out, by_distance.is_some());
        self.launch_with(kernel, (tiles.min(self.most(Rows::Token)), *heads), shared, args);
        Ok(())
    }

    pub(crate) fn rotate(&mut self, node: &Node, x: Columns, [heads, head]: [usize; 2], angles: Angles) {
        let rows = self.plan.value(node.output).rows;
        let (header, cos, sin, positions) = match angles {
            Angles::ByPosition { cos, sin } => {
                let [cos_table, sin_table] = [cos, sin].map(|id| {
                    let at = self.form(WeightForm::Table(id, Kind::F32));
                    MatrixRef { at, stride: stride(head), kind: Kind::F32 }
                });
                (Some(self.header()), cos_table, sin_table, self.plan.weight(cos).rows)
            }
            Angles::ByToken { cos, sin } => (None, self.mat(cos), self.mat(sin), 0),
        };
        let args = self.rows(KernelArgs::default(), rows).pointer(header).mat(Some(self.mat(x.value))).mat(Some(cos));
        let args = args.mat(Some(sin)).mat(Some(self.mat(node.output))).pointer(Some(FAULT)).tail();
        let args = args.int(x.from).int(heads).int(head).int(positions).int(self.node).int(0);
        let blocks = (self.most(rows) * heads * (head / 2).div_ceil(4)).div_ceil(kernel::ROTATE.threads as usize);
        self.launch(&kernel::ROTATE, (blocks.min(16 * self.target.processors), 1), args);
    }

    pub(crate) fn norm(
        &mut self,
        node: &Node,
        [narrow, wide]: [&'static Kernel; 2],
        x: ValueId,
        residual: Option<ValueId>,
        epsilon: f32,
        [scale, shift]: [Option<WeightId>; 2],
    ) -> Result<(), String> {
        let out = self.plan.value(node.output);
        let args = self.rows(KernelArgs::default(), out.rows).mat(Some(self.mat(x))).mat(residual.map(|id| self.mat(id)));
        let (scale, shift) = (self.row(scale), self.row(shift));
        let args = args.pointer(scale).pointer(shift).mat(Some(self.mat(node.output))).tail().int(out.width).float(epsilon);
        let (kernel, rows) = if out.width > kernel::WIDEST_OF_A_WARP { (wide, 1) } else { (narrow, WARPS) };
        self.launch(kernel, (self.most(out.rows).div_ceil(rows), 1), args);
        Ok(())
    }

    pub(crate) fn embed(&mut self, node: &Node, tables: &[(WeightId, Lookup)], norm: Option<&Norm>) -> Result<(), String> {
        if tables.len() > TABLES {
            return Err(format!("looks up {} tables; at most {TABLES} are supported", tables.len()));
        }
        let out = self.plan.value(node.output);
        let kind = if self.prepared.precision.is_half() { Kind::F16 } else { Kind::F32 };
        let has_places = tables.iter().any(|(_, lookup)| matches!(lookup, Lookup::Position(_)));
        let header = has_places.then(|| self.header());
        let mut args = self.rows(KernelArgs::default(), out.rows).pointer(header);
        for at in 0..TABLES {
            let Some((id, lookup)) = tables.get(at) else {
                args = args.mat(None).mat(None).int(0).int(0);
                continue;
            };
            let weight = self.plan.weight(*id);
            let table = MatrixRef { at: self.form(WeightForm::Table(*id, kind)), stride: stride(weight.width), kind };
            let (ids, from) = match lookup {
                Lookup::Id(columns) => (Some(self.mat(columns.value)), columns.from),
                Lookup::Position(from) => (None, *from),
            };
            args = args.mat(Some(table)).mat(ids).int(from).int(weight.rows);
        }
        let (scale, shift) = (self.row(norm.and_then(|norm| norm.scale)), self.row(norm.and_then(|norm| norm.shift)));
        let args = args.pointer(scale).pointer(shift).mat(Some(self.mat(node.output))).pointer(Some(FAULT)).tail();
        let args = args.int(tables.len()).int(out.width).float(norm.map_or(0.0, |norm| norm.epsilon));
        let args = args.int(usize::from(norm.is_some())).int(self.node).int(0);
        self.launch(&kernel::EMBED, (self.most(out.rows).div_ceil(WARPS), 1), args);
        Ok(())
    }

    /// Reduces or maps each row to a row or a single value.
    pub(crate) fn folded(&mut self, node: &Node, kernel: &'static Kernel, x: ValueId, fold: Option<Fold>) -> Result<(), String> {
        let (rows, width) = (self.plan.value(node.output).rows, self.plan.value(x).width);
        let args = self.rows(KernelArgs::default(), rows).pointer(None).mat(Some(self.mat(x))).mat(Some(self.mat(node.output)));
        let args = args.tail().int(width).int(fold.map_or(0, number));
        self.launch(kernel, (self.most(rows).div_ceil(WARPS), 1), args);
        Ok(())
    }

    /// Reduces the tokens of each sequence to one row, or maps them to as many.
    pub(crate) fn pooled(&mut self, node: &Node, kernel: &'static Kernel, x: ValueId, fold: Option<Fold>) -> Result<(), String> {
        let width = self.plan.value(x).width;
        let header = self.header();
        let args = self.rows(KernelArgs::default(), Rows::Batch).pointer(Some(header)).mat(Some(self.mat(x)));
        let args = args.mat(Some(self.mat(node.output))).tail().int(width).int(fold.map_or(0, number));
        self.launch(kernel, (width.div_ceil(kernel::pool_columns(kernel)), self.most(Rows::Batch)), args);
        Ok(())
    }

    pub(crate) fn mean_pool(&mut self, node: &Node, x: ValueId, weights: ValueId, at_least: f32) -> Result<(), String> {
        let width = self.plan.value(x).width;
        let header = self.header();
        let args = self.rows(KernelArgs::default(), Rows::Batch).pointer(Some(header)).mat(Some(self.mat(x)));
        let args = args.mat(Some(self.mat(weights))).mat(Some(self.mat(node.output))).tail().int(width).float(at_least);
        self.launch(&kernel::MEAN_POOL, (width.div_ceil(kernel::pool_columns(&kernel::MEAN_POOL)), self.most(Rows::Batch)), args);
        Ok(())
    }

    pub(crate) fn concat(&mut self, node: &Node, parts: &[ValueId]) -> Result<(), String> {
        let (to, rows) = (self.mat(node.output), self.plan.value(node.output).rows);
        let mut from = 0;
        for part in parts {
            let width = self.plan.value(*part).width;
            self.copy(rows, (self.mat(*part), 0), (to, from), width, Activation::None);
            from += width;
        }
        Ok(())
    }

    /// Copies columns of one matrix, activated, into columns of another or the same.
    pub(crate) fn copy(
        &mut self,
        rows: Rows,
        (x, x_from): (MatrixRef, usize),
        (y, y_from): (MatrixRef, usize),
        width: usize,
        activation: Activation,
    ) {
        let args = self.rows(KernelArgs::default(), rows).mat(Some(x)).mat(Some(y)).tail();
        let args = args.int(x_from).int(y_from).int(width).int(activation as usize);
        let blocks = (self.most(rows) * width).div_ceil(kernel::COPY.threads as usize);
        self.launch(&kernel::COPY, (blocks.min(16 * self.target.processors), 1), args);
    }
}

/// A fold's number in the kernels.
pub(crate) const fn number(fold: Fold) -> usize {
    match fold {
        Fold::Sum => 0,
        Fold::Max => 1,
        Fold::Min => 2,
        Fold::First => 3,
        Fold::Mean => 4,
    }
}
