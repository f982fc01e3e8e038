//! The CPU executor: runs a plan's nodes in order, each by its kernel, with the work of a node divided among threads. A
//! run allocates nothing once its state and its outputs have served a batch of the same size or larger.

use std::sync::Arc;

use super::embed::EmbedError;
use super::gemm::int8::RowQuant;
use super::level::Level;
use super::memory::{Input, Memory, ValueLocation, locations};
use super::prepare::{PrepareError, PreparedNode, prepare};
use super::run::Run;
use super::scratch::Scratch;
use super::threads::Threads;

use crate::plan::{Arena, Plan, Size, Type};

/// Why a batch could not be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// An input's length or type is not the one that the batch requires.
    #[error("{input}: expected {expected} elements of {kind:?}, got {got}")]
    Input {
        /// The input's name.
        input: String,
        /// Number of elements required.
        expected: usize,
        /// Element type required.
        kind: Type,
        /// Number of elements given.
        got: usize,
    },
    /// The batch has no sequences, has a sequence without tokens, or has the wrong number of inputs.
    #[error("batch: {reason}")]
    Batch {
        /// The reason.
        reason: String,
    },
    /// An id is out of its table's range.
    #[error(transparent)]
    Id(#[from] EmbedError),
    /// A kernel rejected its node, which means that the plan is wrong.
    #[error("{node}: {reason}")]
    Node {
        /// The node's name in the model.
        node: String,
        /// The kernel's error.
        reason: String,
    },
}

/// The input of one run.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Where each sequence's tokens begin, followed by the end of the last one. In a model without sequences each row
    /// counts as one token.
    pub offsets: &'a [usize],
    /// The data of each input, in the plan's order; rows are contiguous.
    pub inputs: &'a [Input<'a>],
}

/// The working memory of runs. It grows to the largest batch so far.
#[derive(Debug, Default)]
pub struct State {
    arena: Option<(Size, Arena)>,
    block: Vec<f32>,
    scratch: Scratch,
    rows: Vec<usize>,
}

/// The precision of matrix products. Only an explicit setting selects `Int8`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Precision {
    /// Single precision.
    #[default]
    Fp32,
    /// 8-bit integer products where a node is suited to it, with weights quantised by column. The vector has one entry
    /// for each node of the plan: the static range of the node's input, or `None` for a range per row (dynamic).
    Int8(Vec<Option<RowQuant>>),
}

impl From<crate::Precision> for Precision {
    fn from(precision: crate::Precision) -> Self {
        match precision {
            // tf32 and fp16 exist on GPUs only; a model that falls back to the CPU runs in fp32
            crate::Precision::Fp32 | crate::Precision::Tf32 | crate::Precision::Fp16 => Self::Fp32,
            crate::Precision::Int8 => Self::Int8(Vec::new()),
        }
    }
}

impl Precision {
    /// The name used in listings.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fp32 => crate::Precision::Fp32.name(),
            Self::Int8(_) => crate::Precision::Int8.name(),
        }
    }
}

/// How a plan is executed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The vector instructions; if the machine lacks them, the best level that it has.
    pub level: Level,
    /// The thread pool that shares the work of a batch.
    pub threads: Arc<Threads>,
    /// The precision of matrix products.
    pub precision: Precision,
}

impl Default for Options {
    fn default() -> Self {
        Self { level: Level::best(), threads: Arc::new(Threads::one()), precision: Precision::Fp32 }
    }
}

/// Called with the input of each matrix product: the node's index in the plan, the rows, and the length of one row.
pub type Observer<'a> = dyn FnMut(usize, &[f32], usize) + Send + 'a;

/// A plan that is ready to run, on any number of threads, each with a [`State`] of its own.
#[derive(Debug)]
pub struct Executor {
    pub(super) plan: Plan,
    pub(super) ready: Vec<PreparedNode>,
    pub(super) options: Options,
    locations: Vec<ValueLocation>,
}

impl Executor {
    /// Packs the plan's weights for this processor.
    ///
    /// # Errors
    ///
    /// [`PrepareError`] names a node that cannot run here.
    pub fn new(mut plan: Plan, options: Options) -> Result<Self, PrepareError> {
        plan.check().map_err(|e| PrepareError { node: e.node, reason: e.reason })?;
        let options = Options { level: options.level.runnable(), ..options };
        let ready = prepare(&mut plan, &options)?;
        let locations = locations(&plan);
        Ok(Self { plan, ready, options, locations })
    }

