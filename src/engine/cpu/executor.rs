//! The executor: a plan's nodes in order, each by its kernel. A run allocates nothing when its state has held a batch as large
//! before.

use super::attention::{Attention, Columns, ColumnsMut, Heads};
use super::embed::{EmbedError, Pick, Table, embed};
use super::gemm::{Activation, Epilogue, OutRows, Residual, ResidualAt, Rows, gemm};
use super::level::Level;
use super::map::ArgData;
use super::memory::{Input, Memory};
use super::norm::{Norm, NormParams, norm_rows, norm_rows_in_place, softmax_rows};
use super::pool::{cum_sum, mean_pool};
use super::prepare::{PrepareError, Ready, prepare, scratch};
use super::reduce::{RowReduce, TokenReduce, reduce_rows, reduce_tokens};
use crate::engine::plan::{self, Arena, Fold, Lookup, Node, Op, Plan, Size, Type, ValueId, WeightId};

/// Why a batch could not be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// An input has another length or type than the batch asks for.
    #[error("{input}: expected {expected} elements of {kind:?}, got {got}")]
    Input {
        /// The input's name.
        input: String,
        /// Elements that the batch asks for.
        expected: usize,
        /// Their type.
        kind: Type,
        /// Elements that came.
        got: usize,
    },
    /// The batch has no sequences, or one without tokens, or other inputs than the model.
    #[error("batch: {reason}")]
    Batch {
        /// What about it.
        reason: String,
    },
    /// An id that a table does not have.
    #[error(transparent)]
    Id(#[from] EmbedError),
    /// A kernel refused its node: a fault of the plan's.
    #[error("{node}: {reason}")]
    Node {
        /// The node's name in the model.
        node: String,
        /// What the kernel said.
        reason: String,
    },
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Where each sequence's tokens begin, and behind the last one where they end. In a model without sequences, of a row each.
    pub offsets: &'a [usize],
    /// What each input brings, in the plan's order; rows end to end.
    pub inputs: &'a [Input<'a>],
}

/// The memory that runs need, which grows to the largest batch so far.
#[derive(Debug, Default)]
pub struct State {
    arena: Option<(Size, Arena)>,
    block: Vec<f32>,
    scratch: Vec<f32>,
    rows: Vec<usize>,
}

/// A plan that is ready to run on any number of threads, each with a [`State`] of its own.
#[derive(Debug)]
pub struct Executor {
    plan: Plan,
    ready: Vec<Ready>,
    level: Level,
}

impl Executor {
    /// Packs the plan's weights for this processor.
    ///
    /// # Errors
    ///
    /// [`PrepareError`] with a node that cannot run here.
    pub fn new(plan: Plan) -> Result<Self, PrepareError> {
        Self::for_level(plan, Level::best())
    }

    /// The same for other vector instructions than the best that there are.
    ///
    /// # Errors
    ///
    /// [`PrepareError`] with a node that cannot run here.
    pub fn for_level(mut plan: Plan, level: Level) -> Result<Self, PrepareError> {
        plan.check().map_err(|e| PrepareError { node: e.node, reason: e.reason })?;
        let level = level.runnable();
        let ready = prepare(&mut plan, level)?;
        Ok(Self { plan, ready, level })
    }

    /// What is run; weights of matrix products are no longer in it.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The vector instructions.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Runs a batch: each output gets its rows, end to end.
    ///
    /// # Errors
    ///
    /// [`RunError`] with what is wrong about the batch; then the outputs hold nothing of use.
    pub fn run(&self, state: &mut State, batch: &Batch<'_>, outputs: &mut Vec<Vec<f32>>) -> Result<(), RunError> {
        let size = self.size(batch)?;
        outputs.resize_with(self.plan.outputs.len(), Vec::new);
        let held = state.arena.as_ref().map_or(Size::uniform(0, 0), |(held, _)| *held);
        if size.batch > held.batch || size.tokens > held.tokens {
            let (batch, tokens) = (size.batch.max(held.batch), size.tokens.max(held.tokens));
            let size = Size { batch, tokens, squares: size.squares };
            let arena = Arena::new(&self.plan, size);
            state.block.resize(arena.bytes() / 4, 0.0);
            state.scratch.resize(scratch(&self.plan, &self.ready, size), 0.0);
            state.rows = (0..=size.batch).collect();
            state.arena = Some((size, arena));
        }
        let State { arena: Some((_, arena)), block, scratch, rows } = state else { return Ok(()) };
        let memory = Memory::new(&self.plan, arena, size, batch.inputs, block, outputs);
        let run = Run { executor: self, memory, size, offsets: batch.offsets, rows: &rows[..=size.batch] };
        for (node, ready) in self.plan.nodes.iter().zip(&self.ready) {
            // SAFETY: the plan was checked: a node reads what was made before and makes what is its own; and the arena gives a
            // value that is being made no place that one holds which is still read
            unsafe { run.node(node, ready, scratch)? };
        }
        Ok(())
    }

