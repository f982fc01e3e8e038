//! The executor: a plan's nodes in order, each by its kernel, shared among threads. A run with a state that has held a batch as
//! large before, and with outputs that have, allocates nothing.

use std::sync::Arc;

use super::embed::EmbedError;
use super::gemm::int8::RowQuant;
use super::level::Level;
use super::memory::{Home, Input, Memory, homes};
use super::prepare::{PrepareError, Ready, prepare};
use super::run::Run;
use super::scratch::Scratch;
use super::threads::Threads;

use crate::plan::{Arena, Plan, Size, Type};

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
    scratch: Scratch,
    rows: Vec<usize>,
}

/// In what numbers matrix products are done. It is never chosen but by who asks for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Precision {
    /// Single precision.
    #[default]
    Fp32,
    /// Products of 8-bit whole numbers where a node is fit for it: weights by column. A node's input has the range that
    /// stands here for it (by its place in the plan); where none does, each row its own.
    Int8(Vec<Option<RowQuant>>),
}

impl From<crate::Precision> for Precision {
    fn from(precision: crate::Precision) -> Self {
        match precision {
            // two are a GPU's: a model that is left to the processor has nothing narrower than fp32 there
            crate::Precision::Fp32 | crate::Precision::Tf32 | crate::Precision::Fp16 => Self::Fp32,
            crate::Precision::Int8 => Self::Int8(Vec::new()),
        }
    }
}

impl Precision {
    /// The name in listings.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fp32 => crate::Precision::Fp32.name(),
            Self::Int8(_) => crate::Precision::Int8.name(),
        }
    }
}

/// How a plan is to be run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The vector instructions; the best that there are where these are not.
    pub level: Level,
    /// What shares the work of a batch.
    pub threads: Arc<Threads>,
    /// In what numbers.
    pub precision: Precision,
}

impl Default for Options {
    fn default() -> Self {
        Self { level: Level::best(), threads: Arc::new(Threads::one()), precision: Precision::Fp32 }
    }
}

/// Sees what each matrix product is given: its node's place in the plan, its rows, and how long one is.
pub type Observer<'a> = dyn FnMut(usize, &[f32], usize) + Send + 'a;

/// A plan that is ready to run on any number of threads, each with a [`State`] of its own.
#[derive(Debug)]
pub struct Executor {
    pub(super) plan: Plan,
    pub(super) ready: Vec<Ready>,
    pub(super) options: Options,
    homes: Vec<Home>,
}

impl Executor {
    /// Packs the plan's weights for this processor.
    ///
    /// # Errors
    ///
    /// [`PrepareError`] with a node that cannot run here.
    pub fn new(mut plan: Plan, options: Options) -> Result<Self, PrepareError> {
        plan.check().map_err(|e| PrepareError { node: e.node, reason: e.reason })?;
        let options = Options { level: options.level.runnable(), ..options };
        let ready = prepare(&mut plan, &options)?;
        let homes = homes(&plan);
        Ok(Self { plan, ready, options, homes })
    }

    /// What is run; weights of matrix products are no longer in it.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How it is run.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// How many of its nodes are done in 8 bits.
    #[must_use]
    pub fn quantized_nodes(&self) -> usize {
        self.ready.iter().filter(|ready| matches!(ready, Ready::GemmI8(..))).count()
    }

    /// Runs a batch: each output gets its rows, end to end.
    ///
    /// # Errors
    ///
    /// [`RunError`] with what is wrong about the batch; then the outputs hold nothing of use.
    pub fn run(&self, state: &mut State, batch: &Batch<'_>, outputs: &mut Vec<Vec<f32>>) -> Result<(), RunError> {
        self.observed(state, batch, outputs, None)
    }

    /// As [`Self::run`], with somebody who looks on.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
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
        let memory = Memory::new(&self.plan, &self.homes, arena, size, batch.inputs, block, outputs);
        let run = Run { executor: self, memory, size, offsets: batch.offsets, rows: &rows[..=size.batch] };
        // SAFETY: the plan was checked: a node reads what was made before and makes what is its own; and the arena gives a
        // value that is being made no place that one holds which is still read
        self.options.threads.enter(|| unsafe { run.nodes(scratch, observer) })?;
        self.copy_twins(batch.inputs, outputs);
        Ok(())
    }

    /// Makes room for a batch of this size.
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

    /// Outputs that are an input, or another output under a second name.
    fn copy_twins(&self, inputs: &[Input<'_>], outputs: &mut [Vec<f32>]) {
        for (at, port) in self.plan.outputs.iter().enumerate() {
            match self.homes[port.value.0] {
                Home::Output(first) if first < at => {
                    let (before, after) = outputs.split_at_mut(at);
                    after[0].clone_from(&before[first]);
                }
                Home::Input(input) => {
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
    /// How large it is, if it fits the plan.
    ///
    /// # Errors
    ///
    /// [`RunError::Batch`] or [`RunError::Input`] with what does not fit.
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