    /// The plan. It no longer holds the weights of matrix products.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The options that it was created with.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// The number of nodes that run in 8 bits.
    #[must_use]
    pub fn quantized_nodes(&self) -> usize {
        self.ready.iter().filter(|ready| matches!(ready, PreparedNode::GemmI8(..))).count()
    }

    /// Runs a batch and writes the rows of each output contiguously into `outputs`.
    ///
    /// # Errors
    ///
    /// [`RunError`] says what is wrong with the batch; the outputs are then undefined.
    pub fn run(&self, state: &mut State, batch: &Batch<'_>, outputs: &mut Vec<Vec<f32>>) -> Result<(), RunError> {
        self.observed(state, batch, outputs, None)
    }

    /// Like [`Self::run`], and calls `observer` with the input of each matrix product.
    ///
    /// # Errors
    ///
    /// Like [`Self::run`].
    pub fn observed(
        &self,
        state: &mut State,
        batch: &Batch<'_>,
        outputs: &mut Vec<Vec<f32>>,
        observer: Option<&mut Observer<'_>>,
    ) -> Result<(), RunError> {
        let size = batch.size(&self.plan)?;
        outputs.resize_with(self.plan.outputs.len(), Vec::new);
        self.grow(state, size);
        let State { arena: Some((_, arena)), block, scratch, rows } = state else { return Ok(()) };
        let memory = Memory::new(&self.plan, &self.locations, arena, size, batch.inputs, block, outputs);
        let run = Run { executor: self, memory, size, offsets: batch.offsets, rows: &rows[..=size.batch] };
        // SAFETY: the plan was checked: a node reads values that were computed before and writes only its own; the
        // arena never assigns a value being written to memory that a value still to be read occupies
        self.options.threads.enter(|| unsafe { run.nodes(scratch, observer) })?;
        self.copy_twins(batch.inputs, outputs);
        Ok(())
    }

    /// Grows the working memory to a batch of this size.
    fn grow(&self, state: &mut State, size: Size) {
        let held = state.arena.as_ref().map_or(Size::uniform(0, 0), |(held, _)| *held);
        if size.batch <= held.batch && size.tokens <= held.tokens {
            return;
        }
        let (batch, tokens) = (size.batch.max(held.batch), size.tokens.max(held.tokens));
        let size = Size { batch, tokens, squares: size.squares };
        let arena = Arena::new(&self.plan, size);
        state.block.resize(arena.bytes() / 4, 0.0);
        state.scratch.grow(self, size);
        state.rows = (0..=size.batch).collect();
        state.arena = Some((size, arena));
    }

    /// Copies outputs that are an input, or another output under a second name.
    fn copy_twins(&self, inputs: &[Input<'_>], outputs: &mut [Vec<f32>]) {
        for (at, port) in self.plan.outputs.iter().enumerate() {
            match self.locations[port.value.0] {
                ValueLocation::Output(first) if first < at => {
                    let (before, after) = outputs.split_at_mut(at);
                    after[0].clone_from(&before[first]);
                }
                ValueLocation::Input(input) => {
                    if let Input::F32(data) = inputs[input] {
                        outputs[at].copy_from_slice(data);
                    }
                }
                _ => {}
            }
        }
    }
}

impl Batch<'_> {
    /// Returns the batch's size if it fits the plan.
    ///
    /// # Errors
    ///
    /// [`RunError::Batch`] or [`RunError::Input`] says what does not fit.
    pub fn size(&self, plan: &Plan) -> Result<Size, RunError> {
        let fails = |reason: &str| Err(RunError::Batch { reason: reason.to_owned() });
        if self.offsets.len() < 2 || self.offsets[0] != 0 {
            return fails("has no sequences");
        }
        let lengths = || self.offsets.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        if lengths().any(|length| length == 0) {
            return fails("has a sequence without tokens");
        }
        if self.inputs.len() != plan.inputs.len() {
            return fails(&format!("has {} inputs, the model {}", self.inputs.len(), plan.inputs.len()));
        }
        let size = Size::of(lengths());
        for (port, input) in plan.inputs.iter().zip(self.inputs) {
            let value = plan.value(port.value);
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