    fn size(&self, batch: &Batch<'_>) -> Result<Size, RunError> {
        let fails = |reason: &str| Err(RunError::Batch { reason: reason.to_owned() });
        let lengths: Vec<usize> = batch.offsets.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
        if lengths.is_empty() || batch.offsets.first() != Some(&0) {
            return fails("has no sequences");
        }
        if lengths.contains(&0) {
            return fails("has a sequence without tokens");
        }
        if batch.inputs.len() != self.plan.inputs.len() {
            return fails(&format!("has {} inputs, the model {}", batch.inputs.len(), self.plan.inputs.len()));
        }
        let size = Size::of(&lengths);
        for (port, input) in self.plan.inputs.iter().zip(batch.inputs) {
            let value = self.plan.value(port.value);
            let expected = size.rows(value.rows) * value.width;
            let is_kind = matches!(
                (value.kind, input),
                (Type::F32, Input::F32(_))
                    | (Type::I64, Input::I64(_))
                    | (Type::I32, Input::I32(_))
                    | (Type::Bool, Input::Bool(_))
            );
            if !is_kind || input.len() != expected {
                return Err(RunError::Input { input: port.name.clone(), expected, kind: value.kind, got: input.len() });
            }
        }
        Ok(size)
    }
}

/// One run.
struct Run<'a> {
    executor: &'a Executor,
    memory: Memory<'a>,
    size: Size,
    offsets: &'a [usize],
    /// As `offsets`, where each row is a sequence of one token.
    rows: &'a [usize],
}

