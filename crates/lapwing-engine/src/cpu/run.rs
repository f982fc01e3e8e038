//! One run of a plan: calls the kernel of each node, divided among the threads if the node is large enough.

use std::ops::Range;

use smallvec::SmallVec;

use super::attention::{Attention, HeadColumns, HeadColumnsMut, HeadShape};
use super::embed::{EmbedError, RowSelector, Table, embed};
use super::map::ArgData;
use super::memory::Memory;
use super::norm::{NormKind, NormParams, norm_rows, norm_rows_in_place, softmax_rows};
use super::pool::{cum_sum, mean_pool};
use super::prepare::{CpuPlan, PreparedNode};
use super::program::CpuProgram;
use super::reduce::{RowReduce, TokenReduce, reduce_rows, reduce_tokens};
use super::scratch::{Scratch, ThreadScratch};
use super::threads::Threads;
use lapwing_plan::exec::{Input, RunError};
use lapwing_plan::plan::{self, Activation, BatchSize, Fold, Lookup, Node, Op, ValueId, WeightId};

/// The least number of elements in a part of an elementwise node: about 10 µs of work.
const ELEMENTS: usize = 1 << 15;

/// Called with the input of each matrix product: the node's index in the plan, the rows, and the length of one row.
pub type ProductObserver<'a> = dyn FnMut(usize, &[f32], usize) + Send + 'a;

/// One run.
pub(crate) struct Run<'a> {
    pub(crate) prepared: &'a CpuPlan,
    pub(crate) memory: Memory<'a>,
    pub(crate) size: BatchSize,
    pub(crate) offsets: &'a [usize],
    /// Like `offsets`, with each row as a sequence of one token.
    pub(crate) rows: &'a [usize],
}

/// A product's operands.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    pub(crate) node: &'a Node,
    pub(crate) x: ValueId,
    pub(crate) bias: Option<WeightId>,
    pub(crate) activation: Activation,
    pub(crate) residual: Option<ValueId>,
}

