//! One run of a plan: its memory (the batch's inputs, the arena block that holds the plan's values, and the outputs), and the kernel of each
//! node, divided among the threads if the node is large enough.

use std::marker::PhantomData;
use std::ops::Range;

use smallvec::SmallVec;

use super::attention::HeadShape;
use super::map::ArgData;
use super::norm::{NormKind, NormParams, softmax_rows};
use super::pool::cum_sum;
use super::prepare::{CpuPlan, PreparedNode};
use super::rotate::RotatedHeads;
use super::scratch::Scratch;
use super::threads::Threads;
use lapwing_plan::exec::{Input, RunError};
use lapwing_plan::plan::{Activation, Angles, Arena, BatchSize, Node, Op, Plan, Rows, ValueId, WeightId};

/// The least number of elements in a part of an elementwise node: about 10 µs of work.
pub(crate) const ELEMENTS: usize = 1 << 15;

/// Called with the input of each matrix product: the node's index in the plan, the rows, and the length of one row.
pub type ProductObserver<'a> = dyn FnMut(usize, &[f32], usize) + Send + 'a;

/// One run.
pub(crate) struct Run<'a> {
    pub(crate) prepared: &'a CpuPlan,
    pub(crate) memory: Memory<'a>,
    pub(crate) size: BatchSize,
    pub(crate) offsets: &'a [usize],
    /// Where each sequence's past begins, and where its context does; of models with a cache.
    pub(crate) past: &'a [usize],
    pub(crate) context: &'a [usize],
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

    /// Where each sequence begins among the rows of a node's output.
    pub(crate) fn offsets_of(&self, node: &Node) -> &[usize] {
        match self.prepared.plan.value(node.output).rows {
            Rows::Batch | Rows::Token => self.offsets,
            Rows::Past => self.past,
            Rows::Context => self.context,
        }
    }

    /// A one-row weight of the model.
    pub(crate) fn row(&self, id: Option<WeightId>) -> Option<&[f32]> {
        id.map(|id| &*self.prepared.plan.weight(id).data)
    }

    pub(crate) fn read(&self, id: ValueId) -> &[f32] {
        // SAFETY: operands are not written while a node runs, because the plan is valid
        unsafe { self.memory.read(id) }
    }

    pub(crate) fn argument(&self, id: ValueId) -> ArgData<'_> {
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
            (Op::Attention { q, k, v, heads, key_heads, head, head_out, scale, bias, is_zero_if_masked, .. }, _) => {
                let shape = HeadShape {
                    heads: *heads,
                    key_heads: *key_heads,
                    head_size: *head,
                    value_size: *head_out,
                    scale: *scale,
                    is_zero_if_masked: *is_zero_if_masked,
                };
                let by_distance = if let PreparedNode::Attention(table) = ready { Some(&**table) } else { None };
                self.attention(node, shape, [*q, *k, *v], *bias, by_distance, &scratches)
            }
            (Op::Rotate { x, heads, head, angles }, _) => {
                let (is_by_token, tables) = match angles {
                    Angles::ByPosition { cos, sin } => (false, [*cos, *sin].map(|id| &*self.prepared.plan.weight(id).data)),
                    Angles::ByToken { cos, sin } => (true, [*cos, *sin].map(|id| self.read(id))),
                };
                self.rotate(node, RotatedHeads { heads: *heads, head_size: *head, is_by_token }, *x, tables)
            }
            (Op::Append { past, new, heads, head }, _) => self.append(node, *past, *new, [*heads, *head]),
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

    pub(crate) fn width(&self, node: &Node) -> usize {
        self.prepared.plan.value(node.output).width
    }

    /// Runs a node in parts of consecutive rows; `work` gets a range of rows and the output rows of that range.
    pub(crate) fn by_row(
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
}

pub(crate) fn failed(node: &Node, reason: &str) -> RunError {
    RunError::Node { node: node.name.clone(), reason: reason.to_owned() }
}

/// Where the executor stores a value of the plan, the same in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueLocation {
    /// In the arena block, at the offset that the arena assigned.
    Block,
    /// It is the input with this index.
    Input(usize),
    /// It is the output with this index; the first such index if several outputs name it.
    Output(usize),
}