impl Run<'_> {
    /// # Safety
    ///
    /// Nothing else reads or writes the run's memory.
    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    unsafe fn node(&self, node: &Node, ready: &Ready, scratch: &mut [f32]) -> Result<(), RunError> {
        let (plan, level) = (&self.executor.plan, self.executor.level);
        let out_value = plan.value(node.output);
        let (rows, width) = (self.size.rows(out_value.rows), out_value.width);
        // SAFETY: the node's output is no operand of it, and shares no place with one
        let out = unsafe { self.memory.write(node.output) };
        // SAFETY: operands are not written while the node runs
        let read = |id: ValueId| unsafe { self.memory.read(id) };
        let row = |id: Option<WeightId>| id.map(|id| &*plan.weight(id).data);
        let failed = |reason: String| RunError::Node { node: node.name.clone(), reason };
        match (&node.op, ready) {
            (Op::Gemm { x, bias, activation, residual, .. }, Ready::Gemm(packed)) => {
                let residual =
                    residual.map(|id| Residual { rows: Rows::dense(read(id), rows, width), at: ResidualAt::AfterActivation });
                let epilogue = Epilogue { bias: row(*bias), activation: of(*activation), residual };
                let x = Rows::dense(read(*x), rows, packed.k());
                gemm(x, packed, &epilogue, OutRows { values: out, stride: width }, 0..packed.panels(), scratch)
                    .map_err(|e| failed(e.to_string()))
            }
            (Op::Map { args, .. }, Ready::Map(program)) => {
                let args: smallvec::SmallVec<[ArgData<'_>; 8]> = args
                    .iter()
                    // SAFETY: as above
                    .map(|id| match unsafe { self.memory.any(*id) } {
                        Input::F32(data) => ArgData::F32(data),
                        Input::I64(data) => ArgData::I64(data),
                        Input::I32(data) => ArgData::I32(data),
                        Input::Bool(data) => ArgData::Bool(data),
                    })
                    .collect();
                program.run(level, &args, self.offsets, 0..rows, scratch, &mut [out]).map_err(|e| failed(e.to_string()))
            }
            (Op::Embed { tables, norm }, _) => {
                let tables: smallvec::SmallVec<[Table<'_>; 4]> = tables
                    .iter()
                    .map(|(id, lookup)| {
                        let table = plan.weight(*id);
                        let pick = match lookup {
                            Lookup::Position(from) => Pick::Position(*from),
                            // SAFETY: as above
                            Lookup::Id(id) => match unsafe { self.memory.any(*id) } {
                                Input::I32(ids) => Pick::I32(ids),
                                Input::I64(ids) => Pick::I64(ids),
                                Input::F32(ids) => Pick::F32(ids),
                                Input::Bool(_) => Pick::I64(&[]),
                            },
                        };
                        Table { name: &table.name, data: &table.data, pick }
                    })
                    .collect();
                let offsets = if out_value.rows == plan::Rows::Token { self.offsets } else { self.rows };
                embed(level, &tables, width, offsets, 0..offsets.len() - 1, out)?;
                let Some(norm) = norm else { return Ok(()) };
                let params = NormParams { norm: Norm::Layer, eps: norm.epsilon, gamma: row(norm.scale), beta: row(norm.shift) };
                norm_rows_in_place(level, &params, width, out, None).map_err(|e| failed(e.to_string()))
            }
            (Op::LayerNorm { x, residual, epsilon, scale, shift }, _) => {
                let params = NormParams { norm: Norm::Layer, eps: *epsilon, gamma: row(*scale), beta: row(*shift) };
                norm_rows(level, &params, width, read(*x), residual.map(read), out).map_err(|e| failed(e.to_string()))
            }
            (Op::RmsNorm { x, epsilon, scale }, _) => {
                let params = NormParams { norm: Norm::Rms, eps: *epsilon, gamma: row(*scale), beta: None };
                norm_rows(level, &params, width, read(*x), None, out).map_err(|e| failed(e.to_string()))
            }
            (Op::Softmax(x), _) => softmax_rows(level, width, read(*x), out).map_err(|e| failed(e.to_string())),
            (Op::Attention { q, k, v, heads, head, head_out, scale, bias }, _) => {
                let shape = Heads { heads: *heads, head_size: *head, value_size: *head_out, scale: *scale };
                let columns = |columns: &plan::Columns| Columns {
                    data: read(columns.value),
                    offset: columns.from,
                    stride: plan.value(columns.value).width,
                };
                Attention::new(shape, self.offsets, [columns(q), columns(k), columns(v)], bias.map(read))
                    .and_then(|attention| {
                        let mut out = ColumnsMut::new(out, 0, width);
                        attention.run(level, 0..self.offsets.len() - 1, 0..*heads, scratch, &mut out)
                    })
                    .map_err(|e| failed(e.to_string()))
            }
            (Op::Reduce { x, fold: Fold::First }, _) => {
                let from = read(*x);
                let wide = plan.value(*x).width;
                out.iter_mut().enumerate().for_each(|(row, out)| *out = from[row * wide]);
                Ok(())
            }
            (Op::Reduce { x, fold }, _) => {
                let fold = match fold {
                    Fold::Max => RowReduce::Max,
                    Fold::Min => RowReduce::Min,
                    Fold::Mean => RowReduce::Mean,
                    Fold::Sum | Fold::First => RowReduce::Sum,
                };
                reduce_rows(level, fold, plan.value(*x).width, read(*x), out).map_err(|e| failed(e.to_string()))
            }
            (Op::Pool { x, fold }, _) => {
                let fold = match fold {
                    Fold::Sum => TokenReduce::Sum,
                    Fold::Max => TokenReduce::Max,
                    Fold::Min => TokenReduce::Min,
                    Fold::First => TokenReduce::First,
                    Fold::Mean => TokenReduce::Mean,
                };
                reduce_tokens(level, fold, width, self.offsets, 0..self.offsets.len() - 1, read(*x), out)
                    .map_err(|e| failed(e.to_string()))
            }
            (Op::MeanPool { x, weights, at_least }, _) => {
                // SAFETY: as above
                let weights = match unsafe { self.memory.any(*weights) } {
                    Input::F32(data) => ArgData::F32(data),
                    Input::I64(data) => ArgData::I64(data),
                    Input::I32(data) => ArgData::I32(data),
                    Input::Bool(data) => ArgData::Bool(data),
                };
                mean_pool(level, width, self.offsets, read(*x), weights, *at_least, out).map_err(|e| failed(e.to_string()))
            }
            (Op::CumSum(x), _) => {
                cum_sum(width, self.offsets, read(*x), out);
                Ok(())
            }
            (Op::Concat(parts), _) => {
                let mut from = 0;
                for part in parts {
                    let (data, wide) = (read(*part), plan.value(*part).width);
                    for (row, piece) in data.chunks_exact(wide).enumerate() {
                        out[row * width + from..row * width + from + wide].copy_from_slice(piece);
                    }
                    from += wide;
                }
                Ok(())
            }
            (Op::Slice(columns), _) => {
                let wide = plan.value(columns.value).width;
                for (row, out) in read(columns.value).chunks_exact(wide).zip(out.chunks_exact_mut(width)) {
                    out.copy_from_slice(&row[columns.from..columns.from + width]);
                }
                Ok(())
            }
            (Op::Gemm { .. } | Op::Map { .. }, _) => Err(failed("was not prepared".into())),
        }
    }
}

const fn of(activation: plan::Activation) -> Activation {
    match activation {
        plan::Activation::None => Activation::None,
        plan::Activation::Relu => Activation::Relu,
        plan::Activation::Gelu => Activation::GeluErf,
        plan::Activation::GeluTanh => Activation::GeluTanh,
        plan::Activation::Sigmoid => Activation::Sigmoid,
        plan::Activation::Tanh => Activation::Tanh,
        plan::Activation::Silu => Activation::Silu,
    }
}