impl Run<'_> {
    /// Runs every node.
    ///
    /// # Safety
    ///
    /// No other code reads or writes the run's memory, and the plan is valid.
    pub(crate) unsafe fn nodes(
        &self,
        scratch: &mut Scratch,
        mut observer: Option<&mut ProductObserver<'_>>,
    ) -> Result<(), RunError> {
        for (at, (node, ready)) in self.prepared.plan.nodes.iter().zip(&self.prepared.ready).enumerate() {
            if let (Some(observer), Op::Gemm { x, .. }) = (&mut observer, &node.op) {
                observer(at, self.read(*x), self.prepared.plan.value(*x).width);
            }
            // SAFETY: guaranteed by the caller
            unsafe { self.node(node, ready, scratch)? };
        }
        Ok(())
    }

    pub(crate) fn threads(&self) -> &Threads {
        &self.prepared.options.threads
    }

    /// Number of rows of a node's output.
    pub(crate) fn rows_of(&self, node: &Node) -> usize {
        self.size.rows(self.prepared.plan.value(node.output).rows)
    }

    /// A one-row weight of the model.
    pub(crate) fn row(&self, id: Option<WeightId>) -> Option<&[f32]> {
        id.map(|id| &*self.prepared.plan.weight(id).data)
    }

    fn read(&self, id: ValueId) -> &[f32] {
        // SAFETY: operands are not written while a node runs, because the plan is valid
        unsafe { self.memory.read(id) }
    }

    fn argument(&self, id: ValueId) -> ArgData<'_> {
        // SAFETY: as in `read`
        match unsafe { self.memory.any(id) } {
            Input::F32(data) => ArgData::F32(data),
            Input::I64(data) => ArgData::I64(data),
            Input::I32(data) => ArgData::I32(data),
            Input::Bool(data) => ArgData::Bool(data),
        }
    }

    /// # Safety
    ///
    /// Like [`Run::nodes`].
    unsafe fn node(&self, node: &Node, ready: &PreparedNode, scratch: &mut Scratch) -> Result<(), RunError> {
        let (scratches, words, quants) = scratch.share();
        match (&node.op, ready) {
            (Op::Gemm { x, bias, activation, residual, .. }, _) => {
                let product = Product { node, x: *x, bias: *bias, activation: *activation, residual: *residual };
                match ready {
                    // SAFETY: guaranteed by the caller
                    PreparedNode::Gemm(packed) => unsafe { self.product(product, packed, &scratches) },
                    // SAFETY: guaranteed by the caller
                    PreparedNode::GemmI8(packed, fixed) => unsafe { self.product_i8(product, packed, *fixed, words, quants) },
                    _ => Err(failed(node, "was not prepared")),
                }
            }
            (Op::Map { args, .. }, PreparedNode::Map(program)) => self.map(node, program, args, &scratches),
            (Op::Map { .. }, _) => Err(failed(node, "was not prepared")),
            (Op::Embed { tables, norm }, _) => self.embed(node, tables, norm.as_ref()),
            (Op::LayerNorm { x, residual, epsilon, scale, shift }, _) => {
                let params = NormParams { norm: NormKind::Layer, eps: *epsilon, gamma: self.row(*scale), beta: self.row(*shift) };
                self.norm(node, &params, *x, *residual)
            }
            (Op::RmsNorm { x, epsilon, scale }, _) => {
                let params = NormParams { norm: NormKind::Rms, eps: *epsilon, gamma: self.row(*scale), beta: None };
                self.norm(node, &params, *x, None)
            }
            (Op::Softmax(x), _) => {
                let (x, width) = (self.read(*x), self.width(node));
                self.by_row(node, |rows, out| {
                    softmax_rows(self.prepared.options.level, width, &x[rows.start * width..rows.end * width], out)
                        .map_err(|e| failed(node, &e.to_string()))
                })
            }
            (Op::Attention { q, k, v, heads, head, head_out, scale, bias }, _) => {
                let shape = HeadShape { heads: *heads, head_size: *head, value_size: *head_out, scale: *scale };
                self.attention(node, shape, [*q, *k, *v], *bias, &scratches)
            }
            (Op::Reduce { x, fold }, _) => self.reduce(node, *x, *fold),
            (Op::Pool { x, fold }, _) => self.pool(node, *x, *fold),
            (Op::MeanPool { x, weights, at_least }, _) => self.mean_pool(node, *x, *weights, *at_least),
            (Op::CumSum(x), _) => {
                // SAFETY: only this node accesses its output
                let out = unsafe { self.memory.write(node.output, 0..self.rows_of(node)) };
                cum_sum(self.width(node), self.offsets, self.read(*x), out);
                Ok(())
            }
            (Op::Concat(parts), _) => self.by_row(node, |rows, out| {
                let (width, mut from) = (self.width(node), 0);
                for part in parts {
                    let wide = self.prepared.plan.value(*part).width;
                    let pieces = self.read(*part)[rows.start * wide..rows.end * wide].chunks_exact(wide);
                    for (row, piece) in out.chunks_exact_mut(width).zip(pieces) {
                        row[from..from + wide].copy_from_slice(piece);
                    }
                    from += wide;
                }
                Ok(())
            }),
            (Op::Slice(columns), _) => self.by_row(node, |rows, out| {
                let (width, wide) = (self.width(node), self.prepared.plan.value(columns.value).width);
                let read = self.read(columns.value)[rows.start * wide..rows.end * wide].chunks_exact(wide);
                for (row, out) in read.zip(out.chunks_exact_mut(width)) {
                    out.copy_from_slice(&row[columns.from..columns.from + width]);
                }
                Ok(())
            }),
        }
    }

    fn width(&self, node: &Node) -> usize {
        self.prepared.plan.value(node.output).width
    }

    /// Runs a node in parts of consecutive rows; `work` gets a range of rows and the output rows of that range.
    fn by_row(
        &self,
        node: &Node,
        work: impl Fn(Range<usize>, &mut [f32]) -> Result<(), RunError> + Sync,
    ) -> Result<(), RunError> {
        self.threads().split(self.rows_of(node), ELEMENTS.div_ceil(self.width(node)), |_, rows| {
            // SAFETY: only this part accesses these rows of the node's output
            let out = unsafe { self.memory.write(node.output, rows.clone()) };
            work(rows, out)
        })
    }

    fn map(&self, node: &Node, program: &CpuProgram, args: &[ValueId], scratches: &ThreadScratch<'_>) -> Result<(), RunError> {
        let args: SmallVec<[ArgData<'_>; 8]> = args.iter().map(|id| self.argument(*id)).collect();
        self.threads().split(self.rows_of(node), ELEMENTS.div_ceil(self.width(node)), |part, rows| {
            // SAFETY: only this part accesses these rows of the node's output and its thread's scratch
            let (out, scratch) = unsafe { (self.memory.write(node.output, rows.clone()), scratches.of_thread(part)) };
            let ran = program.run(self.prepared.options.level, &args, self.offsets, rows, scratch, &mut [out]);
            ran.map_err(|e| failed(node, &e.to_string()))
        })
    }

    fn embed(&self, node: &Node, tables: &[(WeightId, Lookup)], norm: Option<&plan::Norm>) -> Result<(), RunError> {
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

    fn norm(&self, node: &Node, params: &NormParams<'_>, x: ValueId, residual: Option<ValueId>) -> Result<(), RunError> {
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

    fn attention(
        &self,
        node: &Node,
        shape: HeadShape,
        columns: [plan::Columns; 3],
        bias: Option<ValueId>,
        scratches: &ThreadScratch<'_>,
    ) -> Result<(), RunError> {
        let failed = |e: super::shape::ShapeError| failed(node, &e.to_string());
        let columns = columns.map(|columns| HeadColumns {
            data: self.read(columns.value),
            offset: columns.from,
            stride: self.prepared.plan.value(columns.value).width,
        });
        let attention = Attention::new(shape, self.offsets, columns, bias.map(|id| self.read(id))).map_err(failed)?;
        // SAFETY: only this node accesses its output; its parts write different heads
        let out = HeadColumnsMut::new(unsafe { self.memory.write(node.output, 0..self.rows_of(node)) }, 0, self.width(node));
        // a head of a sequence costs the square of its length; the parts have about equal cost
        let cost = self.size.squares * shape.heads;
        let least = (16 * ELEMENTS).div_ceil(shape.head_size + shape.value_size);
        self.threads().split(cost, least, |part, range| {
            let mut before = 0;
            for (sequence, pair) in self.offsets.windows(2).enumerate() {
                let each = (pair[1] - pair[0]) * (pair[1] - pair[0]);
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

    fn reduce(&self, node: &Node, x: ValueId, fold: Fold) -> Result<(), RunError> {
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

    fn pool(&self, node: &Node, x: ValueId, fold: Fold) -> Result<(), RunError> {
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
}

impl Run<'_> {
    fn mean_pool(&self, node: &Node, x: ValueId, weights: ValueId, least: f32) -> Result<(), RunError> {
        // SAFETY: only this node accesses its output
        let out = unsafe { self.memory.write(node.output, 0..self.rows_of(node)) };
        let (level, width) = (self.prepared.options.level, self.width(node));
        mean_pool(level, width, self.offsets, self.read(x), self.argument(weights), least, out)
            .map_err(|e| failed(node, &e.to_string()))
    }
}

fn failed(node: &Node, reason: &str) -> RunError {
    RunError::Node { node: node.name.clone(), reason: reason.to_owned() }
}