/// The location of every value.
pub(crate) fn locations(plan: &Plan) -> Vec<ValueLocation> {
    let mut locations = vec![ValueLocation::Block; plan.values.len()];
    for (at, port) in plan.outputs.iter().enumerate().rev() {
        locations[port.value.0] = ValueLocation::Output(at);
    }
    for (at, port) in plan.inputs.iter().enumerate() {
        locations[port.value.0] = ValueLocation::Input(at);
    }
    locations
}

/// The values of one run.
pub(crate) struct Memory<'a> {
    plan: &'a Plan,
    locations: &'a [ValueLocation],
    arena: &'a Arena,
    size: BatchSize,
    inputs: &'a [Input<'a>],
    block: (*mut f32, usize),
    outputs: SmallVec<[(*mut f32, usize); 4]>,
    borrowed: PhantomData<&'a mut [f32]>,
}

// SAFETY: equivalent to borrowed slices; callers of `read` and `write` guarantee that accesses do not overlap
unsafe impl Sync for Memory<'_> {}
// SAFETY: as above
unsafe impl Send for Memory<'_> {}

impl<'a> Memory<'a> {
    /// Values lie in `block` at the offsets of `arena`; `block` has the length that the arena requires. `outputs` are
    /// resized to the batch.
    pub(crate) fn new(
        plan: &'a Plan,
        locations: &'a [ValueLocation],
        arena: &'a Arena,
        size: BatchSize,
        inputs: &'a [Input<'a>],
        block: &'a mut [f32],
        outputs: &'a mut [Vec<f32>],
    ) -> Self {
        let sized = plan.outputs.iter().zip(outputs).map(|(port, output)| {
            let value = plan.value(port.value);
            output.resize(size.rows(value.rows) * value.width, 0.0);
            (output.as_mut_ptr(), output.len())
        });
        let outputs = sized.collect();
        let block = (block.as_mut_ptr(), block.len());
        Self { plan, locations, arena, size, inputs, block, outputs, borrowed: PhantomData }
    }

    /// Where a computed value begins, and how many elements it has.
    fn own(&self, id: ValueId) -> (*mut f32, usize) {
        let value = self.plan.value(id);
        let count = self.size.rows(value.rows) * value.width;
        match (self.locations[id.0], self.arena.place(id)) {
            (ValueLocation::Output(at), _) => self.outputs[at],
            (ValueLocation::Block, Some(place)) => {
                let (begin, length) = self.block;
                assert!(place.offset % 4 == 0 && place.offset / 4 + count <= length, "a value lies outside of the block");
                (begin.wrapping_add(place.offset / 4), count)
            }
            _ => (std::ptr::NonNull::dangling().as_ptr(), 0),
        }
    }

    /// A float32 value; empty if the value has another type.
    ///
    /// # Safety
    ///
    /// The value is not written while the slice lives.
    pub(crate) unsafe fn read(&self, id: ValueId) -> &[f32] {
        if let ValueLocation::Input(at) = self.locations[id.0] {
            return if let Input::F32(data) = self.inputs[at] { data } else { &[] };
        }
        let (begin, count) = self.own(id);
        // SAFETY: the range lies in a slice that this borrows; the caller guarantees that no code writes it
        unsafe { std::slice::from_raw_parts(begin, count) }
    }

    /// A value of any type.
    ///
    /// # Safety
    ///
    /// The value is not written while the slice lives.
    pub(crate) unsafe fn any(&self, id: ValueId) -> Input<'_> {
        match self.locations[id.0] {
            ValueLocation::Input(at) => self.inputs[at],
            // SAFETY: guaranteed by the caller
            _ => Input::F32(unsafe { self.read(id) }),
        }
    }

    /// Some rows of a value that is being computed.
    ///
    /// # Safety
    ///
    /// No other code reads or writes these rows, or values that share their memory, while the slice lives.
    #[allow(clippy::mut_from_ref, reason = "values do not overlap; the caller guarantees exclusive access to these rows")]
    pub(crate) unsafe fn write(&self, id: ValueId, rows: Range<usize>) -> &mut [f32] {
        let (begin, count) = self.own(id);
        let width = self.plan.value(id).width;
        let (from, to) = (rows.start * width, rows.end * width);
        assert!(from <= to && to <= count, "rows lie outside of the value");
        // SAFETY: the rows lie in the value, as checked above, and the value lies in a slice that this borrows; the
        // caller guarantees exclusive access
        unsafe { std::slice::from_raw_parts_mut(begin.wrapping_add(from), to - from) }
    }
}
