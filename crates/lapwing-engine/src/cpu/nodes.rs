//! Divides the nodes that are no products among threads: by rows, sequences or heads.

use std::ops::Range;

use smallvec::SmallVec;

use super::attention::{Attention, DistanceBias, HeadColumns, HeadColumnsMut, HeadShape};
use super::embed::{EmbedError, RowSelector, Table, embed};
use super::map::ArgData;
use super::norm::{NormKind, NormParams, norm_rows, norm_rows_in_place};
use super::pool::mean_pool;
use super::program::CpuProgram;
use super::reduce::{RowReduce, TokenReduce, reduce_rows, reduce_tokens};
use super::rotate::{RotatedHeads, rotate};
use super::run::{ELEMENTS, Run, failed};
use super::scratch::ThreadScratch;
use lapwing_plan::exec::{Input, RunError};
use lapwing_plan::plan::{self, Fold, Lookup, Node, ValueId, WeightId};

impl Run<'_> {
    pub(crate) fn map(
        &self,
        node: &Node,
        program: &CpuProgram,
        args: &[ValueId],
        scratches: &ThreadScratch<'_>,
    ) -> Result<(), RunError> {
        let args: SmallVec<[ArgData<'_>; 8]> = args.iter().map(|id| self.argument(*id)).collect();
        self.threads().split(self.rows_of(node), ELEMENTS.div_ceil(self.width(node)), |part, rows| {
            // SAFETY: only this part accesses these rows of the node's output and its thread's scratch
            let (out, scratch) = unsafe { (self.memory.write(node.output, rows.clone()), scratches.of_thread(part)) };
            let ran = program.run(self.prepared.options.level, &args, self.offsets_of(node), rows, scratch, &mut [out]);
            ran.map_err(|e| failed(node, &e.to_string()))
        })
    }

    pub(crate) fn embed(&self, node: &Node, tables: &[(WeightId, Lookup)], norm: Option<&plan::Norm>) -> Result<(), RunError> {
        let tables: SmallVec<[Table<'_>; 4]> = tables
            .iter()
            .map(|(id, lookup)| {
                let table = self.prepared.plan.weight(*id);
                // SAFETY: operands are not written while a node runs
                let ids = |id: ValueId| unsafe { self.memory.any(id) };
                let (pick, stride) = match lookup {
                    Lookup::Position(from) => (RowSelector::Position(*from), 1),
                    Lookup::Id(id) => {
                        let pick = match ids(id.value) {
                            Input::I32(ids) => RowSelector::I32(ids.get(id.from..).unwrap_or_default()),
                            Input::I64(ids) => RowSelector::I64(ids.get(id.from..).unwrap_or_default()),
                            Input::F32(ids) => RowSelector::F32(ids.get(id.from..).unwrap_or_default()),
                            Input::Bool(_) => RowSelector::I64(&[]),
                        };
                        (pick, self.prepared.plan.value(id.value).width)
                    }
                };
                Table { name: &table.name, data: &table.data, pick, stride }
            })
            .collect();
        let width = self.width(node);
        let is_token = self.prepared.plan.value(node.output).rows == plan::Rows::Token;
        let offsets = if is_token { self.offsets } else { self.rows };
        let sequences = offsets.len() - 1;
        let least = (ELEMENTS * sequences).div_ceil(self.rows_of(node) * width);
        self.threads().split(sequences, least, |_, range| {
            // SAFETY: only this part accesses the rows of these sequences in the node's output
            let out = unsafe { self.memory.write(node.output, offsets[range.start]..offsets[range.end]) };
            embed(self.prepared.options.level, &tables, width, offsets, range, out).map_err(|error| match error {
                EmbedError::Id(id) => RunError::Id(id),
                EmbedError::Shape(shape) => failed(node, &shape.to_string()),
            })?;
            let Some(norm) = norm else { return Ok(()) };
            let (gamma, beta) = (self.row(norm.scale), self.row(norm.shift));
            let params = NormParams { norm: NormKind::Layer, eps: norm.epsilon, gamma, beta };
            norm_rows_in_place(self.prepared.options.level, &params, width, out, None).map_err(|e| failed(node, &e.to_string()))
        })
    }

    pub(crate) fn norm(
        &self,
        node: &Node,
        params: &NormParams<'_>,
        x: ValueId,
        residual: Option<ValueId>,
    ) -> Result<(), RunError> {
        let (width, x, residual) = (self.width(node), self.read(x), residual.map(|id| self.read(id)));
        self.by_row(node, |rows, out| {
            let of = |values: &'_ [f32]| -> Range<usize> {
                (rows.start * width).min(values.len())..(rows.end * width).min(values.len())
            };
            let residual = residual.map(|residual| &residual[of(residual)]);
            norm_rows(self.prepared.options.level, params, width, &x[of(x)], residual, out)
                .map_err(|e| failed(node, &e.to_string()))
        })
    }

    pub(crate) fn attention(
        &self,
        node: &Node,
        shape: HeadShape,
        columns: [plan::Columns; 3],
        bias: Option<ValueId>,
        by_distance: Option<&DistanceBias>,
        scratches: &ThreadScratch<'_>,
    ) -> Result<(), RunError> {
        let failed = |e: super::shape::ShapeError| failed(node, &e.to_string());
        let keys = self.prepared.plan.value(columns[1].value).rows;
        let columns = columns.map(|columns| HeadColumns {
            data: self.read(columns.value),
            offset: columns.from,
            stride: self.prepared.plan.value(columns.value).width,
        });
        let bias = bias.map(|id| self.read(id));
        let context = (keys == plan::Rows::Context).then_some(self.context);
        let attention = Attention::new(shape, self.offsets, context, columns, bias, by_distance).map_err(failed)?;
        // SAFETY: only this node accesses its output; its parts write different heads
        let out = HeadColumnsMut::new(unsafe { self.memory.write(node.output, 0..self.rows_of(node)) }, 0, self.width(node));
        // a head of a sequence costs a product of its tokens and its keys; the parts have about equal cost
        let all = context.unwrap_or(self.offsets);
        let pairs = if context.is_some() { self.size.squares + self.size.by_past } else { self.size.squares };
        let cost = pairs * shape.heads;
        let least = (16 * ELEMENTS).div_ceil(shape.head_size + shape.value_size);
        self.threads().split(cost, least, |part, range| {
            let mut before = 0;
            for (sequence, (own, keys)) in self.offsets.windows(2).zip(all.windows(2)).enumerate() {
                let each = (own[1] - own[0]) * (keys[1] - keys[0]);
                let head = |cost: usize| cost.saturating_sub(before).div_ceil(each).min(shape.heads);
                let heads = head(range.start)..head(range.end);
                if !heads.is_empty() {
                    // SAFETY: each head of each sequence begins in exactly one part, which alone writes it; the scratch
                    // is this thread's own
                    let (mut out, scratch) = unsafe { (out.share(), scratches.of_thread(part)) };
                    let level = self.prepared.options.level;
                    attention.run(level, sequence..sequence + 1, heads, scratch, &mut out).map_err(failed)?;
                }
                before += each * shape.heads;
            }
            Ok(())
        })
    }

    pub(crate) fn rotate(&self, node: &Node, shape: RotatedHeads, x: plan::Columns, tables: [&[f32]; 2]) -> Result<(), RunError> {
        let plan = &self.prepared.plan;
        let columns = HeadColumns { data: self.read(x.value), offset: x.from, stride: plan.value(x.value).width };
        self.by_row(node, |rows, out| {
            rotate(self.prepared.options.level, shape, self.offsets, columns, tables, rows, out)
                .map_err(|e| failed(node, &e.to_string()))
        })
    }

    /// Writes the rows of the past and behind them the new ones, for each head of each sequence.
    pub(crate) fn append(
        &self,
        node: &Node,
        past: ValueId,
        new: plan::Columns,
        [heads, head]: [usize; 2],
    ) -> Result<(), RunError> {
        let (width, stride) = (heads * head, self.prepared.plan.value(new.value).width);
        let (past, new, from) = (self.read(past), self.read(new.value), new.from);
        let sequences = self.offsets.len() - 1;
        let least = (ELEMENTS * sequences).div_ceil(self.rows_of(node) * width);
        self.threads().split(sequences, least, |_, range| {
            for sequence in range {
                let of = |offsets: &[usize]| offsets[sequence]..offsets[sequence + 1];
                let (before, own, all) = (of(self.past), of(self.offsets), of(self.context));
                let cached = before.len() * head;
                // SAFETY: only this part accesses the rows of this sequence in the node's output
                let out = unsafe { self.memory.write(node.output, all.clone()) };
                for (h, out) in out.chunks_exact_mut(all.len() * head).enumerate() {
                    let (to_past, to_new) = out.split_at_mut(cached);
                    to_past.copy_from_slice(&past[before.start * width + h * cached..][..cached]);
                    for (row, to) in own.clone().zip(to_new.chunks_exact_mut(head)) {
                        to.copy_from_slice(&new[row * stride + from + h * head..][..head]);
                    }
                }
            }
            Ok(())
        })
    }

    pub(crate) fn reduce(&self, node: &Node, x: ValueId, fold: Fold) -> Result<(), RunError> {
        let (wide, x) = (self.prepared.plan.value(x).width, self.read(x));
        // SAFETY: only this node accesses its output
        let out = unsafe { self.memory.write(node.output, 0..self.rows_of(node)) };
        let fold = match fold {
            Fold::First => {
                out.iter_mut().enumerate().for_each(|(row, out)| *out = x[row * wide]);
                return Ok(());
            }
            Fold::Max => RowReduce::Max,
            Fold::Min => RowReduce::Min,
            Fold::Mean => RowReduce::Mean,
            Fold::Sum => RowReduce::Sum,
        };
        reduce_rows(self.prepared.options.level, fold, wide, x, out).map_err(|e| failed(node, &e.to_string()))
    }

    pub(crate) fn pool(&self, node: &Node, x: ValueId, fold: Fold) -> Result<(), RunError> {
        let fold = match fold {
            Fold::Sum => TokenReduce::Sum,
            Fold::Max => TokenReduce::Max,
            Fold::Min => TokenReduce::Min,
            Fold::First => TokenReduce::First,
            Fold::Mean => TokenReduce::Mean,
        };
        let (width, x) = (self.width(node), self.read(x));
        let sequences = self.offsets.len() - 1;
        let least = (ELEMENTS * sequences).div_ceil(self.size.tokens * width);
        self.threads().split(sequences, least, |_, range| {
            // SAFETY: only this part accesses the rows of these sequences in the node's output
            let out = unsafe { self.memory.write(node.output, range.clone()) };
            reduce_tokens(self.prepared.options.level, fold, width, self.offsets, range, x, out)
                .map_err(|e| failed(node, &e.to_string()))
        })
    }

    pub(crate) fn mean_pool(&self, node: &Node, x: ValueId, weights: ValueId, least: f32) -> Result<(), RunError> {
        // SAFETY: only this node accesses its output
        let out = unsafe { self.memory.write(node.output, 0..self.rows_of(node)) };
        let (level, width) = (self.prepared.options.level, self.width(node));
        mean_pool(level, width, self.offsets, self.read(x), self.argument(weights), least, out)
            .map_err(|e| failed(node, &e.to_string()))
    }
}
